# SPDX-License-Identifier: Apache-2.0
"""Cases of articles about Go, in C: single operations, a game, and many small values.

The C code is in examples/lessons. This module lists the cases, explains why each value is on the
stack or on the heap, and prints our figures next to those of the articles and of Go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import ffi, lib
from spanwise.errors import InvalidError, LimitError
from spanwise.gc.events import EVENT_KINDS
from spanwise.heap.heap import Heap
from spanwise.lessons.articles import claims
from spanwise.tables.table import SizeClassTable, as_table


class Verdict(NamedTuple):
    """Where Go allocates a value, as `go build -gcflags=-m` reports it.

    Attributes:
        reason: how the value leaves its function, "copied", "shared down" (to a callee) or "shared
            up" (to the caller); or "too large": above 128 KiB, as Go 1.26.8 moves variables.
    """

    place: str  # "stack" or "heap"
    reason: str


class Case(NamedTuple):
    """One case of the articles.

    Attributes:
        go_ns: time in Go 1.26.8 on one core of x86-64, without a collection; None: unknown.
    """

    name: str  # our name
    claim: str  # its name in the articles; "": not in the articles
    verdict: Verdict  # where its values are, and why
    go_ns: float | None
    books: int = 0  # number of books that it creates


_UP = Verdict("heap", "shared up")
_DOWN = Verdict("stack", "shared down")
_COPIED = Verdict("stack", "copied")

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

C_NAMES = tuple(dict.fromkeys(case.name for case in CASES))
"""The C functions, in the order of SW_LESSON_CASES."""


class Cost(NamedTuple):
    """The cost of one operation of a case, as `go test -benchmem` prints it, and its waste."""

    case: Case  # the case
    ns: float | None  # elapsed time, including the frees and one indirect call; None: not timed
    allocated_bytes: float  # bytes of the blocks, rounded up (B/op)
    allocs: float  # number of blocks (allocs/op)
    waste_bytes: float  # the part of these bytes that is round-up (waste/op)


def run_case(
    case: Case,
    *,
    table: SizeClassTable | str = "go",
    ops: SupportsIndex = 0,
    counted_ops: SupportsIndex = 100,
) -> Cost:
    """Run a case on a fresh heap.

    Args:
        case: one of CASES, possibly with another number of books.
        table: size classes of the heap.
        ops: operations to time, in C; 0: none.
        counted_ops: operations to count bytes and allocations of, at least 1.

    Raises:
        InvalidError: the case is unknown, or a number is not within these limits.
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
        raise InvalidError("counted_ops 0: count at least one operation")
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
    """Run cases one after the other; arguments and errors are as in `run_case`."""
    return tuple(run_case(case, table=table, ops=ops) for case in cases)


def sum_lengths(lengths: Sequence[SupportsIndex], element_bytes: SupportsIndex = 8) -> int:
    """Return the length of a merged array, as the first of two loops computes it."""
    numbers = [_lib.as_index(length, "a length") for length in lengths]
    out = ffi.new("uint64_t *")
    each = _lib.as_index(element_bytes, "element_bytes")
    if lib.sw_lesson_sum_lengths(ffi.new("uint64_t[]", numbers), len(numbers), each, out) != 0:
        raise LimitError(f"{len(numbers)} lengths at {each} bytes each: longer than any object")
    return int(out[0])


# --- the table ------------------------------------------------------------------------------------

_HEADS = ("case", "ns", "Go", "article", "B/op", "article", "allocs", "article", "waste", "why")


def as_text(costs: Iterable[Cost]) -> str:
    """Format the costs as a table next to Go's times and the articles' figures.

    "Go" is Go 1.26.8 on another machine, "article" is the printed figure, "-" means none.
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
    """Format a figure: counts as integers, times below 100 with one decimal."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.1f}"


# --- the game -------------------------------------------------------------------------------------

GAME_POLICIES = ("none", "list", "capped", "aged")
"""What happens to NPCs that leave: they become garbage; go to a linked list under a lock, with an
element of 40 bytes each; go to a free list threaded through the NPCs, up to a capacity; or go to
one of two such lists, and each collection drops the older list. In the order of
sw_lesson_policy."""

LIFE_FRAMES_MAX = 256


class Game(NamedTuple):
    """The result of a game."""

    policy: str  # one of GAME_POLICIES
    frame_ns: NDArray[np.uint64]  # elapsed time of each frame, shape (frames,)
    collections: int  # cycles of the collector
    spawned: int  # number of NPCs
    allocs: int  # number of allocated objects
    allocated_bytes: int  # bytes of their blocks
    held_bytes: int  # committed bytes of the heap at the end
    idle: int  # NPCs in the pool at the end
    checksum: int  # checksum of the NPCs' actions, the same for every policy

    def frame_us(self, percent: float) -> float:
        """Return a percentile of the frame times in microseconds; 100: the longest frame."""
        return float(np.percentile(self.frame_ns, percent)) / 1000


