# SPDX-License-Identifier: Apache-2.0
"""What a study of a field tells while it measures, by a clock that is made up."""

from __future__ import annotations

from studies.field_study import Counted


def test_runs_are_told_now_and_then() -> None:
    """By hand: every 9 s a run ends; at 27 s the third is done, at 54 s the sixth."""
    now, said = [100.0], list[str]()
    count = Counted(said.append, lambda: now[0])
    for _ in range(7):
        now[0] += 9
        count(1)
    assert said == ["3 runs in 27 s", "6 runs in 54 s"]
