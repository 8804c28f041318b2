# SPDX-License-Identifier: Apache-2.0
"""The cases of two articles about Go, run on a heap by C: time, bytes, allocations and waste.

What an operation does is in src/lesson/cases.c; this module names the cases, says why each value is
on the stack or on the heap, and sets the figures beside those of the articles and of Go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, SupportsIndex

from spanwise import _lib
from spanwise._lib import ffi, lib
from spanwise.errors import InvalidError, LimitError
from spanwise.heap.heap import Heap
from spanwise.lessons.articles import claims
from spanwise.tables.table import SizeClassTable

VARIABLE_BYTES_MAX = 128 << 10
"""Go 1.26.8 moves larger variables to the heap (cmd/compile/internal/ir/cfg.go)."""
UNNAMED_BYTES_MAX = 64 << 10
"""The same limit for values that new, make and composite literals make."""

SHARING = ("copied", "shared down", "shared up")
"""How a value leaves the function that made it: as a copy, to a callee, or to its caller."""


class Verdict(NamedTuple):
    """Where Go puts a value, in the style of `go build -gcflags=-m`.

    Attributes:
        place: "stack" or "heap".
        reason: one of SHARING, or "too large".
    """

    place: str
    reason: str


def place_of(size: SupportsIndex, sharing: str, *, named: bool = True) -> Verdict:
    """Where Go 1.26.8 puts a value whose size is known when it is compiled.

    Args:
        size: in bytes.
        sharing: one of SHARING.
        named: it is a variable; False: it is made by new, make or a literal.

    Raises:
        InvalidError: an unknown sharing, or a negative size.
    """
    if sharing not in SHARING:
        raise InvalidError(f"sharing {sharing!r}: must be one of {', '.join(SHARING)}")
    limit = VARIABLE_BYTES_MAX if named else UNNAMED_BYTES_MAX
    if _lib.as_index(size, "size") > limit:
        return Verdict("heap", "too large")
    return Verdict("heap" if sharing == "shared up" else "stack", sharing)


class Case(NamedTuple):
    """One case.

    Attributes:
        name: ours.
        claim: its name in the articles; "": they do not have it.
        verdict: where its values are, and why.
        go_ns: of Go 1.26.8 on one core of an x86-64 server, no collection running; None: unknown.
        books: how many it makes; 0: none.
    """

    name: str
    claim: str
    verdict: Verdict
    go_ns: float | None
    books: int = 0


_UP = Verdict("heap", "shared up")
_DOWN = Verdict("stack", "shared down")
_COPIED = Verdict("stack", "copied")

C_NAMES = (
    "stack_copied",
    "stack_shared_up",
    "stack_shared_down",
    "struct_copied",
    "struct_shared_up",
    "array_of_five",
    "whole_pages",
    "variable_too_large",
    "merge_in_one_loop",
    "merge_in_two_loops",
    "merge_unzeroed",
    "filter_into_another",
    "filter_in_place",
    "books_in_one_block",
    "books_in_many_blocks",
    "concat",
    "npc_without_pool",
    "npc_in_list_pool",
    "npc_in_capped_pool",
)
"""The functions of C, in the order of SW_LESSON_CASES."""

CASES = (
    Case("stack_copied", "StackIt", _COPIED, 1.20),
    Case("stack_shared_up", "StackIt2", _UP, 8.5),
    Case("stack_shared_down", "StackIt3", _DOWN, 1.18),
    Case("struct_copied", "CopyIt", _COPIED, 1.30),
    Case("struct_shared_up", "PointerIt", _UP, 28),
    Case("array_of_five", "[5]int64", _UP, 15.6),
    Case("whole_pages", "make 32769", _UP, 5035),
    Case("variable_too_large", "", Verdict("heap", "too large"), None),
    Case("merge_in_one_loop", "MergeWithOneLoop", _UP, 129),
    Case("merge_in_two_loops", "MergeWithTwoLoops", _UP, 58),
    Case("merge_unzeroed", "", _UP, None),
    Case("filter_into_another", "FilterOneAllocation", _UP, 2074),
    Case("filter_in_place", "FilterNoAllocations", _DOWN, 390),
    Case("books_in_one_block", "CreateOnOneLargeBlock N=100", _UP, 1061, 100),
    Case("books_in_many_blocks", "CreateOnManySmallBlocks N=100", _UP, 3032, 100),
    Case("books_in_one_block", "CreateOnOneLargeBlock N=820", _UP, 6701, 820),
    Case("books_in_many_blocks", "CreateOnManySmallBlocks N=820", _UP, 16260, 820),
    Case("concat", "Concat of two 33 B strings", _UP, 58),
    Case("npc_without_pool", "", _UP, None),
    Case("npc_in_list_pool", "", _UP, None),
    Case("npc_in_capped_pool", "", _DOWN, None),
)
"""All cases. In a list pool the NPC exists already, and only the list's element is allocated."""