def play_game(
    policy: str,
    *,
    frames: SupportsIndex = 600,
    spawned: SupportsIndex = 500,
    wave: SupportsIndex = 5000,
    wave_frames: SupportsIndex = 60,
    life_frames: SupportsIndex = 30,
    capacity: SupportsIndex = 20_000,
    percent: SupportsIndex = 100,
    in_steps: bool = False,
    seed: SupportsIndex = 1,
    table: SizeClassTable | str = "go",
) -> Game:
    """Play a game.

    Args:
        policy: one of GAME_POLICIES.
        frames: number of frames, at least 1.
        spawned: new NPCs per frame.
        wave: new NPCs in every `wave_frames`-th frame instead.
        wave_frames: frames between two waves; 0: no waves.
        life_frames: the longest life of an NPC in frames, 1 to 256.
        capacity: idle NPCs of the policy "capped".
        percent: growth of the heap between collections, as GOGC; 0: no collections.
        in_steps: collections run in steps between the frames' work.
        seed: of the random numbers.
        table: size classes of the heap.

    Raises:
        InvalidError: the policy is unknown, or a number is not within these limits.
        OutOfMemoryError: no memory.
    """
    if policy not in GAME_POLICIES:
        raise InvalidError(f"policy {policy!r}: must be one of {', '.join(GAME_POLICIES)}")
    game, made = ffi.new("sw_lesson_game *"), as_table(table)
    most = (1 << 32) - 1
    game.table = made._c
    game.policy = GAME_POLICIES.index(policy)
    game.frames = _lib.as_index(frames, "frames", 1 << 24)
    game.spawned = _lib.as_index(spawned, "spawned", 1 << 24)
    game.wave = _lib.as_index(wave, "wave", 1 << 24)
    game.wave_frames = _lib.as_index(wave_frames, "wave_frames", most)
    game.life_frames = _lib.as_index(life_frames, "life_frames", LIFE_FRAMES_MAX)
    game.capacity = _lib.as_index(capacity, "capacity", most)
    game.percent = _lib.as_index(percent, "percent", most)
    game.in_steps = int(in_steps)
    game.seed = _lib.as_index(seed, "seed", most)
    if game.frames == 0 or game.life_frames == 0:
        raise InvalidError("frames and life_frames: at least 1 each")
    frame_ns = np.zeros(game.frames, np.uint64)
    score = ffi.new("sw_lesson_score *")
    lib.sw_clear_error()
    _lib.check(lib.sw_lesson_play(game, _lib.pointer(frame_ns, "uint64_t *"), score))
    return Game(policy, frame_ns, **_lib.struct_dict(score))


# --- many values ----------------------------------------------------------------------------------

MADE = ("copies", "structs", "objects")
"""Structs of 80 bytes that a function returns by value; the same as objects of a collected heap;
objects with a chosen size and pointers. In the order of sw_lesson_made."""


class Creation(NamedTuple):
    """The cost of creating the values."""

    made: str  # one of MADE
    values: int  # number of values
    ns: int  # elapsed time for all values
    collections: int  # cycles that began
    events: dict[str, int]  # number of events by kind, as in `CollectorEvents`
    event_ns: dict[str, int]  # total duration of these events by kind

    @property
    def ns_each(self) -> float:
        """Nanoseconds per value."""
        return self.ns / self.values

    @property
    def collector_share(self) -> float:
        """The share of the time that the collector spent marking or sweeping, 0 to 1."""
        return (self.event_ns["mark"] + self.event_ns["sweep"]) / max(self.ns, 1)


def create_many(
    made: str,
    count: SupportsIndex,
    *,
    size: SupportsIndex = 80,
    pointers: Iterable[SupportsIndex] = (),
    percent: SupportsIndex = 100,
    in_steps: bool = False,
    table: SizeClassTable | str = "go",
) -> Creation:
    """Create values one after the other; each object becomes garbage when the next one is created.

    Args:
        made: one of MADE.
        count: number of values, at least 1.
        size: size of "objects" in bytes, a multiple of 8, at least 8.
        pointers: indices of the words of "objects" that are pointers, below 64.
        percent: growth of the heap between collections, as GOGC; 0: no collections.
        in_steps: collections run in steps.
        table: size classes of the heap.

    Raises:
        InvalidError: a number is not within these limits, or a pointer is outside the object.
        OutOfMemoryError: no memory.
    """
    if made not in MADE:
        raise InvalidError(f"made {made!r}: must be one of {', '.join(MADE)}")
    words = [_lib.as_index(word, "pointer word", 63) for word in pointers]
    making, chosen = ffi.new("sw_lesson_making *"), as_table(table)
    making.table = chosen._c
    making.made = MADE.index(made)
    making.count = _lib.as_index(count, "count", 1 << 40)
    making.bytes = _lib.as_index(size, "size", 1 << 31)
    making.pointers = sum(1 << word for word in set(words))
    making.percent = _lib.as_index(percent, "percent", (1 << 32) - 1)
    making.in_steps = int(in_steps)
    if making.count == 0 or making.bytes < 8 or making.bytes % 8:
        raise InvalidError("count: at least 1; size: a multiple of 8, from 8 on")
    out = ffi.new("sw_lesson_creation *")
    lib.sw_clear_error()
    _lib.check(lib.sw_lesson_create(making, out))
    kinds = range(len(EVENT_KINDS))
    return Creation(
        made,
        int(making.count),
        int(out.ns),
        int(out.collections),
        {EVENT_KINDS[i]: int(out.events[i]) for i in kinds},
        {EVENT_KINDS[i]: int(out.event_ns[i]) for i in kinds},
    )
