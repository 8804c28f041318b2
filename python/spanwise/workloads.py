# SPDX-License-Identifier: Apache-2.0
"""Synthetic workloads: controlled mixes of sizes and lifetimes, and an adversary.

Each function returns a `Recording` in memory; the same seed gives the same operations. Each
operation takes one microsecond of the recording's time.

A `Draw` gives sizes or lifetimes: 64 (always), [16, 32, 32] (each equally likely), {16: 3, 64: 1}
(number: weight) or a function, `lambda rng, count: rng.integers(16, 65, count)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise._lib import OPS_DTYPE, lib
from spanwise.recordings.recording import Recording
from spanwise.recordings.simulate import Simulation
from spanwise.recordings.sources import Batch
from spanwise.tables.table import SizeClassTable, as_table

__all__ = [
    "LARGER_MIX",
    "SMALL_MIX",
    "STEP_NS",
    "Draw",
    "draw",
    "phase_shift",
    "robson",
    "steady_replacement",
    "synthesize",
]


def __dir__() -> list[str]:
    return __all__


Draw = (
    int
    | Sequence[int]
    | NDArray[np.integer]
    | Mapping[int, float]
    | Callable[[np.random.Generator, int], NDArray[np.integer]]
)
"""A source of numbers: one number, a sample to draw from, {number: weight}, or a function of
a generator and a count that returns that many."""

STEP_NS = 1000
"""Time from one operation to the next, nanoseconds."""

SMALL_MIX: Mapping[int, float] = {16: 30, 24: 10, 32: 20, 48: 15, 64: 10, 120: 8, 256: 5, 1000: 2}
"""Sizes (bytes) and weights of a program with many small objects."""

LARGER_MIX: Mapping[int, float] = {40: 20, 72: 20, 200: 25, 520: 20, 2100: 10, 9000: 5}
"""Sizes and weights of the second phase of `phase_shift`."""


def draw(
    what: Draw, rng: np.random.Generator, count: int, name: str = "sizes"
) -> NDArray[np.int64]:
    """Draw `count` numbers, 0 or more.

    Raises:
        InvalidError: there is nothing to draw from, or a number or weight is negative.
        TypeError: `what` is not a `Draw`.
    """
    if isinstance(what, bool):
        raise TypeError(f"{name} must be numbers, not bool")
    if isinstance(what, int):
        drawn = np.full(count, what)
    elif callable(what):
        drawn = np.asarray(what(rng, count))
    elif isinstance(what, Mapping):
        weights = np.array(list(what.values()), float)
        if not len(weights) or (weights < 0).any() or not 0 < weights.sum() < np.inf:
            raise errors.InvalidError(f"{name}: weights must be 0 or more, and not all of them 0")
        drawn = rng.choice(np.array(list(what)), count, p=weights / weights.sum())
    else:
        sample = np.asarray(what)
        if sample.ndim != 1 or not len(sample):
            raise errors.InvalidError(f"{name}: give a list of at least one number")
        drawn = rng.choice(sample, count)
    if drawn.shape != (count,) or drawn.dtype.kind not in "iu":
        raise TypeError(f"{name} must be {count} integers, not {drawn.dtype} of {drawn.shape}")
    if count and drawn.min() < 0:
        raise errors.InvalidError(f"{name}: {drawn.min()} is negative; give 0 or more")
    return drawn.astype(np.int64)


class _Builder:
    """Collects operations; ids of dead objects are reused, last freed first."""

    def __init__(self) -> None:
        self._columns: list[tuple[int, int, int]] = []  # kind, object, size
        self._free_ids: list[int] = []
        self._next_id = 0

    def alloc(self, size: int) -> int:
        if self._free_ids:
            object_id = self._free_ids.pop()
        else:
            object_id = self._next_id
            self._next_id += 1
        self._columns.append((lib.SW_OP_ALLOC, object_id, size))
        return object_id

    def free(self, object_id: int) -> None:
        self._free_ids.append(object_id)
        self._columns.append((lib.SW_OP_FREE, object_id, 0))

    def ops(self, start: int = 0) -> NDArray[np.void]:
        """Return the operations from number `start` on."""
        columns = np.array(self._columns[start:], np.int64).reshape(-1, 3)
        rows = np.zeros(len(columns), OPS_DTYPE)
        rows["time_ns"] = np.arange(start, start + len(rows)) * STEP_NS
        rows["kind"], rows["object"], rows["size"] = columns.T
        return rows

    def __len__(self) -> int:
        return len(self._columns)


def synthesize(sizes: Draw, lifetimes: Draw, seed: int = 0, *, count: int = 100_000) -> Recording:
    """Make a workload of objects with random sizes and lifetimes.

    Args:
        sizes: bytes of each object.
        lifetimes: how many further allocations each object lives through; an object that would
            outlive the last allocation stays live.
        seed: of the generator.
        count: number of allocations.

    Raises:
        InvalidError: numbers are negative or missing.
    """
    count = _lib.as_index(count, "count", 1 << 30)
    rng = np.random.default_rng(seed)
    drawn = draw(sizes, rng, count)
    births = np.arange(count)
    deaths = births + 1 + draw(lifetimes, rng, count, "lifetimes")
    mortal = np.flatnonzero(deaths < count)
    # The deaths of time i precede allocation i, in the order of birth.
    order = mortal[np.argsort(deaths[mortal], kind="stable")]
    ends = np.searchsorted(deaths[order], births, side="right")
    builder = _Builder()
    ids: list[int] = []
    dead = 0
    for i, size in enumerate(drawn.tolist()):
        for victim in order[dead : ends[i]].tolist():
            builder.free(ids[victim])
        dead = int(ends[i])
        ids.append(builder.alloc(size))
    return Recording.from_ops(builder.ops(), name="synthesized")


def steady_replacement(
    live: int = 10_000, replacements: int = 100_000, sizes: Draw = SMALL_MIX, seed: int = 0
) -> Recording:
    """Make a workload that fills up, then repeatedly replaces a random object by a new one.

    Args:
        live: number of live objects.
        replacements: number of replacements.
        sizes: bytes of each object.
        seed: of the generator.
    """
    live = _lib.as_index(live, "live", 1 << 28)
    replacements = _lib.as_index(replacements, "replacements", 1 << 28)
    if live == 0:
        raise errors.InvalidError("live 0: there is nothing to replace; give at least 1")
    rng = np.random.default_rng(seed)
    drawn = draw(sizes, rng, live + replacements).tolist()
    builder = _Builder()
    ids = [builder.alloc(size) for size in drawn[:live]]
    victims = rng.integers(0, live, replacements).tolist()
    for victim, size in zip(victims, drawn[live:], strict=True):
        builder.free(ids[victim])
        ids[victim] = builder.alloc(size)
    return Recording.from_ops(builder.ops(), name="steady replacement")


def phase_shift(
    grow: int = 50_000,
    freed: float = 0.9,
    first: Draw = SMALL_MIX,
    second: Draw = LARGER_MIX,
    seed: int = 0,
) -> Recording:
    """Make a workload that grows one mix of sizes, frees most of it at random, grows another mix.

    The survivors of the first phase pin their spans, and the free slots in these fit the second mix
    badly. This is a classical cause of fragmentation. Nothing is freed after the second phase, so
    it compares tables and allocators, not placements (`HeapOptions.placement`): for these use
    `synthesize` with short and long lifetimes.

    Args:
        grow: number of objects per phase.
        freed: fraction of the first phase's objects that is freed, 0 to 1.
        first: sizes of the first phase, bytes.
        second: sizes of the second phase, bytes.
        seed: of the generator.
    """
    grow = _lib.as_index(grow, "grow", 1 << 28)
    if not 0 <= freed <= 1:
        raise errors.InvalidError(f"freed {freed}: give a fraction from 0 to 1")
    rng = np.random.default_rng(seed)
    builder = _Builder()
    ids = [builder.alloc(size) for size in draw(first, rng, grow).tolist()]
    for victim in rng.permutation(grow)[: round(grow * freed)].tolist():
        builder.free(ids[victim])
    for size in draw(second, rng, grow).tolist():
        builder.alloc(size)
    return Recording.from_ops(builder.ops(), name="phase shift")


def robson(
    live_bytes: int = 1 << 20,
    largest_bytes: int = 4096,
    table: SizeClassTable | str = "c16",
    smallest_bytes: int = 16,
) -> Recording:
    """Make the workload of Robson's adversary against the placement of a table.

    In round i the program allocates objects of `smallest_bytes` * 2^i bytes, as many as fit into
    `live_bytes` of live memory. Before each round it chooses an offset modulo the new size, and
    frees every object that does not cover an address with that offset; the choice keeps the most
    bytes. No allocator can serve it in `live_bytes`; Robson proves that about
    live_bytes * log2(largest_bytes / smallest_bytes) / 2 is needed. To know addresses it runs a dry
    heap of the table; under other tables the recording is not adversarial.

    Source: J. M. Robson, "Bounds for some functions concerning dynamic storage allocation", JACM
    21(3), 1974; "Worst case fragmentation of first fit and best fit storage allocation
    strategies", The Computer Journal 20(3), 1977. Changed: the unit is `smallest_bytes`, and
    objects live in the slots of size classes.

    Args:
        live_bytes: maximum of live bytes.
        largest_bytes: size of the last round.
        table: the table to play against, or its name.
        smallest_bytes: size of the first round; a power of two, like largest_bytes.

    Raises:
        InvalidError: sizes are not powers of two, or larger than live_bytes.
    """
    for name, value in (("smallest_bytes", smallest_bytes), ("largest_bytes", largest_bytes)):
        if value < 8 or value & (value - 1):
            raise errors.InvalidError(f"{name} {value}: must be a power of two, at least 8")
    if not smallest_bytes <= largest_bytes <= live_bytes <= 1 << 32:
        raise errors.InvalidError(
            f"smallest_bytes {smallest_bytes}, largest_bytes {largest_bytes}, live_bytes"
            f" {live_bytes}: must rise, to at most 4 GiB"
        )
    with Simulation(as_table(table)) as simulation:
        ops = _play_robson(simulation, live_bytes, largest_bytes, smallest_bytes)
        return Recording.from_ops(ops, name="robson")


def _play_robson(
    simulation: Simulation, live_bytes: int, largest: int, smallest: int
) -> NDArray[np.void]:
    builder = _Builder()
    ids = [builder.alloc(smallest) for _ in range(live_bytes // smallest)]
    sizes = [smallest] * len(ids)
    place = 0
    size = smallest
    while True:
        _catch_up(simulation, builder)
        if size == largest:
            return builder.ops()
        at = simulation.addresses(np.array(ids, np.uint32))
        room = np.array(sizes, np.uint64)
        # Two offsets modulo the new size extend the old one: keep the one that more bytes cover.
        keeps = [_occupies(at, room, place + half, 2 * size) for half in (0, size)]
        chosen = int(room[keeps[1]].sum() > room[keeps[0]].sum())
        place += chosen * size
        size *= 2
        for object_id in np.array(ids)[~keeps[chosen]].tolist():
            builder.free(object_id)
        ids = np.array(ids)[keeps[chosen]].tolist()
        sizes = room[keeps[chosen]].tolist()
        fresh = [builder.alloc(size) for _ in range((live_bytes - sum(sizes)) // size)]
        ids += fresh
        sizes += [size] * len(fresh)


def _occupies(
    at: NDArray[np.uint64], room: NDArray[np.uint64], place: int, modulus: int
) -> NDArray[np.bool_]:
    """Return whether an object covers an address congruent to `place` modulo `modulus`."""
    gap = (np.uint64(place) - at) % np.uint64(
        modulus
    )  # distance to the next such address; unsigned arithmetic may wrap
    return np.asarray(gap < room)


def _catch_up(simulation: Simulation, builder: _Builder) -> None:
    fresh = builder.ops(simulation.done)
    simulation.run(Batch(_lib.pointer(fresh, "sw_op *"), len(fresh)))
