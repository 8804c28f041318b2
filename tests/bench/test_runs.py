# SPDX-License-Identifier: Apache-2.0
"""Running rows: commands, results, repetitions, journals, who takes part."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runner import contenders, journal, runs
from runner.contenders import Contender, Field
from runner.errors import BenchError
from runner.provenance import raw_results
from runner.runs import Job, Result
from scoreboard import cli, report, scores
from scoreboard.judge import Rules

from tests.bench.tools import INLINE, MIMALLOC, PRELOAD, SNMALLOC, make_target, run_of

# --- running --------------------------------------------------------------------------------------


def test_command_of_a_row() -> None:
    words = runs.command(Job("cold/16x1M", INLINE), 0.05)
    assert words[1] == "--benchmark_filter=^inline/cold/16x1M(/iterations:1)?(/manual_time)?$"
    go = Contender("go", "go", Path("go"), "go")
    assert runs.command(Job("seed/Alloc16", go), 0.05) == ["go", "Alloc16", "5"]


def test_parse_result() -> None:
    row = {"name": "x", "op": 1e-9, "iterations": 7, "allocs_per_iter": 2.0, "max_bytes_used": 32}
    found = runs.parse_result(json.dumps({"benchmarks": [row]}), "", 0)
    assert (found.values["op"], found.iterations, found.error) == (1e-9, 7, "")


@pytest.mark.parametrize(
    ("stdout", "stderr", "status", "said"),
    [
        ("", "boom\nlast words\n", 1, "ended with status 1: last words"),
        ("", "", -11, "ended with status -11: no message"),
        ("", "Failed to match any benchmarks", 0, "no such row: Failed to match any benchmarks"),
        ('{"benchmarks": []}', "", 0, "0 rows match, not 1"),
        (
            '{"benchmarks": [{"error_occurred": true, "error_message": "no heap"}]}',
            "",
            0,
            "no heap",
        ),
    ],
)
def test_failures_are_results(stdout: str, stderr: str, status: int, said: str) -> None:
    assert runs.parse_result(stdout, stderr, status) == Result({}, 0, said)


def test_memory_is_per_operation() -> None:
    values = {"allocs_per_iter": 200.0, "ops": 100.0, "total_allocated_bytes": 51200.0}
    use = runs.memory_use(Result({**values, "max_bytes_used": 1600.0}, 50))
    assert use == runs.MemoryUse(2.0, 32.0, 1600.0)
    assert runs.memory_use(Result({}, 0, "failed")) is None


def test_repetitions_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def fake(job: Job, min_time_s: float, *, memory: bool = False) -> Result:
        order.append(f"{job.bench} {job.contender.name}")
        return Result({"op": 1e-9}, 1)

    monkeypatch.setattr(runs, "run_job", fake)
    jobs = [Job(bench, contender) for bench in ("a", "b") for contender in (INLINE, SNMALLOC)]
    run = runs.run_interleaved(jobs, 2, 0.01, io.StringIO())
    assert order == ["a spanwise", "a snmalloc", "b spanwise", "b snmalloc"] * 2
    assert not run.interrupted


def test_interrupt_keeps_finished_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def fake(job: Job, min_time_s: float, *, memory: bool = False) -> Result:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return Result({"op": 1e-9}, 1)

    monkeypatch.setattr(runs, "run_job", fake)
    run = runs.run_interleaved([Job("a", INLINE), Job("a", SNMALLOC)], 10, 0.01)
    assert run.interrupted
    assert len(run.repetitions) == 2
    assert run.values("a", INLINE, "op") == pytest.approx([1.0, 1.0])


def test_a_hopeless_peer_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow peer ends after three repetitions; ours never, and the best peer stays."""
    took = {"spanwise": 9e-9, "snmalloc": 2e-9, "mimalloc": 4e-9}
    order: list[str] = []

    def fake(job: Job, min_time_s: float, *, memory: bool = False) -> Result:
        order.append(job.contender.name)
        return Result({"op": took[job.contender.name]}, 1)

    monkeypatch.setattr(runs, "run_job", fake)
    jobs = [Job("pair/16", contender) for contender in (INLINE, SNMALLOC, MIMALLOC)]
    run = runs.run_interleaved(jobs, 5, 0.01, races=[jobs[1:]])
    assert [order.count(name) for name in took] == [5, 5, 3]
    found = scores.score(make_target(), Field([INLINE, SNMALLOC, MIMALLOC], {}), run, Rules(5))
    assert (found.peer_name, found.verdict) == ("snmalloc", "missed")