class Cost(NamedTuple):
    """What one operation of a case takes, as `go test -benchmem` prints it, and its waste.

    Attributes:
        case: which.
        ns: elapsed time, with the frees and one call through a pointer; None: it was not timed.
        allocated_bytes: of the blocks, rounded up (B/op).
        allocs: how many (allocs/op).
        waste_bytes: of these bytes, not asked for (waste/op).
    """

    case: Case
    ns: float | None
    allocated_bytes: float
    allocs: float
    waste_bytes: float


def run_case(
    case: Case,
    *,
    table: SizeClassTable | str = "go",
    ops: SupportsIndex = 0,
    counted_ops: SupportsIndex = 100,
) -> Cost:
    """Runs a case on a fresh heap.

    Args:
        case: one of CASES, or with another number of books.
        table: size classes of the heap.
        ops: operations that are timed, in C; 0: none.
        counted_ops: operations of which bytes and allocations are counted, at least 1.

    Raises:
        InvalidError: an unknown case, or a number that is not within these limits.
        OutOfMemoryError: no memory.
    """
    if case.name not in C_NAMES:
        raise InvalidError(f"case {case.name!r}: must be one of {', '.join(C_NAMES)}")
    out = ffi.new("sw_lesson_cost *")
    numbers = [
        _lib.as_index(value, what, most)
        for value, what, most in (
            (case.books, "books", 1 << 24),
            (counted_ops, "counted_ops", 1 << 24),
            (ops, "ops", 1 << 40),
        )
    ]
    if numbers[1] == 0:
        raise InvalidError("counted_ops 0: one operation is counted at least")
    shares = case.name == "stack_shared_up"  # objects below 16 B share blocks, as in Go
    with Heap(table, tracked=False, tiny=shares) as heap, heap._handle as c_heap:
        lib.sw_clear_error()
        _lib.check(lib.sw_lesson_run(c_heap, C_NAMES.index(case.name), *numbers, out))
    counted, timed = int(out.counted_ops), int(out.ops)
    return Cost(
        case,
        int(out.ns) / timed if timed else None,
        int(out.allocated_bytes) / counted,
        int(out.allocs) / counted,
        (int(out.allocated_bytes) - int(out.requested_bytes)) / counted,
    )


def run_cases(
    cases: Iterable[Case] = CASES, *, table: SizeClassTable | str = "go", ops: SupportsIndex = 0
) -> tuple[Cost, ...]:
    """Runs cases one after the other; arguments and errors are those of `run_case`."""
    return tuple(run_case(case, table=table, ops=ops) for case in cases)


def sum_lengths(lengths: Sequence[SupportsIndex], element_bytes: SupportsIndex = 8) -> int:
    """The length of a merged array, as the first of two loops adds it up.

    Raises:
        LimitError: the sum, or its bytes, is larger than any object.
        InvalidError: a length is negative.
    """
    numbers = [_lib.as_index(length, "a length") for length in lengths]
    out = ffi.new("uint64_t *")
    each = _lib.as_index(element_bytes, "element_bytes")
    if lib.sw_lesson_sum_lengths(ffi.new("uint64_t[]", numbers), len(numbers), each, out) != 0:
        raise LimitError(f"{len(numbers)} lengths at {each} bytes each: more than any object has")
    return int(out[0])


# --- the table ------------------------------------------------------------------------------------

_HEADS = ("case", "ns", "Go", "article", "B/op", "article", "allocs", "article", "waste", "why")


def as_text(costs: Iterable[Cost]) -> str:
    """The costs as a table, beside Go's own times and the articles' figures.

    "Go" is Go 1.26.8 on another machine, "article" is as printed; "-": there is none.
    """
    printed = {(claim.case, claim.unit): claim.value for claim in claims()}
    rows = [_HEADS]
    for cost in costs:
        case = cost.case
        said = [_shown(printed.get((case.claim, unit))) for unit in ("ns/op", "B/op", "allocs/op")]
        own = [_shown(cost.ns), _shown(cost.allocated_bytes), _shown(cost.allocs)]
        name = f"{case.name} ({case.books})" if case.books else case.name
        why = f"{case.verdict.place}: {case.verdict.reason}"
        figures = (own[0], _shown(case.go_ns), said[0], own[1], said[1], own[2], said[2])
        rows.append((name, *figures, _shown(cost.waste_bytes), why))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if i in (0, len(_HEADS) - 1) else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _shown(value: float | None) -> str:
    """A figure: times of less than 100 with one digit behind the point, counts as they are."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.1f}"
