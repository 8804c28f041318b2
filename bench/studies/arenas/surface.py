# SPDX-License-Identifier: Apache-2.0
"""What was measured at each point of the matrix, and what it says of the article's rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runner.stats import median

from studies.arenas.program import STRATEGIES

SIZE_BYTES, LIFE_NS = 128, 1e6
"""The article's rule: an arena pays for objects of at most 128 B that live less than 1 ms."""

LEVEL = 0.05
"""Costs that differ by less than this share are level."""


@dataclass(frozen=True)
class Cell:
    """A point of the matrix.

    Attributes:
        size_bytes: of an object.
        live: tasks that live at once in each thread.
        threads: that work at once.
        cost_ns: processor ns of an object, by strategy.
        life_ns: that an object lived, by strategy.
    """

    size_bytes: int
    live: int
    threads: int
    cost_ns: Mapping[str, float]
    life_ns: Mapping[str, float]

    @property
    def cheapest(self) -> str:
        """The strategy of the least cost."""
        return min(STRATEGIES, key=lambda name: self.cost_ns[name])

    @property
    def over_heap(self) -> float:
        """What an object of an arena costs over one of the heap."""
        return self.cost_ns["arena"] / self.cost_ns["heap"]

    @property
    def is_in_rule(self) -> bool:
        """Whether an arena pays here by the rule, given the objects' lifetime in the heap."""
        return self.size_bytes <= SIZE_BYTES and self.life_ns["heap"] < LIFE_NS

    @property
    def has_arena_won(self) -> bool | None:
        """Whether an arena costs less than the heap; None: they are level."""
        if abs(self.over_heap - 1) < LEVEL:
            return None
        return self.over_heap < 1


def cell_of(
    size_bytes: int, live: int, threads: int, rounds: Iterable[Iterable[list[str]]]
) -> Cell:
    """A cell of what the program printed in each round: medians."""
    cost: dict[str, list[float]] = {}
    life: dict[str, list[float]] = {}
    for lines in rounds:
        for name, cost_ns, life_ns in lines:
            cost.setdefault(name, []).append(float(cost_ns))
            life.setdefault(name, []).append(float(life_ns))
    costs = {name: median(values) for name, values in cost.items()}
    return Cell(
        size_bytes, live, threads, costs, {name: median(values) for name, values in life.items()}
    )


def verdict(cells: Iterable[Cell]) -> str:
    """How often an arena won where the rule says so, and elsewhere, as a sentence."""
    counts = {True: [0, 0, 0], False: [0, 0, 0]}
    for cell in cells:
        won = cell.has_arena_won
        counts[cell.is_in_rule][2 if won is None else int(not won)] += 1
    inside, outside = counts[True], counts[False]
    text = (
        f"Where the rule (at most {SIZE_BYTES} B, less than 1 ms) says so, an arena of a task costs"
        f" less than the heap at {inside[0]} of {sum(inside)} points, more at {inside[1]},"
        f" and is level at {inside[2]}; elsewhere it costs less at {outside[0]} of {sum(outside)},"
        f" more at {outside[1]}, and is level at {outside[2]}."
    )
    right, wrong = inside[0] + outside[1], inside[1] + outside[0]
    if right + wrong == 0:
        return f"{text} The rule is neither supported nor refuted."
    said = "supports" if right > 2 * wrong else "refutes" if wrong >= right else "hardly supports"
    return f"{text} That {said} the rule: {right} points for it, {wrong} against it."