def test_a_peer_that_is_leaner_is_not_spared() -> None:
    rows: dict[tuple[str, Contender], list[dict[str, float]]] = {
        ("growth/1G", SNMALLOC): [{"op": 1e-9, "rss_over_live": 1.3}] * 3,
        ("growth/1G", MIMALLOC): [{"op": 9e-9, "rss_over_live": 1.1}] * 3,
    }
    run = run_of(rows)
    assert runs.hopeless(run, [run.jobs]) == set()


def test_a_peer_that_wins_one_of_its_races_is_not_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quickest stands apart in a row, which mimalloc wins: both run all five repetitions."""
    took = {"spanwise": 9e-9, "snmalloc": 2e-9, "mimalloc": 4e-9, "rpmalloc": 6e-9}
    order: list[str] = []

    def fake(job: Job, min_time_s: float, *, memory: bool = False) -> Result:
        order.append(job.contender.name)
        return Result({"op": took[job.contender.name]}, 1)

    monkeypatch.setattr(runs, "run_job", fake)
    rpmalloc = Contender("rpmalloc", "linked", Path("bench_peer_rpmalloc"), "linked", None, "2.0.1")
    field = Field([INLINE, SNMALLOC, MIMALLOC, rpmalloc], {})
    terms = {"apart": ["snmalloc >= 0.7"], "because": "huge pages"}
    row = make_target(reference=["mimalloc >= 2.0"], **terms)
    rows = [row, make_target(name="all")]
    jobs = scores.jobs_of(rows, field)
    run = runs.run_interleaved(jobs, 5, 0.01, races=scores.races_of(rows, field))
    assert [order.count(name) for name in took] == [5, 5, 5, 3]
    assert scores.score(row, field, run, Rules(5)).peer_name == "mimalloc"
    order.clear()
    alone = scores.races_of([row], field)
    run = runs.run_interleaved(scores.jobs_of([row], field), 5, 0.01, races=alone)
    assert [order.count(name) for name in took] == [5, 5, 5, 3]
    assert runs.hopeless(run, alone) == {Job("pair/16", rpmalloc).key}


ABOUT: dict[str, Any] = {
    "commit": "abc",
    "compiler": "cc 1",
    "preset": "release",
    "machine": {"cpu": "some cpu"},
}


def test_a_cut_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut within row b of the second repetition: a is not run again, b is, for all."""
    order: list[str] = []

    def fake(job: Job, min_time_s: float, *, memory: bool = False) -> Result:
        order.append(f"{job.bench} {job.contender.name}")
        if len(order) == 8:
            raise KeyboardInterrupt
        return Result({"op": len(order) * 1e-9}, 1)

    monkeypatch.setattr(runs, "run_job", fake)
    jobs = [Job(bench, contender) for bench in ("a", "b") for contender in (INLINE, SNMALLOC)]
    now = journal.conditions(ABOUT, 0.01)
    kept = journal.Journal.start(tmp_path / "x.journal", now)
    assert runs.run_interleaved(jobs, 2, 0.01, keep=kept.keep).interrupted
    with kept.path.open("a") as file:
        file.write('{"repetition": 2, "ke')  # the process died while it wrote
    before = journal.load(journal.newest(tmp_path), now)
    again = journal.Journal.go_on(kept.path)
    run = runs.run_interleaved(jobs, 2, 0.01, before=before, keep=again.keep)
    assert order[8:] == ["b spanwise", "b snmalloc"]
    assert run.values("a", INLINE, "op") == pytest.approx([1.0, 5.0])
    assert run.values("b", INLINE, "op") == pytest.approx([3.0, 9.0])
    assert journal.load(kept.path, now) == run.repetitions
    again.remove()
    with pytest.raises(BenchError, match=r"^--resume: no \*.journal in "):
        journal.newest(tmp_path)


ADVISED = replace(PRELOAD, variables=(("SPANWISE_THP", "advise"),))


