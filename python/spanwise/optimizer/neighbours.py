# SPDX-License-Identifier: Apache-2.0
"""The neighbours of a table, and a search among them: a boundary or a span is changed at a time.

Local search by first improvement (Aarts and Lenstra, "Local search in combinatorial optimization",
1997, chapter 1), in blocks of a fixed number of tables, so that the number of processors changes
no result.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from spanwise.optimizer.profile import SizeProfile
from spanwise.optimizer.scores import MixedScores
from spanwise.optimizer.solver import SLOTS_MAX, SPAN_BYTES_MAX, Rules, may_follow
from spanwise.tables.table import SizeClassTable

Spec: TypeAlias = tuple[int, int, int]
"""A class: bytes of a slot, pages of its longest span, pages of its first span."""

Specs: TypeAlias = tuple[Spec, ...]

BLOCK = 8
"""Neighbours that are simulated before the best of them is looked at."""

_SPLITS = 3
"""Sizes at which an interval between two classes is tried to be split."""

_SEED = 22


def specs_of(table: SizeClassTable) -> Specs:
    """The classes of a table."""
    page = table.page_bytes
    columns = ("size_bytes", "span_bytes", "first_span_bytes")
    rows = zip(*(table.classes[name].tolist() for name in columns), strict=True)
    return tuple((size, span // page, first // page) for size, span, first in rows)


class Neighbourhood:
    """The tables that differ from a table in one boundary, one class or one span.

    Args:
        profile: how much each requested size weighs; a boundary lies at a size that is asked for.
        rules: the most classes, their alignment, the pages of a span.
    """

    def __init__(self, profile: SizeProfile, rules: Rules) -> None:
        self.rules = rules
        asked = np.flatnonzero(profile.weights[: rules.largest_bytes + 1])
        step = np.where(asked <= 8, 8, rules.align)
        sizes, index = np.unique(np.maximum(-(-asked // step) * step, 8), return_inverse=True)
        self.sizes: list[int] = sizes.tolist()
        self._sizes = sizes
        self._weights = np.bincount(index, profile.weights[asked], len(sizes))

    def of(self, specs: Specs, order: random.Random) -> Iterator[Specs]:
        """All neighbours that the rules allow, those of two changes last; else in random order.

        There are thousands of two changes; they are made when those of one are used up.
        """
        seen = {specs}
        for kind in (self._changes, self._exchanges):
            found = [*kind(specs)]
            order.shuffle(found)
            for one in found:
                if one not in seen and self.allows(one):
                    seen.add(one)
                    yield one

    def allows(self, specs: Specs) -> bool:
        """Whether the rules allow the classes: so many, and so far apart."""
        below = (0, *(size for size, _, _ in specs))
        return 1 <= len(specs) <= self.rules.classes and all(
            may_follow(self.rules, low, size)
            for low, (size, _, _) in zip(below, specs, strict=False)
        )

    # --- kinds of neighbours ---

    def _changes(self, specs: Specs) -> Iterator[Specs]:
        """One change."""
        for kind in (self._spans, self._drops, self._moves, self._adds):
            yield from kind(specs)

    def _spans(self, specs: Specs) -> Iterator[Specs]:
        """One span is longer or shorter, or grows to its length."""
        for i, (size, pages, first) in enumerate(specs):
            lengths = {pages - 1, pages + 1, pages // 2, 2 * pages}
            options = [(longest, longest) for longest in sorted(lengths)]
            options += [(pages, pages), (pages, first // 2), (2 * pages, first), (pages, 2 * first)]
            for longest, shortest in options:
                if self._fits(size, longest, shortest):
                    yield (*specs[:i], (size, longest, shortest), *specs[i + 1 :])

    def _fits(self, size: int, longest: int, shortest: int) -> bool:
        """Whether a class may have spans of these lengths: at most 8 times `pages` of the rules."""
        page = self.rules.page_bytes
        most = min(SPAN_BYTES_MAX, SLOTS_MAX * size, 8 * self.rules.pages * page)
        power = shortest > 0 and longest % shortest == 0
        power = power and (longest // shortest).bit_count() == 1
        return power and size <= shortest * page and longest * page <= most

    def _drops(self, specs: Specs) -> Iterator[Specs]:
        """One class is left out, but for the largest."""
        for i in range(len(specs) - 1):
            yield (*specs[:i], *specs[i + 1 :])

    def _moves(self, specs: Specs) -> Iterator[Specs]:
        """One boundary moves to the next smaller or larger size, or to the most its span allows."""
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
        """A class of the shortest span that can hold a slot."""
        pages = -(-size // self.rules.page_bytes)
        return (size, pages, pages)

    def _adds(self, specs: Specs) -> Iterator[Specs]:
        """One class more, where it would save most round-up, with the span of the class above."""
        low = 0
        for i, (size, pages, first) in enumerate(specs):
            for split in self._splits(low, size):
                options = {(split, pages, first), self._spec(split)}
                for spec in sorted(options):
                    if self._fits(*spec):
                        yield (*specs[:i], spec, *specs[i:])
            low = size

    def _splits(self, low: int, high: int) -> list[int]:
        """The sizes between two classes at which a class would save most round-up."""
        begin = int(np.searchsorted(self._sizes, low, "right"))
        end = int(np.searchsorted(self._sizes, high))
        sizes = self._sizes[begin:end]
        if len(sizes) == 0:
            return []
        gains = np.cumsum(self._weights[begin:end]) * (high - sizes)
        best = np.argsort(-gains, kind="stable")[:_SPLITS]
        return [int(sizes[i]) for i in best]

    def _exchanges(self, specs: Specs) -> Iterator[Specs]:
        """One class is left out, and another interval is split."""
        for dropped in self._drops(specs):
            yield from self._adds(dropped)


class Found(NamedTuple):
    """What a search found.

    Attributes:
        table: the best table.
        score: of it: peak resident bytes, and its part for unseen sizes.
        stopped: whether Ctrl-C ended the search early.
    """

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
    """The best of some tables, and of what lies near them.

    From the best start the search goes to better neighbours until there is none; then from the next
    one, as long as tables may be simulated.

    Args:
        starts: tables to begin with, at least one.
        near: gives the neighbours.
        scores: what a table is judged by; of equal ones the first that was found stays.
        candidates: tables that are simulated at most, the starts counted.
        make: the table of classes.
    """
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
    """The best of the first block of neighbours that has a better one; None: there is none."""
    neighbours = near.of(specs_of(table), random.Random(_SEED + len(scores)))
    known = scores(table)
    while (room := candidates - len(scores)) > 0:
        block = [make(specs) for specs in itertools.islice(neighbours, min(BLOCK, room))]
        if not block:
            return None
        found = scores.within(block, known)
        if min(found) < known:
            return block[found.index(min(found))]
    return None


__all__ = ["Found", "Neighbourhood", "Spec", "Specs", "search", "specs_of"]
