# SPDX-License-Identifier: Apache-2.0
"""Local search over tables: a neighbour differs in one boundary, one class or one span.

First improvement (Aarts and Lenstra, "Local search in combinatorial optimization", 1997,
chapter 1), in blocks of a fixed size, so the result does not depend on the number of processors.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from spanwise.optimizer.profile import SizeProfile
from spanwise.optimizer.scores import MixedScores
from spanwise.optimizer.solver import SLOTS_MAX, SPAN_BYTES_MAX, Rules
from spanwise.tables.table import SizeClassTable

Spec: TypeAlias = tuple[int, int, int]
"""A class: bytes of a slot, pages of its longest span, pages of its first span."""

Specs: TypeAlias = tuple[Spec, ...]

BLOCK = 8
"""Number of neighbours simulated before the best of them is compared."""

_SPLITS = 3
"""The number of sizes tried to split the interval between two classes."""

_SEED = 22


def specs_of(table: SizeClassTable) -> Specs:
    """Return the classes of a table."""
    page = table.page_bytes
    columns = ("size_bytes", "span_bytes", "first_span_bytes")
    rows = zip(*(table.classes[name].tolist() for name in columns), strict=True)
    return tuple((size, span // page, first // page) for size, span, first in rows)


class Neighbourhood:
    """The tables that differ from a table in one boundary, one class or one span."""

    def __init__(self, profile: SizeProfile, rules: Rules) -> None:
        self.rules = rules
        requested = np.flatnonzero(profile.weights[: rules.largest_bytes + 1])
        step = np.where(requested <= 8, 8, rules.align)
        rounded = np.maximum(-(-requested // step) * step, 8)
        sizes, index = np.unique(rounded, return_inverse=True)
        self.sizes: list[int] = sizes.tolist()
        self._sizes = sizes
        self._weights = np.bincount(index, profile.weights[requested], len(sizes))

    def of(self, specs: Specs, order: random.Random) -> Iterator[Specs]:
        """Yield all allowed neighbours: those of one change, then of two, each in random order."""
        seen = {specs}
        for kind in (self._changes, self._exchanges):
            found = [*kind(specs)]
            order.shuffle(found)
            for one in found:
                if one not in seen and self.allows(one):
                    seen.add(one)
                    yield one

    def allows(self, specs: Specs) -> bool:
        """Return whether the rules allow the number and the distances of the classes."""
        below = (0, *(size for size, _, _ in specs))
        return 1 <= len(specs) <= self.rules.classes and all(
            self.rules.may_follow(low, size)
            for low, (size, _, _) in zip(below, specs, strict=False)
        )

    # --- kinds of neighbours ---

    def _changes(self, specs: Specs) -> Iterator[Specs]:
        for kind in (self._spans, self._drops, self._moves, self._adds):
            yield from kind(specs)

    def _spans(self, specs: Specs) -> Iterator[Specs]:
        """Change the length or the growth of one span."""
        for i, (size, pages, first) in enumerate(specs):
            lengths = {pages - 1, pages + 1, pages // 2, 2 * pages}
            options = [(longest, longest) for longest in sorted(lengths)]
            options += [(pages, pages), (pages, first // 2), (2 * pages, first), (pages, 2 * first)]
            for longest, shortest in options:
                if self._fits(size, longest, shortest):
                    yield (*specs[:i], (size, longest, shortest), *specs[i + 1 :])

    def _fits(self, size: int, longest: int, shortest: int) -> bool:
        """Return whether a class may have spans of these lengths, at most 8 times `rules.pages`."""
        page = self.rules.page_bytes
        most = min(SPAN_BYTES_MAX, SLOTS_MAX * size, 8 * self.rules.pages * page)
        power = shortest > 0 and longest % shortest == 0
        power = power and (longest // shortest).bit_count() == 1
        return power and size <= shortest * page and longest * page <= most

    def _drops(self, specs: Specs) -> Iterator[Specs]:
        for i in range(len(specs) - 1):
            yield (*specs[:i], *specs[i + 1 :])

    def _moves(self, specs: Specs) -> Iterator[Specs]:
        """Move one boundary to the next smaller or larger size, or as far as its span allows."""
        for i in range(len(specs) - 1):
            size = specs[i][0]
            place = int(np.searchsorted(self._sizes, size))
            below = self.sizes[max(place - 1, 0)]
            above = self.sizes[min(place + (below < size), len(self.sizes) - 1)]
            span = specs[i][1] * self.rules.page_bytes
            grown = span // (span // size) // self.rules.align * self.rules.align
            exact = self.sizes[min(place, len(self.sizes) - 1)]
            for other in (below, above, grown, exact):
                yield from self._with_size(specs, i, other)

    def _with_size(self, specs: Specs, i: int, size: int) -> Iterator[Specs]:
        low = specs[i - 1][0] if i else 0
        _, pages, first = specs[i]
        fits = self._fits(size, pages, first)
        if low < size < specs[i + 1][0]:
            spec = (size, pages, first) if fits else self._spec(size)
            yield (*specs[:i], spec, *specs[i + 1 :])

    def _spec(self, size: int) -> Spec:
        """Return a class with the shortest span that holds a slot."""
        pages = -(-size // self.rules.page_bytes)
        return (size, pages, pages)

    def _adds(self, specs: Specs) -> Iterator[Specs]:
        """Add a class where it saves most round-up, with the span of the class above or its own."""
        low = 0
        for i, (size, pages, first) in enumerate(specs):
            for split in self._splits(low, size):
                options = {(split, pages, first), self._spec(split)}
                for spec in sorted(options):
                    if self._fits(*spec):
                        yield (*specs[:i], spec, *specs[i:])
            low = size

    def _splits(self, low: int, high: int) -> list[int]:
        """Return the sizes between two classes where a class saves most round-up."""
        begin = int(np.searchsorted(self._sizes, low, "right"))
        end = int(np.searchsorted(self._sizes, high))
        sizes = self._sizes[begin:end]
        if len(sizes) == 0:
            return []
        gains = np.cumsum(self._weights[begin:end]) * (high - sizes)
        best = np.argsort(-gains, kind="stable")[:_SPLITS]
        return [int(sizes[i]) for i in best]

    def _exchanges(self, specs: Specs) -> Iterator[Specs]:
        """Drop one class and split another interval."""
        for dropped in self._drops(specs):
            yield from self._adds(dropped)


class Found(NamedTuple):
    """The best table of a search, its score, and whether Ctrl-C ended the search early."""

    table: SizeClassTable
    score: float
    stopped: bool


def search(
    starts: Sequence[SizeClassTable],
    near: Neighbourhood,
    scores: MixedScores,
    candidates: int,
    make: Callable[[Specs], SizeClassTable],
) -> Found:
    """Improve each start, best first, until no neighbour is better or the budget is spent."""
    best, stopped = starts[0], False
    try:
        by_score = sorted(zip(scores.of(starts), range(len(starts)), strict=True))
        best = starts[by_score[0][1]]
        for _, number in by_score:
            here: SizeClassTable | None = starts[number]
            while here is not None:
                best = here if scores(here) < scores(best) else best
                here = _first_better(here, near, scores, candidates, make)
    except KeyboardInterrupt:
        stopped = True
    return Found(best, scores(best), stopped)


def _first_better(
    table: SizeClassTable,
    near: Neighbourhood,
    scores: MixedScores,
    candidates: int,
    make: Callable[[Specs], SizeClassTable],
) -> SizeClassTable | None:
    """Return the best of the first block of neighbours with an improvement, or None."""
    neighbours = near.of(specs_of(table), random.Random(_SEED + len(scores)))
    score = scores(table)
    while (room := candidates - len(scores)) > 0:
        block = [make(specs) for specs in itertools.islice(neighbours, min(BLOCK, room))]
        if not block:
            return None
        found = scores.within(block, score)
        if min(found) < score:
            return block[found.index(min(found))]
    return None