def test_a_cut_run_keeps_ours_with_an_environment_apart(tmp_path: Path) -> None:
    """A journal with ours as it comes says nothing of ours with an option, nor the reverse."""
    now = journal.conditions(ABOUT, 0.01)
    kept = journal.Journal.start(tmp_path / "x.journal", now)
    plain, advised = Job("cold/16x1M", PRELOAD), Job("cold/16x1M", ADVISED)
    kept.keep(1, plain, Result({"op": 11e-9}, 1))
    before = journal.load(kept.path, now)
    assert plain.key in before[0] and advised.key not in before[0]
    kept.keep(1, advised, Result({"op": 5e-9}, 1))
    run = runs.Run([plain, advised], journal.load(kept.path, now))
    assert run.values("cold/16x1M", PRELOAD, "op") == pytest.approx([11.0])
    assert run.values("cold/16x1M", ADVISED, "op") == pytest.approx([5.0])


def test_raw_results_and_benchstat_text_name_the_options() -> None:
    run = run_of(
        {
            ("cold/16x1M", PRELOAD): [{"op": 11e-9}],
            ("cold/16x1M", ADVISED): [{"op": 5e-9}],
        }
    )
    raw = raw_results(run, Field([PRELOAD], {}), {})
    assert [row["options"] for row in raw["repetitions"][0]] == ["", "SPANWISE_THP=advise"]
    about = {"commit": "abc", "machine": {"architecture": "x86_64", "cpu": "some cpu"}}
    text = report.go_benchmark_text(run, about)
    assert "BenchmarkCold/16x1M/alloc=preload\t" in text
    assert "BenchmarkCold/16x1M/alloc=preload-SPANWISE_THP=advise\t" in text


def test_an_environment_reaches_the_process(tmp_path: Path) -> None:
    program = tmp_path / "bench_malloc"
    row = '{"benchmarks": [{"iterations": 1, "op": %s}]}'
    program.write_text(f"#!/bin/sh\nprintf '{row}' \"${{SPANWISE_THP:-0}}\"\n")
    program.chmod(0o755)
    plain = Contender("spanwise", "preload", program, "malloc")
    huge = replace(plain, variables=(("SPANWISE_THP", "7"),))
    assert runs.run_job(Job("cold/16x1M", plain), 0.01).values["op"] == 0.0
    assert runs.run_job(Job("cold/16x1M", huge), 0.01).values["op"] == 7.0


def test_a_journal_of_other_conditions(tmp_path: Path) -> None:
    now = journal.conditions(ABOUT, 0.01)
    path = journal.Journal.start(tmp_path / "x.journal", now).path
    with pytest.raises(BenchError) as caught:
        journal.load(path, {**now, "commit": "def"})
    assert str(caught.value) == (
        f"{path}: made with commit 'abc', now it is 'def'; start a new run without --resume"
    )
    path.write_text("no\n")
    with pytest.raises(BenchError, match=r"line 1: not a journal of bench/run\.py"):
        journal.load(path, now)
    path.write_text(json.dumps(now) + "\n[]\n")
    with pytest.raises(BenchError, match="line 2: not a result"):
        journal.load(path, now)


# --- who takes part -------------------------------------------------------------------------------


def test_parse_peer(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.touch()
    assert contenders.parse_peer(f"mimalloc3={library}") == ("mimalloc3", library, "")
    assert contenders.parse_peer(f"sn={library}@0.7.6") == ("sn", library, "0.7.6")
    with pytest.raises(BenchError, match=r"^peer 'lib.so' is not NAME=PATH or NAME=PATH@VERSION"):
        contenders.parse_peer("lib.so")
    with pytest.raises(BenchError, match=r"^peer je: no file '/none.so'; give the built library"):
        contenders.parse_peer("je=/none.so")


def test_missing_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--build", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"bench: {tmp_path}/bench_spanwise is missing: build with cmake")
    assert said.count("\n") == 1


def test_a_preload_that_does_not_serve_malloc(tmp_path: Path) -> None:
    program = tmp_path / "bench_malloc"
    program.write_text("#!/bin/sh\necho 2.36\necho /lib/libc.so.6\n")
    program.chmod(0o755)
    library = tmp_path / "libother.so"
    library.touch()
    with pytest.raises(BenchError) as caught:
        contenders.identify(Contender("other", "preload", program, "malloc", library))
    assert str(caught.value) == (
        f"other: {library} does not define malloc (it came from '/lib/libc.so.6'); "
        "give a library made for LD_PRELOAD"
    )


def test_labels() -> None:
    assert INLINE.label == "inline"
    assert SNMALLOC.label == "snmalloc (linked)"
