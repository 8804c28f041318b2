# SPDX-License-Identifier: Apache-2.0
"""Size-class tables: data, derived values, and the rules that sw_table_create also checks in C."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

SMALL_DIV = 8  # step of the small map, bytes
SMALL_MAX = 1024  # sizes up to here use the small map, bytes
LARGE_SHIFT_MAX = 7  # the large map steps by at most 1 << 7 bytes
CLASSES_MAX = 255  # not counting the dummy class 0
SIZE_MAX = 256 * 1024  # largest slot, bytes
SPAN_BYTES_MAX = 4 << 20
SLOTS_MAX = 8192
LONG_SPAN_BYTES = 65536  # limit for doubling spans of slots up to SMALL_MAX
MIDDLE_SPAN_BYTES = 32768  # limit for doubling spans of larger slots
PAGE_BYTES_MIN = 4096
PAGE_BYTES_MAX = 65536
NAME_MAX = 63  # characters
PATH_CUTOFF = 512  # default cut-off of the specialised paths, bytes

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_MASK64 = (1 << 64) - 1


class SizeClassError(Exception):
    """Bad input; the message is one line with the place, the rule and the fix."""


class ProofError(Exception):
    """A proof failed, which means a bug of the generator."""


@dataclass(frozen=True)
class SizeClass:
    """One class: slots of `size` bytes in spans of up to `pages` pages of the table.

    The first span has `first_pages`, and a heap doubles that up to `pages` as it holds more of the
    class; None: all spans have `pages`.
    """

    size: int
    pages: int
    first_pages: int | None = None

    @property
    def shortest(self) -> int:
        """Pages of the first span."""
        return self.pages if self.first_pages is None else self.first_pages


@dataclass(frozen=True)
class Row:
    """One class with all columns of the printed table, as in Go.

    If spans grow, the columns describe the longest span, except `first_span_bytes`, and
    `max_waste_pct`, which is the worst of the shortest and the longest span.
    """

    cls: int
    size: int
    span_bytes: int
    objects: int
    tail_waste: int
    max_waste_pct: float
    min_align: int
    first_span_bytes: int


@dataclass(frozen=True)
class Parameters:
    """The parameters of the procedure of `go` and `c16`.

    Attributes:
        align: "go" (8 B steps below 32) or "16" (16 B steps from 16 up).
        page_bytes: power of two, 4096 to 65536.
        max_size: largest class in bytes, a power of two.
        tail_limit: largest share of a span that its tail may waste, 0 <= limit < 1.
        span_slots: spans of sizes up to SMALL_MAX are doubled until they hold this many slots or
            would exceed LONG_SPAN_BYTES; 1 keeps the shortest within the tail limit, as in Go.
        growing: the first span of a class is the shortest, and later ones double as the heap holds
            more of the class; False: all spans are as long as span_slots makes them. In a growing
            table, spans of larger sizes are also doubled, up to MIDDLE_SPAN_BYTES.
    """

    align: str = "go"
    page_bytes: int = 8192
    max_size: int = 32768
    tail_limit: Fraction = Fraction(1, 8)
    span_slots: int = 1
    growing: bool = False

    @property
    def name(self) -> str:
        """`go` or `c16`, followed by each parameter that differs from the built-in table."""
        name = "go" if self.align == "go" else "c16"
        plain = BUILTINS[name]
        if self.page_bytes != plain.page_bytes:
            name += f"_p{self.page_bytes}"
        if self.max_size != plain.max_size:
            name += f"_m{self.max_size}"
        if self.tail_limit != plain.tail_limit:
            name += f"_t{self.tail_limit.numerator}_{self.tail_limit.denominator}"
        if self.span_slots != plain.span_slots:
            name += f"_s{self.span_slots}"
        if self.growing != plain.growing:
            name += "_growing" if self.growing else "_fixed"
        return name


BUILTINS = {"go": Parameters("go"), "c16": Parameters("16", span_slots=1024, growing=True)}
DEFAULT = "c16"  # of heaps without a table, and of inline code


def magic_of(size: int) -> int:
    """Return the multiplier that replaces a division by size: ceil(2**64 / size).

    With e = magic * size - 2**64 (0 <= e < size) and n = q * size + r, (n * magic) >> 64 is
    q + floor((r + n * e / 2**64) / size), which is q for every r < size if n * e < 2**64. In every
    table n is at most 2**22 (SPAN_BYTES_MAX) and e below 2**18 (SIZE_MAX). Method: Lemire, Kaser,
    Kurz, "Faster remainder by direct computation" (2019).
    """
    return 0xFFFFFFFFFFFFFFFF // size + 1


@dataclass(frozen=True)
class Table:
    """A size-class table.

    `parameters` are those of Go's procedure, None for other tables. `source` names the rule of the
    table, "" for the two built-in tables and for tables from a file.
    """

    name: str
    page_bytes: int
    classes: tuple[SizeClass, ...]  # class 1 first; the dummy class 0 is not stored
    parameters: Parameters | None = None
    source: str = ""

    @property
    def max_size(self) -> int:
        """The largest slot in bytes."""
        return self.classes[-1].size

    @property
    def identifier(self) -> str:
        """The name as part of a C identifier."""
        return re.sub(r"[^0-9A-Za-z]", "_", self.name)

    @property
    def has_tiny(self) -> bool:
        """Whether pointer-free objects below 16 B may share 16 B blocks (Go's family only)."""
        return self.parameters is not None and self.parameters.align == "go"

    @property
    def grows(self) -> bool:
        """Whether some class has spans that grow."""
        return any(c.shortest != c.pages for c in self.classes)

    @cached_property
    def large_shift(self) -> int:
        """log2 of the large map's step: the coarsest that separates all classes above 1024 B."""
        large = [c.size for c in self.classes if c.size > SMALL_MAX]
        fits = (s for s in range(LARGE_SHIFT_MAX, 0, -1) if all(n % (1 << s) == 0 for n in large))
        return next(fits)  # all sizes are multiples of 8, so 3 always fits

    @cached_property
    def small_map(self) -> tuple[int, ...]:
        """Classes of sizes 0, 8, .. 1024; 0 if the table has no class that large."""
        return tuple(self._classes_of(range(0, SMALL_MAX + 1, SMALL_DIV)))

    @cached_property
    def large_map(self) -> tuple[int, ...]:
        """Classes of sizes 1024, 1024 + step, .. the largest; empty if that is 1024 or less."""
        if self.max_size <= SMALL_MAX:
            return ()
        return tuple(self._classes_of(range(SMALL_MAX, self.max_size + 1, 1 << self.large_shift)))

    def _classes_of(self, sizes: Sequence[int]) -> Iterator[int]:
        """Yield the class of each of the ascending `sizes`; 0 if too large."""
        cls = 1
        for size in sizes:
            while cls <= len(self.classes) and self.classes[cls - 1].size < size:
                cls += 1
            yield cls if cls <= len(self.classes) else 0

    def class_of(self, size: int) -> int:
        """Return the class of a request of 0 <= size <= max_size bytes, from the maps as in C."""
        if size <= SMALL_MAX:
            return self.small_map[(size + SMALL_DIV - 1) >> 3]
        step = 1 << self.large_shift
        return self.large_map[(size - SMALL_MAX + step - 1) >> self.large_shift]

    def _waste(self, c: SizeClass, previous: int, pages: int) -> float:
        """Return the share of a span lost to round-up and tail if all requests are the smallest."""
        span = pages * self.page_bytes
        objects = span // c.size
        return ((c.size - previous - 1) * objects + span - objects * c.size) / span

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The printed table, class 1 first."""
        rows = []
        previous = 0
        for cls, c in enumerate(self.classes, 1):
            span = c.pages * self.page_bytes
            objects = span // c.size
            tail = span - objects * c.size
            worst = max(self._waste(c, previous, pages) for pages in (c.pages, c.shortest))
            align = min(c.size & -c.size, self.page_bytes)
            percent = float(format(100 * worst, ".2f"))
            first = c.shortest * self.page_bytes
            rows.append(Row(cls, c.size, span, objects, tail, percent, align, first))
            previous = c.size
        return tuple(rows)

    @cached_property
    def hash(self) -> int:
        """FNV-1a, 64 bits, over page_bytes and each class's size and pages as little-endian u32.

        If spans grow, the first_pages of all classes follow.
        """
        value = _FNV_OFFSET
        words = [self.page_bytes, *(n for c in self.classes for n in (c.size, c.pages))]
        if self.grows:
            words += [c.shortest for c in self.classes]
        for byte in b"".join(word.to_bytes(4, "little") for word in words):
            value = ((value ^ byte) * _FNV_PRIME) & _MASK64
        return value

    def path_cutoff(self, cutoff: int) -> int:
        """Return the cut-off of the specialised paths in bytes, at most the largest class."""
        return min(cutoff, self.max_size)


# --- rules ----------------------------------------------------------------------------------------

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{NAME_MAX - 1}}}")


def check_name(name: str) -> None:
    """Raise SizeClassError unless `name` is valid for a table, its files and its C symbols."""
    if not _NAME.fullmatch(name):
        raise SizeClassError(
            f"name {name[: NAME_MAX + 1]!r}: must be 1 to {NAME_MAX} of A-Z a-z 0-9 _ . -"
            " and begin with a letter"
        )


def check_page_bytes(page_bytes: int) -> None:
    """Raise SizeClassError unless tables may have this page size."""
    power = page_bytes & (page_bytes - 1) == 0
    if not power or not PAGE_BYTES_MIN <= page_bytes <= PAGE_BYTES_MAX:
        raise SizeClassError(
            f"page_bytes {page_bytes}: must be a power of two"
            f" from {PAGE_BYTES_MIN} to {PAGE_BYTES_MAX}"
        )


def check_classes(page_bytes: int, classes: Sequence[SizeClass]) -> None:
    """Raise SizeClassError for the first class that violates a rule, with the rule and the fix."""
    if not 1 <= len(classes) <= CLASSES_MAX:
        raise SizeClassError(f"{len(classes)} classes: must be 1 to {CLASSES_MAX}")
    previous = 0
    for cls, c in enumerate(classes, 1):
        broken = (
            _broken_size(c.size, cls - 1, previous)
            or _broken_span(page_bytes, c)
            or _broken_first_span(page_bytes, c)
        )
        if broken:
            raise SizeClassError(f"class {cls} ({c.size} bytes): {broken}")
        previous = c.size


def _broken_size(size: int, below: int, previous: int) -> str | None:
    if size < 8:
        return "size must be at least 8"
    if size % 8:
        return f"size must be a multiple of 8; use {(size + 7) & ~7}"
    if size <= previous:
        return (
            f"size must be above the {previous} bytes of class {below};"
            " list the classes in rising order"
        )
    if size > SIZE_MAX:
        return f"size must be at most {SIZE_MAX}; leave it out, larger requests get whole pages"
    return None


def _broken_span(page_bytes: int, c: SizeClass) -> str | None:
    span = c.pages * page_bytes
    if c.pages < 1:
        return "pages must be at least 1"
    if span < c.size:
        return f"does not fit its span of {span} bytes; use {-(-c.size // page_bytes)} pages"
    if span > SPAN_BYTES_MAX:
        most = SPAN_BYTES_MAX // page_bytes
        return f"span of {span} bytes is above {SPAN_BYTES_MAX}; use at most {most} pages"
    if span // c.size > SLOTS_MAX:
        most = SLOTS_MAX * c.size // page_bytes
        return f"span holds {span // c.size} objects, above {SLOTS_MAX}; use at most {most} pages"
    return None


def _broken_first_span(page_bytes: int, c: SizeClass) -> str | None:
    first = c.shortest or c.pages
    times = c.pages // first
    if c.pages % first or times & (times - 1):
        return f"first_pages {first}: {c.pages} pages must be a power of two times as many"
    if first * page_bytes < c.size:
        needed = -(-c.size // page_bytes)
        return f"does not fit its first span of {first * page_bytes} bytes; use {needed} pages"
    return None


# --- proofs ---------------------------------------------------------------------------------------
#
# A failure raises ProofError with a counterexample, before anything is written.

WASTE_BOUND_PCT = 26.6
# Number of classes, and the sizes whose worst waste exceeds the bound because of alignment.
EXPECTED: dict[str, tuple[int, dict[int, float]]] = {
    "go": (67, {8: 87.5, 16: 43.75, 24: 29.24, 48: 31.52}),
    "c16": (66, {8: 87.5, 16: 43.75, 32: 46.88, 48: 31.52}),
}


def prove(table: Table) -> list[str]:
    """Run every proof that applies to the table; return one line per proof."""
    return [
        _prove_division(table),
        _prove_lookup(table),
        *_prove_tails(table),
        *_prove_bounds(table),
    ]


def _prove_division(table: Table) -> str:
    for row in table.rows:
        _prove_class_division(table, row)
    return "division by the 64-bit multiplier exact at both ends of every slot of every span"


def _prove_class_division(table: Table, row: Row) -> None:
    """Check that the high word is the slot, and that the low word detects the slot's start.

    The high word does not decrease with the offset, so both ends of each slot suffice.
    """
    magic = magic_of(row.size)
    for slot in range(row.objects + 1):
        first = slot * row.size
        end = min(first + row.size, row.span_bytes + 1)
        for offset in sorted({first, min(first + 1, end - 1), end - 1}):
            found, low = divmod(offset * magic, 1 << 64)
            if found != slot or (low < magic) != (offset == first):
                raise ProofError(
                    f"table {table.name}: class {row.cls} ({row.size} bytes): offset {offset}"
                    f" gives slot {found}, not {slot}"
                )


def _prove_lookup(table: Table) -> str:
    cls = 1
    for size in range(table.max_size + 1):
        if size > table.classes[cls - 1].size:
            cls += 1
        found = table.class_of(size)
        if found != cls:
            raise ProofError(f"table {table.name}: size {size} gives class {found}, not {cls}")
    for number, c in enumerate(table.classes, 1):
        if table.class_of(c.size) != number:
            raise ProofError(f"table {table.name}: class {number} is not the class of its own size")
    return f"look-up smallest and monotone for every size 0..{table.max_size}"


def _prove_tails(table: Table) -> list[str]:
    if table.parameters is None:
        return []
    limit = table.parameters.tail_limit
    for row in table.rows:
        if row.tail_waste > row.span_bytes * limit:
            raise ProofError(f"table {table.name}: class {row.cls}: tail above {limit} of its span")
    if table.max_size != table.parameters.max_size:
        raise ProofError(f"table {table.name}: largest class is {table.max_size}")
    if table.parameters.align == "16" and any(c.size % 16 for c in table.classes[1:]):
        raise ProofError(f"table {table.name}: a class above 8 is not a multiple of 16")
    return [f"no tail above {limit} of its span"]


def _prove_bounds(table: Table) -> list[str]:
    expected = EXPECTED.get(table.name)
    if expected is None:
        return []
    count, exceptions = expected
    if len(table.classes) != count:
        raise ProofError(f"table {table.name}: {len(table.classes)} classes, expected {count}")
    above = {r.size: r.max_waste_pct for r in table.rows if r.max_waste_pct > WASTE_BOUND_PCT}
    if above != exceptions:
        raise ProofError(f"table {table.name}: worst waste above the bound is {above}")
    stated = ", ".join(f"{size} B {percent:.2f} %" for size, percent in exceptions.items())
    return [f"{count} classes; worst waste {WASTE_BOUND_PCT} % but for {stated}"]
