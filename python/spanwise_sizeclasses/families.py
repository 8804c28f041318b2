# SPDX-License-Identifier: Apache-2.0
"""Families of size classes, each by the published rules of its project.

A rule gives the size and the span of each class, in pages of the family:

    go, c16      Go's procedure, see `make_table`
    jemalloc     5.3.0, src/sc.c: four classes per doubling, slabs without a tail
    tcmalloc     gperftools 2.10, src/common.cc: steps of 1/8, spans sized for batch transfers
    mimalloc     2.0.9, src/init.c, src/page-queue.c, src/segment.c: four classes per doubling,
                 pages of 64 and 512 KiB
    pow2         powers of two
    geometric-R  each class at most R times the previous one
    fibonacci    Hirschberg, "A class of dynamic memory allocation algorithms", CACM 16 (1973)

The spans of the last three are the shortest with a tail of at most 1/8. `named` returns a table by
name. tests/data has the output of the projects themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from .model import (
    BUILTINS,
    LONG_SPAN_BYTES,
    MIDDLE_SPAN_BYTES,
    SIZE_MAX,
    SLOTS_MAX,
    SMALL_MAX,
    SPAN_BYTES_MAX,
    Parameters,
    SizeClass,
    SizeClassError,
    Table,
    check_classes,
    check_page_bytes,
)

DEFAULT_PAGE_BYTES = 8192
DEFAULT_LARGEST = 32768
_GEOMETRIC = "geometric-"


# --- go and c16 ----------------------------------------------------------------------------------

# Classes grow in these units, so that a map with this step separates all large classes.
_GROWTH_UNIT = 128


def _candidates(align: str, max_size: int) -> Iterator[int]:
    """Yield candidate sizes in bytes: 8, then up by a step that changes at powers of two."""
    step_16_from = 16 if align == "16" else 32
    step = 8
    size = 8
    while size <= max_size:
        if size & (size - 1) == 0:
            if size >= 2048:
                step = 256
            elif size >= 128:
                step = size // 8
            elif size >= step_16_from:
                step = 16
        yield size
        size += step


def _span_pages(size: int, p: Parameters) -> int:
    """Return the fewest pages of a span whose tail is within the limit."""
    for span in range(p.page_bytes, SPAN_BYTES_MAX + 1, p.page_bytes):
        if span % size <= span * p.tail_limit:
            return span // p.page_bytes
    raise SizeClassError(
        f"size {size}: no span up to {SPAN_BYTES_MAX} bytes wastes at most {p.tail_limit} in its"
        " tail; raise the tail limit"
    )


def check_parameters(p: Parameters) -> None:
    """Raise SizeClassError for parameters outside the domain of the procedure."""
    check_page_bytes(p.page_bytes)
    if p.align not in ("go", "16"):
        raise SizeClassError(f"align {p.align!r}: must be go or 16")
    if p.max_size & (p.max_size - 1) or not 16 <= p.max_size <= SIZE_MAX:
        raise SizeClassError(f"max_size {p.max_size}: must be a power of two from 16 to {SIZE_MAX}")
    if not 0 <= p.tail_limit < 1:
        raise SizeClassError(f"tail_limit {p.tail_limit}: must be at least 0 and below 1")
    if not 1 <= p.span_slots <= SLOTS_MAX:
        raise SizeClassError(f"span_slots {p.span_slots}: must be from 1 to {SLOTS_MAX}")


def make_table(p: Parameters) -> Table:
    """Return the table of Go's procedure.

    Method: Go 1.26.8, runtime/_mkmalloc/mksizeclasses.go (makeClasses). Candidates ascend by a step
    that grows with the size, and the span of each is found by trial. A candidate replaces the
    previous one if its span has the same length and number of objects. Finally, each class grows to
    the largest size for which its span holds the same number.

    Differences: the limits are parameters, and align "16" starts the 16 B step at 16 instead of 32,
    which drops exactly the 24 B class. Under other limits, a class may grow to the size of larger
    ones (1408 to 1536 B with 4 KiB pages) and then replaces them; none grows past the largest.
    Last, spans of small sizes with fewer slots than `span_slots` are doubled up to 64 KiB, which
    changes neither sizes nor the share of tails. In a growing table, a class begins with its
    original span, and spans of larger sizes are also doubled, up to 32 KiB.
    """
    check_parameters(p)
    merged: list[SizeClass] = []
    for size in _candidates(p.align, p.max_size):
        pages = _span_pages(size, p)
        span = pages * p.page_bytes
        if merged and merged[-1].pages == pages and span // merged[-1].size == span // size:
            merged.pop()
        merged.append(SizeClass(size, pages))
    classes: tuple[SizeClass, ...] = ()
    for c in merged:
        grown = _grown(c, p)
        if not classes or grown.size > classes[-1].size:  # else the previous one serves these sizes
            classes += (_lengthened(grown, p),)
    check_classes(p.page_bytes, classes)
    return Table(p.name, p.page_bytes, classes, p)


def _grown(c: SizeClass, p: Parameters) -> SizeClass:
    """Return the class grown, in units, to the largest size with as many objects per span."""
    span = c.pages * p.page_bytes
    largest = min(span // (span // c.size), p.max_size)
    return SizeClass(max(c.size, largest - largest % _GROWTH_UNIT), c.pages)


def _lengthened(c: SizeClass, p: Parameters) -> SizeClass:
    """Return the class with its span doubled until it has span_slots, or reaches its limit.

    The limit is LONG_SPAN_BYTES for small sizes, MIDDLE_SPAN_BYTES for others in a growing table.
    """
    pages = c.pages
    small = c.size <= SMALL_MAX
    limit = LONG_SPAN_BYTES if small else MIDDLE_SPAN_BYTES if p.growing else 0
    while pages * p.page_bytes // c.size < p.span_slots and 2 * pages * p.page_bytes <= limit:
        pages *= 2
    return SizeClass(c.size, pages, c.pages if p.growing and pages != c.pages else None)


# --- spans for series of sizes --------------------------------------------------------------------


def span_pages(size: int, page_bytes: int) -> int:
    """Return the fewest pages of a span whose tail is at most 1/8 of it.

    An invalid size gets a span that holds it; checking the table then reports the error.
    """
    if size <= 0 or page_bytes <= 0:
        return 1
    fewest = max(1, -(-size // page_bytes))
    for pages in range(fewest, SPAN_BYTES_MAX // page_bytes + 1):
        span = pages * page_bytes
        if span % size * 8 <= span:
            return pages
    return fewest


def series(
    name: str, sizes: Iterable[int], source: str, page_bytes: int = DEFAULT_PAGE_BYTES
) -> Table:
    """Return a table of the given sizes, each with the span of `span_pages`."""
    check_page_bytes(page_bytes)
    return _checked(name, page_bytes, [(n, span_pages(n, page_bytes)) for n in sizes], source)


def _checked(name: str, page_bytes: int, pairs: Iterable[tuple[int, int]], source: str) -> Table:
    classes = tuple(SizeClass(size, pages) for size, pages in pairs)
    check_classes(page_bytes, classes)
    return Table(name, page_bytes, classes, source=source)


# --- jemalloc -------------------------------------------------------------------------------------

_JEMALLOC_PAGE = 4096
_JEMALLOC_QUANTUM = 16
_JEMALLOC_GROUP = 4  # classes per doubling


def jemalloc() -> Table:
    """Return jemalloc 5.3.0, 64 bits, 4 KiB pages: 36 classes in slabs, then one extent per object.

    Sizes: 8, multiples of the quantum of 16 up to 64, then four equal steps per doubling. Those
    below 4 pages are in slabs, the shortest run of pages without a tail. From 16 KiB on, each
    object has its own extent, modelled as a span of one slot. The page that opt.cache_oblivious
    adds to an extent is only address space, and is omitted.
    """
    pairs: list[tuple[int, int]] = []
    for size in _quarter_steps(8, _JEMALLOC_QUANTUM, SIZE_MAX):
        in_slab = size < _JEMALLOC_PAGE * _JEMALLOC_GROUP
        span = math.lcm(size, _JEMALLOC_PAGE) if in_slab else size
        pairs.append((size, span // _JEMALLOC_PAGE))
    source = "jemalloc 5.3.0, src/sc.c: page 4096, quantum 16, 4 classes a doubling"
    return _checked("jemalloc", _JEMALLOC_PAGE, pairs, source)


def _quarter_steps(first: int, quantum: int, largest: int) -> list[int]:
    """Return `first`, 1 to 4 quanta, then 4 equal steps per doubling, up to `largest`."""
    sizes = [first, *range(quantum, 4 * quantum + 1, quantum)]
    while sizes[-1] < largest:
        step = sizes[-1] // 4
        sizes += [sizes[-1] + step * i for i in range(1, 5)]
    return [size for size in sizes if size <= largest]


# --- tcmalloc -------------------------------------------------------------------------------------

_TCMALLOC_PAGE = 8192
_TCMALLOC_TRANSFER_BYTES = 65536
_TCMALLOC_TRANSFER_OBJECTS = 32


def tcmalloc() -> Table:
    """Return gperftools 2.10 (libtcmalloc_minimal of Debian 12), 8 KiB pages, up to 256 KiB.

    Steps are 8 up to size 16, 16 up to 128, then 1/8 of the next lower power of two, at most a
    page. A span grows until its tail is at most 1/8 and it holds a quarter of a batch between
    thread cache and central cache (64 KiB, 2 to 32 objects). A candidate replaces the previous
    class if both have the same span and the same number of slots.
    """
    classes: list[tuple[int, int]] = []
    size = 8
    while size <= SIZE_MAX:
        pages = _tcmalloc_pages(size)
        span = pages * _TCMALLOC_PAGE
        if classes and classes[-1][1] == pages and span // classes[-1][0] == span // size:
            classes.pop()
        classes.append((size, pages))
        size += _tcmalloc_step(size)
    source = "gperftools 2.10, src/common.cc: page 8192, transfers of 32 objects"
    return _checked("tcmalloc", _TCMALLOC_PAGE, classes, source)


def _tcmalloc_step(size: int) -> int:
    if size < 16:
        return 8
    if size < 128:
        return 16
    return min((1 << (size.bit_length() - 1)) // 8, _TCMALLOC_PAGE)


def _tcmalloc_pages(size: int) -> int:
    moved = min(max(_TCMALLOC_TRANSFER_BYTES // size, 2), _TCMALLOC_TRANSFER_OBJECTS)
    span = _TCMALLOC_PAGE
    while span % size > span // 8 or span // size < moved // 4:
        span += _TCMALLOC_PAGE
    return span // _TCMALLOC_PAGE


# --- mimalloc -------------------------------------------------------------------------------------

_MIMALLOC_SLICE = 65536
_MIMALLOC_MEDIUM = 8 * _MIMALLOC_SLICE


def mimalloc() -> Table:
    """Return mimalloc 2.0.9, 64 bits, aligned to 16: 49 bins up to 128 KiB.

    Sizes: 8, multiples of 16 up to 64, then four equal steps per doubling. A mimalloc page (our
    span) is 64 KiB for objects up to 16 KiB, and 512 KiB for those up to 128 KiB; larger ones get
    whole slices of 64 KiB, as large objects do here. Not modelled: the 128 B that v2 skips at the
    start of a page of small blocks, and that it extends a page's free list gradually.
    """
    pairs = [
        (size, (_MIMALLOC_SLICE if size * 4 <= _MIMALLOC_SLICE else _MIMALLOC_MEDIUM))
        for size in _quarter_steps(8, 16, _MIMALLOC_MEDIUM // 4)
    ]
    source = "mimalloc 2.0.9, src/init.c, src/page-queue.c: pages of 64 and 512 KiB, align 16"
    return _checked(
        "mimalloc", _MIMALLOC_SLICE, [(n, span // _MIMALLOC_SLICE) for n, span in pairs], source
    )


# --- series ---------------------------------------------------------------------------------------


def pow2(largest: int = DEFAULT_LARGEST) -> Table:
    """Return the sizes 8, 16, 32, ... up to `largest` bytes, which must be a power of two."""
    if largest < 8 or largest > SIZE_MAX or largest & (largest - 1):
        raise SizeClassError(
            f"largest_bytes {largest}: must be a power of two from 8 to {SIZE_MAX}"
        )
    sizes = [1 << bit for bit in range(3, largest.bit_length())]
    return series("pow2", sizes, f"powers of two from 8 to {largest} B")


def geometric(
    ratio: float, smallest: int = 16, largest: int = DEFAULT_LARGEST, align: int = 16
) -> Table:
    """Return sizes from `smallest` to `largest` bytes, each at most `ratio` times the previous one.

    All are multiples of `align`, which is also the smallest step.
    """
    if not (math.isfinite(ratio) and ratio > 1):
        raise SizeClassError(f"ratio {ratio}: must be above 1")
    if align not in (8, 16):
        raise SizeClassError(f"align {align}: must be 8 or 16")
    if not 8 <= smallest <= largest <= SIZE_MAX:
        raise SizeClassError(
            f"smallest_bytes {smallest}, largest_bytes {largest}: must rise, from 8 at least to"
            f" {SIZE_MAX} at most"
        )
    sizes = [-(-smallest // align) * align]
    while sizes[-1] < largest:
        step = max(int(sizes[-1] * ratio) // align * align, sizes[-1] + align)
        sizes.append(min(step, -(-largest // align) * align))
    source = f"geometric, ratio {ratio:g}, multiples of {align} from {smallest} to {largest} B"
    return series(f"{_GEOMETRIC}{ratio:g}", sizes, source)


def fibonacci(largest: int = DEFAULT_LARGEST, align: int = 16) -> Table:
    """Return `align` times the Fibonacci numbers 1, 2, 3, 5, 8, ..., and `largest` as the last.

    With align 16, 8 B is the first class, as C allows.
    """
    if align not in (8, 16):
        raise SizeClassError(f"align {align}: must be 8 or 16")
    if not align <= largest <= SIZE_MAX or largest % align:
        raise SizeClassError(
            f"largest_bytes {largest}: must be a multiple of {align} from {align} to {SIZE_MAX}"
        )
    sizes = [8] if align == 16 else []
    low, high = 1, 2
    while low * align < largest:
        sizes.append(low * align)
        low, high = high, low + high
    source = f"Fibonacci numbers times {align} B to {largest} B (Hirschberg 1973)"
    return series("fibonacci", [*sizes, largest], source)


# --- by name --------------------------------------------------------------------------------------

_MAKERS: dict[str, Callable[[], Table]] = {
    "jemalloc": jemalloc,
    "tcmalloc": tcmalloc,
    "mimalloc": mimalloc,
    "pow2": pow2,
    "fibonacci": fibonacci,
}

NAMES = (*BUILTINS, *_MAKERS)
"""Every table name except geometric-R."""


def named(name: str) -> Table | None:
    """Return the table of a family's name or of geometric-R; None if there is no such family."""
    if name in BUILTINS:
        return make_table(BUILTINS[name])
    if name in _MAKERS:
        return _MAKERS[name]()
    if not name.startswith(_GEOMETRIC):
        return None
    try:
        ratio = float(name.removeprefix(_GEOMETRIC))
    except ValueError:
        raise SizeClassError(
            f"unknown table {name!r}; after geometric- comes a ratio, e.g. geometric-1.25"
        ) from None
    return geometric(ratio)
