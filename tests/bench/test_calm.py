# SPDX-License-Identifier: Apache-2.0
"""--calm: which runs count, on which processors, when it gives up; the speed is scripted."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runner import calm, journal
from runner.calm import Calm
from runner.contenders import Contender
from runner.runs import Job, Result
from scoreboard import cli

from tests.bench.tools import INLINE

CPUS = sorted(os.sched_getaffinity(0))
PAIR = Job("pair/16", INLINE)
GO = Job("seed/Alloc16", Contender("go", "go", Path("go"), "go"))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "_PAUSE_S", 0.0)


def numbered() -> tuple[Callable[[Job, float], Result], list[set[int]]]:
    """Runs whose result is their number, and the processors that each had."""
    number = itertools.count(1)
    had: list[set[int]] = []

    def execute(job: Job, min_time_s: float) -> Result:
        had.append(os.sched_getaffinity(0))
        return Result({"op": float(next(number))}, 1)

    return execute, had


def scripted(speeds: dict[int, list[float]]) -> Callable[[int], float]:
    """What each processor's computations take, one after the other; the last one for ever."""
    left: dict[int, Iterator[float]] = {
        cpu: itertools.chain(taken, itertools.repeat(taken[-1])) for cpu, taken in speeds.items()
    }
    return lambda cpu: next(left[cpu])


def test_a_run_between_two_quick_computations_counts() -> None:
    execute, _ = numbered()
    runs = Calm([0], scripted({0: [1.0, 1.05]}), execute)
    assert runs.run(PAIR, 0.05).values["op"] == 1
    assert runs.as_json() == {
        "tolerance": 1.1,
        "shortest_s": 1.0,
        "runs": 1,
        "again": 0,
        "busy": 0,
    }
    assert calm.describe(runs.as_json()) == (
        "calm: 1 of 1 runs within 10% of the machine's best speed; 0 were done again"
    )


def test_a_run_that_was_slowed_down_is_done_again() -> None:
    execute, _ = numbered()
    runs = Calm([0], scripted({0: [1.0, 1.5, 1.0, 1.2, 1.0, 1.0]}), execute)
    assert runs.run(PAIR, 0.05).values["op"] == 3
    assert (runs.again, runs.busy) == (2, 0)


def test_it_waits_until_the_machine_is_calm() -> None:
    execute, _ = numbered()
    runs = Calm([0], scripted({0: [1.0, 1.6, 1.7, 1.8, 1.0]}), execute)
    runs.calibrate(0.0)
    assert runs.run(PAIR, 0.05).values["op"] == 1
    assert runs.again == 0


def test_the_calmest_run_counts_where_none_is_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "ATTEMPTS", 3)
    execute, _ = numbered()
    runs = Calm([0], scripted({0: [1.0, 1.5, 1.0, 1.2, 1.0, 1.3]}), execute)
    assert runs.run(PAIR, 0.05).values["op"] == 2
    assert (runs.again, runs.busy) == (2, 1)


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "PATIENCE_S", 0.0)
    execute, _ = numbered()
    runs = Calm([0], scripted({0: [1.0, 2.0]}), execute)
    runs.calibrate(0.0)
    assert runs.run(PAIR, 0.05).values["op"] == 1
    assert runs.busy == 1


def test_a_failure_is_not_repeated() -> None:
    failed = Result({}, 0, "ended with status 1")
    runs = Calm([0], scripted({0: [1.0, 2.0]}), lambda *_: failed)
    assert runs.run(PAIR, 0.05) is failed
    assert runs.again == 0


@pytest.mark.skipif(len(CPUS) < 2, reason="one processor")
def test_the_calmer_processor_gets_the_run() -> None:
    execute, had = numbered()
    runs = Calm(CPUS[:2], scripted({CPUS[0]: [1.4], CPUS[1]: [1.0]}), execute)
    runs.calibrate(0.0)
    runs.run(PAIR, 0.05)
    assert had == [{CPUS[1]}]
    assert os.sched_getaffinity(0) == set(CPUS)


@pytest.mark.skipif(len(CPUS) < 2, reason="one processor")
@pytest.mark.parametrize("job", [GO, Job("cross_free/64", INLINE), Job("scaling_pair/8", INLINE)])
def test_threads_need_all_processors_calm(job: Job) -> None:
    execute, had = numbered()
    two = CPUS[:2]
    runs = Calm(two, scripted({two[0]: [1.0], two[1]: [1.5, 1.0, 1.5, 1.0]}), execute)
    runs.calibrate(0.0)
    assert runs.run(job, 0.05).values["op"] == 2
    assert had == [set(two)] * 2


def test_the_computation_takes_time() -> None:
    assert 0 < calm.spin_on(CPUS[0]) < 10


def test_a_calm_run_goes_on_calmly(tmp_path: Path) -> None:
    about = {"commit": "a", "compiler": "cc", "preset": "bench", "machine": {"cpu": "one"}}
    made = journal.conditions({**about, "calm": True}, 0.05)
    file = tmp_path / "run.journal"
    file.write_text(json.dumps(made) + "\n")
    assert journal.load(file, made) == []
    with pytest.raises(Exception, match="made with calm 'True', now it is 'False'"):
        journal.load(file, journal.conditions(about, 0.05))


def test_only_when_asked() -> None:
    assert calm.calm_if(asked=False) is None
    assert cli.parser().parse_args([]).calm is False
