# SPDX-License-Identifier: Apache-2.0
"""What a table is fitted to and under which rules; the tables that are best by arithmetic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from spanwise.optimizer.profile import SizeProfile, joint_profile
from spanwise.optimizer.solver import NO_BOUND, Rules, Solver, spread_weights
from spanwise.recordings.recording import Recording
from spanwise.tables.table import SizeClassTable, rebuild

RESIDENT, HELD = "resident", "held"
"""The objectives that are judged by simulation. "resident": the fewest resident bytes at their own
peak; "held": the fewest held bytes at the peak of requested bytes."""

SIMULATED = (RESIDENT, HELD)

FRONTIER_COUNTS = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
FRONTIER_SCALES = (1, 2, 4)
_CHARGE_STEPS = 10


class Fit:
    """What a table is fitted to, and under which rules."""

    def __init__(
        self,
        recordings: list[Recording],
        objective: str,
        profile: SizeProfile,
        rules: Rules,
        count: int,
    ) -> None:
        self.recordings = recordings
        self.objective = objective
        self.kind = kind_of(objective)
        self.profile = profile
        self.rules = rules
        self._span_weight = profile.seconds if self.kind == "time" else float(count)

    def solver(self, **changed: Any) -> Solver:
        """The best tables under the rules, some of them changed."""
        rules = dataclasses.replace(self.rules, **changed)
        return Solver(self.profile, rules, self._span_weight)

    def of(self, recordings: list[Recording]) -> Fit:
        """The same rules for other recordings, which have no weights."""
        profile = joint_profile(recordings, self.kind, None)
        return Fit(recordings, self.objective, profile, self.rules, len(recordings))

    def unseen(self) -> SizeProfile:
        """Requests of every size that a class may serve, as many bytes as were requested."""
        weights = spread_weights(self.profile, self.rules.largest_bytes)
        return dataclasses.replace(self.profile.up_to(0), weights=weights)

    def source(self) -> str:
        """For table files: where the table comes from."""
        names = ", ".join(one.name for one in self.recordings)
        return f"spanwise optimize, objective {self.objective}, of {names}"

    def tables(
        self, counts: Iterable[int], scales: Sequence[int]
    ) -> dict[tuple[int, int], SizeClassTable]:
        """The best tables by number of classes and length of spans, without a bound on waste.

        Beyond some number of classes a further one saves less than the charge for its spans. The
        frontier is to show that waste rises there, so the charge is lowered until the table has
        that many classes.
        """
        wanted = sorted(set(counts))
        charges = [*(self.rules.partial / 4**step for step in range(_CHARGE_STEPS)), 0.0]
        solvers: list[Solver] = []

        def table(count: int, scale: int) -> SizeClassTable:
            name = f"best-{count}-{self.objective}"
            for step, charge in enumerate(charges):
                if step == len(solvers):
                    changed = {"classes": wanted[-1], "partial": charge}
                    solvers.append(self.solver(**changed, waste_percent=NO_BOUND))
                found = solvers[step].table(count, name, self.source(), scale)
                if len(found) == count:
                    break
            return found

        return {(count, scale): table(count, scale) for scale in scales for count in wanted}

    def proposals(self, name: str | None) -> list[SizeClassTable]:
        """The tables that arithmetic proposes; all are called by the same name."""
        most = self.rules.classes
        solver = self.solver()
        called = self.called(name)
        if self.objective not in SIMULATED:
            return [solver.table(most, called, self.source())]
        found: dict[int, SizeClassTable] = {}
        for scale in FRONTIER_SCALES:
            for count in held_counts(most):
                if count < solver.fewest:
                    continue
                table = solver.table(count, called, self.source(), scale)
                found.setdefault(table.hash, table)
        return list(found.values())

    def called(self, name: str | None) -> str:
        """What the proposed table is called."""
        return name or f"best-{self.rules.classes}-{self.objective}"

    def make(self, name: str, specs: Sequence[tuple[int, int, int]]) -> SizeClassTable:
        """The table of given classes, which says what it was fitted to."""
        page = self.rules.page_bytes
        return rebuild(specs, name, page, self.source(), self.rules.to_dict())


def kind_of(objective: str) -> str:
    """What a size weighs in the arithmetic of an objective."""
    return "peak" if objective in SIMULATED else objective


def held_counts(most: int) -> list[int]:
    """The numbers of classes of which the simulated objectives try a table."""
    return [count for count in FRONTIER_COUNTS if count < most] + [most]
