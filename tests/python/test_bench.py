# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found"
"""The bench tools: statistics, verdicts, targets, parsing, error texts; no times are asserted."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

import instructions  # noqa: E402
import loop_speed  # noqa: E402
from bench_lib import (  # noqa: E402
    cli,
    contenders,
    counts,
    journal,
    report,
    runner,
    scoreboard,
    scripted,
    selection,
    stats,
    targets,
)
from bench_lib.contenders import Contender, Field  # noqa: E402
from bench_lib.errors import BenchError  # noqa: E402
from bench_lib.runner import Job, Result, Run  # noqa: E402

TARGETS = targets.load_targets(BENCH / "targets.toml")

INLINE = Contender("spanwise", "inline", Path("bench_spanwise"), "inline", None, "0.1.0")
SNMALLOC = Contender("snmalloc", "linked", Path("bench_peer_snmalloc"), "linked", None, "0.7.6")
MIMALLOC = Contender("mimalloc", "linked", Path("bench_peer_mimalloc"), "linked", None, "2.0.9")


def make_target(**changes: Any) -> targets.Target:
    row: dict[str, Any] = {
        "name": "pair",
        "bench": "pair/16",
        "ours": "inline",
        "peers": "linked",
        "target": 1.5,
        "reference": ["snmalloc >= 0.7"],
        **changes,
    }
    return targets._parse({key: value for key, value in row.items() if value is not None})


def make_run(series: dict[Contender, list[float]], bench: str = "pair/16") -> Run:
    """Nanoseconds a repetition for each contender."""
    jobs = [Job(bench, contender) for contender in series]
    count = len(next(iter(series.values())))
    repetitions = [
        {job.key: Result({"op": series[job.contender][i] * 1e-9}, 1000) for job in jobs}
        for i in range(count)
    ]
    return Run(jobs, repetitions)


# --- statistics -----------------------------------------------------------------------------------


def test_median() -> None:
    assert stats.median([3.0, 1.0, 2.0]) == 2.0
    assert stats.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    with pytest.raises(ValueError, match="the median of no values"):
        stats.median([])


@pytest.mark.parametrize(
    ("count", "rank", "coverage"),
    [(1, 1, 0.0), (3, 1, 0.75), (5, 1, 0.9375), (6, 1, 0.96875), (10, 2, 0.978515625)],
)
def test_order_rank_is_the_binomial_one(count: int, rank: int, coverage: float) -> None:
    assert stats.order_rank(count) == (rank, coverage)


def test_order_rank_of_many() -> None:
    """The textbook's 95 % interval of 25 values runs from the 8th to the 18th."""
    rank, coverage = stats.order_rank(25)
    assert rank == 8
    assert coverage == pytest.approx(0.9567, abs=1e-4)


def test_interval_drops_the_extremes_of_ten() -> None:
    found = stats.interval([float(value) for value in (5, 1, 9, 3, 7, 2, 8, 4, 6, 100)])
    assert (found.median, found.low, found.high) == (5.5, 2.0, 9.0)


def test_ratio_is_paired_by_repetition() -> None:
    """A slow second repetition that hits both leaves the ratio exact."""
    found = stats.ratio([1.0, 10.0, 1.0], [2.0, 20.0, 2.0])
    assert (found.median, found.low, found.high) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="2 values of ours and 1 of the peer"):
        stats.ratio([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("values", "said"),
    [([0.5, 0.6, 0.7], "faster"), ([0.9, 1.0, 1.1], "no difference"), ([1.2, 1.3, 1.4], "slower")],
)
def test_describe(values: list[float], said: str) -> None:
    assert stats.describe(stats.interval(values)) == said


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "target", "said"),
    [
        (1.2, 1.5, 1.5, "met"),
        (1.2, 1.51, 1.5, "missed"),
        (0.9, 1.1, 1.0, "met"),
        (1.01, 1.1, 1.0, "missed"),
        (0.5, 0.7, 0.6, "missed"),
    ],
)
def test_verdict(low: float, high: float, target: float, said: str) -> None:
    found = stats.Interval((low + high) / 2, low, high, 0.98, 10)
    assert scoreboard.verdict(found, target) == said


def test_score_takes_the_best_peer() -> None:
    run = make_run({INLINE: [2.5] * 3, SNMALLOC: [2.0] * 3, MIMALLOC: [4.0] * 3})
    row = scoreboard.score(make_target(), Field([INLINE, SNMALLOC, MIMALLOC], {}), run).as_json()
    assert row["peer_name"] == "snmalloc"
    assert row["ratio"] == pytest.approx(1.25)
    assert row["verdict"] == "met"
    assert list(row)[:10] == [
        "name",
        "unit",
        "ours",
        "peer_name",
        "peer",
        "ratio",
        "low",
        "high",
        "target",
        "verdict",
    ]


def test_score_without_the_reference_is_no_peer_and_never_met() -> None:
    run = make_run({INLINE: [1.0] * 3, MIMALLOC: [4.0] * 3})
    found = scoreboard.score(make_target(), Field([INLINE, MIMALLOC], {}), run)
    assert (found.verdict, found.note) == ("no peer", "needs snmalloc >= 0.7")
    assert found.ratio is not None


def test_score_with_too_old_a_reference_is_no_peer() -> None:
    target = make_target(reference=["mimalloc >= 3.0"])
    run = make_run({INLINE: [1.0] * 3, MIMALLOC: [4.0] * 3})
    assert scoreboard.score(target, Field([INLINE, MIMALLOC], {}), run).verdict == "no peer"


def test_a_wide_interval_is_marked() -> None:
    run = make_run({INLINE: [1.0, 2.0, 5.0], SNMALLOC: [2.0] * 3})
    found = scoreboard.score(make_target(), Field([INLINE, SNMALLOC], {}), run)
    assert found.note == "noisy: run again on a quiet machine"


def test_score_without_ours_is_missed() -> None:
    run = make_run({SNMALLOC: [4.0] * 3})
    found = scoreboard.score(make_target(), Field([SNMALLOC], {}), run)
    assert (found.verdict, found.note, found.ours) == ("missed", "ours did not run", None)


def test_score_against_a_constant() -> None:
    target = make_target(
        peers="constant", constant="live bytes", metric="rss_over_live", reference=None, target=1.12
    )
    job = Job("pair/16", INLINE)
    run = Run(
        [job], [{job.key: Result({"rss_over_live": value}, 1)} for value in (1.1, 1.11, 1.12)]
    )
    found = scoreboard.score(target, Field([INLINE], {}), run)
    assert (found.ours, found.peer_name, found.verdict) == (1.11, "live bytes", "met")


def test_a_failed_repetition_leaves_no_value_but_a_line() -> None:
    run = make_run({INLINE: [1.0, 1.0]})
    run.repetitions[1][run.jobs[0].key] = Result({}, 0, "ended with status -11: no message")
    assert run.values("pair/16", INLINE, "op") == []
    assert run.failures() == [
        "pair/16, spanwise (inline): ended with status -11: no message (1 of 2)"
    ]


def run_of(series: dict[tuple[str, Contender], list[dict[str, float]]]) -> Run:
    """Values by counter, for each row and contender, a mapping a repetition."""
    jobs = [Job(bench, contender) for bench, contender in series]
    count = max(len(rows) for rows in series.values())
    repetitions = [
        {
            job.key: Result(series[job.bench, job.contender][i], 1)
            for job in jobs
            if i < len(series[job.bench, job.contender])
        }
        for i in range(count)
    ]
    return Run(jobs, repetitions)


def test_score_against_another_row_of_ours() -> None:
    target = make_target(
        bench="scaling_pair/8",
        peer_bench="scaling_pair/2",
        peers="self",
        reference=None,
        target=1.25,
    )
    run = run_of(
        {
            ("scaling_pair/8", INLINE): [{"op": 11e-9}] * 3,
            ("scaling_pair/2", INLINE): [{"op": 10e-9}] * 3,
        }
    )
    found = scoreboard.score(target, Field([INLINE, SNMALLOC], {}), run)
    assert (found.peer_name, found.verdict) == ("itself at scaling_pair/2", "met")
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(1.1)
    assert scoreboard.jobs_of([target], Field([INLINE, SNMALLOC], {})) == run.jobs


def test_growth_compares_ratios_each_with_its_best_peer() -> None:
    """Twice the best peer at 10 MB (mimalloc), three times at 1 GB (snmalloc): worse by 1.5."""
    target = make_target(bench="growth/1G", base="growth/10M", target=1.1)
    field = Field([INLINE, SNMALLOC, MIMALLOC], {})
    run = run_of(
        {
            ("growth/1G", INLINE): [{"op": 30e-9}] * 3,
            ("growth/1G", SNMALLOC): [{"op": 10e-9}] * 3,
            ("growth/1G", MIMALLOC): [{"op": 20e-9}] * 3,
            ("growth/10M", INLINE): [{"op": 8e-9}] * 3,
            ("growth/10M", SNMALLOC): [{"op": 5e-9}] * 3,
            ("growth/10M", MIMALLOC): [{"op": 4e-9}] * 3,
        }
    )
    found = scoreboard.score(target, field, run)
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(1.5)
    assert (found.peer_name, found.verdict) == ("snmalloc", "missed")
    assert scoreboard.jobs_of([target], field) == run.jobs


def test_a_row_without_a_target_is_reported() -> None:
    run = make_run({INLINE: [9.0] * 3, SNMALLOC: [2.0] * 3})
    found = scoreboard.score(make_target(target=None), Field([INLINE, SNMALLOC], {}), run)
    assert found.verdict == "reported"
    assert found.as_json()["target"] is None
    assert report.scoreboard_table([found]).splitlines()[-1].endswith("0 no peer, 1 reported")


def test_a_row_that_needs_more_memory_is_skipped() -> None:
    run = make_run({INLINE: [9.0] * 3, SNMALLOC: [2.0] * 3})
    found = scoreboard.score(
        make_target(needs_gb=11), Field([INLINE, SNMALLOC], {}), run, None, 3.25
    )
    assert (found.verdict, found.note) == (
        "skipped",
        "needs 11 GB of free memory, there are 3.2",
    )


def test_instructions_of_two_paths() -> None:
    target = make_target(
        bench="b", peer_bench="a", ours="exported", peers="counts", reference=None, target=1.05
    )
    known = {"a": counts.Counts(100, 1, 1, 1, 0), "b": counts.Counts(104, 1, 1, 1, 0)}
    found = scoreboard.score(target, Field([], {}), Run([]), known)
    assert (found.verdict, found.ours, found.target.unit) == ("met", 104, "instr")
    assert scoreboard.score(target, Field([], {}), Run([])).verdict == "no peer"


def test_a_missed_row_tells_its_cause() -> None:
    run = make_run({INLINE: [9.0] * 3, SNMALLOC: [2.0] * 3})
    field = Field([INLINE, SNMALLOC], {})
    missed = scoreboard.score(make_target(cause="70 instructions a pair"), field, run)
    met = scoreboard.score(make_target(target=9.0, cause="never shown"), field, run)
    text = report.scoreboard_table([missed, met])
    assert "  pair: 70 instructions a pair" in text
    assert "never shown" not in text
    assert missed.as_json()["cause"] == "70 instructions a pair"


# --- targets.toml ---------------------------------------------------------------------------------


def counted_paths() -> set[str]:
    """The names in the tables of bench/paths_*.c."""
    sources = [path.read_text() for path in BENCH.glob("paths_*.c")]
    return {name for text in sources for name in re.findall(r'^    \{"(\w+)", ', text, re.M)}


def test_targets_name_rows_that_the_programs_have() -> None:
    known = {
        *selection.FIGURES,
        *selection.MORE_FIGURES,
        *selection.HEAVY_FIGURES,
        *selection.RATIO_ROWS,
    }
    for row in TARGETS:
        if row.peers != "counts" and not row.script:
            assert {row.bench, row.peer_bench, row.base or row.bench} <= known, row.name


def test_scripted_targets_are_those_of_the_script() -> None:
    found = {row.bench: row for row in TARGETS if row.script == "loop_speed.py"}
    assert list(found) == [row.name for row in loop_speed.ROWS]
    assert all(found[row.name].unit == row.unit for row in loop_speed.ROWS)
    limits = [row.limit for row in found.values() if row.limit is not None]
    assert limits == [1.0, 30.0]


def test_targets_name_paths_that_are_counted() -> None:
    named = {path.removeprefix("bare ") for row in TARGETS for path in row.paths}
    assert len(named) >= 20
    assert named <= counted_paths()


def test_every_row_has_what_it_is_compared_with() -> None:
    assert len(TARGETS) >= 60
    for row in TARGETS:
        assert bool(row.reference) == (row.peers in targets.PROPER), row.name
        assert bool(row.constant) == (row.peers == "constant"), row.name


def test_paths_of_a_row() -> None:
    assert make_target(path="inline_pair").paths == ("inline_pair",)
    assert make_target(path="inline_pair", ours="bare").paths == ("bare inline_pair",)
    assert make_target().paths == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [[row]] in it"),
        ("[[row]", "not TOML"),
        ('[[row]]\nbench = "x"', "row 1 (without a name): name is missing"),
        (
            '[[row]]\nname = "a"\nbench = "x"\nours = "inline"\npeers = "linked"\ntarget = 0',
            "row 1 (a): target is 0; use a ratio above 0",
        ),
        (
            '[[row]]\nname = "a"\nbench = "x"\nours = "magic"\npeers = "linked"\ntarget = 1\n'
            'reference = ["go >= 1"]',
            "row 1 (a): ours is 'magic'; use one of inline, bare, exported, generic, preload",
        ),
        (
            '[[row]]\nname = "a"\nbench = "x"\nours = "inline"\npeers = "linked"\ntarget = 1\n'
            'reference = ["snmalloc"]',
            "row 1 (a): reference 'snmalloc' is not 'NAME >= VERSION'",
        ),
        (
            '[[row]]\nname = "a"\nbench = "x"\nours = "inline"\npeers = "linked"\ntarget = 1',
            "row 1 (a): reference names a peer for peers = linked or preload or go, and only then",
        ),
        (
            '[[row]]\nname = "a"\nbench = "x"\nours = "inline"\npeers = "self"\ntarget = 1',
            "row 1 (a): peer_bench is missing: peers = 'self' compares bench with it",
        ),
        ('[[row]]\nname = "a"\nbench = "x"\ncause = 3', "row 1 (a): cause is 3; use text"),
        (
            '[[row]]\nname = "a"\nbench = "x"\nneeds_gb = -1',
            "row 1 (a): needs_gb is -1; use a number above 0",
        ),
        ('[[row]]\nname = "a"\nspeed = 3', "row 1 (a): unknown key 'speed'"),
        (
            '[[row]]\nname = "loop"\nbench = "x"\nscript = "a.py"\nours = "inline"',
            "row 1 (loop): ours does not belong to a row with a script or limit",
        ),
        (
            '[[row]]\nname = "a"\nbench = "x"\nscript = "a.py"\nunit = "s"',
            "row 1 (a): the name of a row with a script begins with 'loop'",
        ),
        (
            '[[row]]\nname = "loop"\nbench = "x"\nlimit = 3',
            "row 1 (loop): script and unit are missing, or no text",
        ),
    ],
)
def test_bad_targets(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(text)
    with pytest.raises(BenchError) as caught:
        targets.load_targets(path)
    assert str(caught.value).startswith(f"{path}: {said}")


def test_missing_targets(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="No such file or directory"):
        targets.load_targets(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("5.3.0-0-g54eaed1d8b56b1aa", (5, 3, 0)),
        ("go1.26.8", (1, 26, 8)),
        ("2.10", (2, 10)),
        ("", ()),
    ],
)
def test_versions(text: str, version: tuple[int, ...]) -> None:
    assert targets.parse_version(text) == version


def test_requirement() -> None:
    need = targets.Requirement.parse("mimalloc >= 3.0")
    assert need.met_by("mimalloc3", "3.3.2")
    assert not need.met_by("mimalloc", "2.0.9")
    assert not need.met_by("snmalloc", "3.3.2")
    assert not need.met_by("mimalloc", "")
    assert targets.Requirement.parse("go >= 1.26").met_by("go-special", "go1.26.8")
    assert str(need) == "mimalloc >= 3.0"
    special = targets.Requirement.parse("go-special >= 1.26.8")
    assert special.met_by("go-special", "go1.26.8-X:sizespecializedmalloc")
    assert not special.met_by("go", "go1.26.8")


# --- rows that scripts measure --------------------------------------------------------------------


LOOP_ROW = {
    "name": "sweep 50 tables x 10 M events",
    "ours": 15.0,
    "peer_name": "limit",
    "peer": 30.0,
    "ratio": 0.5,
    "low": 0.4,
    "high": 0.6,
    "verdict": "met",
    "note": "",
}


def test_rows_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def measure(script: str, options: list[str]) -> dict[str, Any]:
        asked.append([script, *options])
        return {"rounds": 6, "rows": {LOOP_ROW["name"]: LOOP_ROW}}

    monkeypatch.setattr(scripted, "measure", measure)
    words = ["--scoreboard", "--rows", "loop, sweep*threads", "--results", str(tmp_path)]
    assert cli.main([*words, "--repetitions", "6"]) == 0
    assert asked == [["loop_speed.py", "--rounds", "6", "--rows", LOOP_ROW["name"]]]
    said = capsys.readouterr().out
    assert "0.50 [0.40, 0.60]" in said and "limit 30.00" in said
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["scripts"]["loop_speed.py"]["rounds"] == 6
    assert cli.main([*words[:2], "loop, replay*", "--results", str(tmp_path)]) == 2
    assert "has no row 'replay, an operation'" in capsys.readouterr().err


def test_rows_of_scripts_only_when_asked_for(tmp_path: Path) -> None:
    options = cli.parser().parse_args(["--scoreboard", "--rows", "*optimiser*"])
    with pytest.raises(BenchError, match="matches no row"):
        cli.execute(options)


def test_a_script_that_fails() -> None:
    with pytest.raises(BenchError, match=r"loop_speed.py told no figures: exit 2"):
        scripted.measure("loop_speed.py", ["--rows", "no such row"])


# --- running --------------------------------------------------------------------------------------


def test_command_of_a_row() -> None:
    words = runner.command(Job("cold/16x1M", INLINE), 0.05)
    assert words[1] == "--benchmark_filter=^inline/cold/16x1M(/iterations:1)?(/manual_time)?$"
    go = Contender("go", "go", Path("go"), "go")
    assert runner.command(Job("seed/Alloc16", go), 0.05) == ["go", "Alloc16", "5"]


def test_parse_result() -> None:
    row = {"name": "x", "op": 1e-9, "iterations": 7, "allocs_per_iter": 2.0, "max_bytes_used": 32}
    found = runner.parse_result(json.dumps({"benchmarks": [row]}), "", 0)
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
    assert runner.parse_result(stdout, stderr, status) == Result({}, 0, said)


def test_memory_is_per_operation() -> None:
    values = {"allocs_per_iter": 200.0, "ops": 100.0, "total_allocated_bytes": 51200.0}
    use = runner.memory_use(Result({**values, "max_bytes_used": 1600.0}, 50))
    assert use == runner.MemoryUse(2.0, 32.0, 1600.0)
    assert runner.memory_use(Result({}, 0, "failed")) is None


def test_repetitions_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def fake(job: Job, min_time_s: float, *, memory: bool = False) -> Result:
        order.append(f"{job.bench} {job.contender.name}")
        return Result({"op": 1e-9}, 1)

    monkeypatch.setattr(runner, "run_job", fake)
    jobs = [Job(bench, contender) for bench in ("a", "b") for contender in (INLINE, SNMALLOC)]
    run = runner.run_interleaved(jobs, 2, 0.01, io.StringIO())
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

    monkeypatch.setattr(runner, "run_job", fake)
    run = runner.run_interleaved([Job("a", INLINE), Job("a", SNMALLOC)], 10, 0.01)
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

    monkeypatch.setattr(runner, "run_job", fake)
    jobs = [Job("pair/16", contender) for contender in (INLINE, SNMALLOC, MIMALLOC)]
    run = runner.run_interleaved(jobs, 5, 0.01, drop=True)
    assert [order.count(name) for name in took] == [5, 5, 3]
    found = scoreboard.score(make_target(), Field([INLINE, SNMALLOC, MIMALLOC], {}), run)
    assert (found.peer_name, found.verdict) == ("snmalloc", "missed")


def test_a_peer_that_is_leaner_is_not_spared() -> None:
    rows: dict[tuple[str, Contender], list[dict[str, float]]] = {
        ("growth/1G", SNMALLOC): [{"op": 1e-9, "rss_over_live": 1.3}] * 3,
        ("growth/1G", MIMALLOC): [{"op": 9e-9, "rss_over_live": 1.1}] * 3,
    }
    assert runner.hopeless(run_of(rows)) == set()


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

    monkeypatch.setattr(runner, "run_job", fake)
    jobs = [Job(bench, contender) for bench in ("a", "b") for contender in (INLINE, SNMALLOC)]
    now = journal.conditions(ABOUT, 0.01)
    kept = journal.Journal.start(tmp_path / "x.journal", now)
    assert runner.run_interleaved(jobs, 2, 0.01, keep=kept.keep).interrupted
    with kept.path.open("a") as file:
        file.write('{"repetition": 2, "ke')  # the process died while it wrote
    before = journal.load(journal.newest(tmp_path), now)
    again = journal.Journal.go_on(kept.path)
    run = runner.run_interleaved(jobs, 2, 0.01, before=before, keep=again.keep)
    assert order[8:] == ["b spanwise", "b snmalloc"]
    assert run.values("a", INLINE, "op") == pytest.approx([1.0, 5.0])
    assert run.values("b", INLINE, "op") == pytest.approx([3.0, 9.0])
    assert journal.load(kept.path, now) == run.repetitions
    again.remove()
    with pytest.raises(BenchError, match=r"^--resume: no \*.journal in "):
        journal.newest(tmp_path)


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


# --- options --------------------------------------------------------------------------------------


def test_rows_by_name_pattern_and_part() -> None:
    names = ["pair/16", "zpair/16", "pair/64"]
    assert selection.choose(names, "pair/16") == ["pair/16"]
    assert selection.choose(names, "pair/*") == ["pair/16", "pair/64"]
    assert selection.choose(names, "/16") == ["pair/16", "zpair/16"]
    assert selection.choose(names, None) == names
    with pytest.raises(BenchError, match=r"^--rows 'quad' matches no row; there are 3: pair/16, "):
        selection.choose(names, "quad")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--repetitions", "0"], "bench: --repetitions is 0; use 1 or more\n"),
        (["--plot", "x.pdf"], "bench: --plot is 'x.pdf'; use a name that ends in .png\n"),
    ],
)
def test_bad_options(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err == said


# --- reports --------------------------------------------------------------------------------------


def test_text_table() -> None:
    assert report.text_table(["row", "ns"], [["a", "1"], ["long", "10"]]).splitlines() == [
        "row   ns",
        "----  --",
        "a      1",
        "long  10",
    ]


def test_ratio_cell_says_no_difference() -> None:
    assert report.ratio_cell([1.0, 1.1, 0.9], [1.0, 1.0, 1.0]) == "no difference"
    assert report.ratio_cell([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]) == "0.50 [0.50, 0.50]"
    assert report.ratio_cell([], [1.0]) == "-"


def test_figures_and_comparison() -> None:
    run = make_run({INLINE: [3.0] * 3, SNMALLOC: [2.0] * 3})
    assert report.figures_table(run, ["pair/16"]).splitlines()[2].split() == [
        "pair/16",
        "3.00",
        "2.00",
    ]
    assert "1.50 [1.50, 1.50]" in report.comparison_table(run, ["pair/16"])


def test_scoreboard_table_counts_verdicts() -> None:
    run = make_run({INLINE: [2.5] * 3, SNMALLOC: [2.0] * 3})
    field = Field([INLINE, SNMALLOC], {})
    rows = [
        scoreboard.score(make_target(), field, run),
        scoreboard.score(make_target(target=1.2), field, run),
        scoreboard.score(make_target(reference=["rpmalloc >= 2.0"]), field, run),
    ]
    text = report.scoreboard_table(rows)
    assert text.splitlines()[-1] == "1 met, 1 missed, 1 no peer"
    assert "no peer (needs rpmalloc >= 2.0)" in text


def test_go_benchmark_text() -> None:
    run = make_run({INLINE: [3.0], SNMALLOC: [2.0]}, "free_random/16x1M")
    about = {"machine": {"architecture": "x86_64", "cpu": "some cpu"}, "commit": "abc"}
    lines = report.go_benchmark_text(run, about).splitlines()
    assert lines[-2:] == [
        "BenchmarkFreeRandom/16x1M/alloc=inline\t1000\t3.0000 ns/op",
        "BenchmarkFreeRandom/16x1M/alloc=snmalloc-linked\t1000\t2.0000 ns/op",
    ]
    assert "cpu: some cpu" in lines


def test_raw_results_hold_provenance(tmp_path: Path) -> None:
    about = report.provenance(ROOT, tmp_path)
    assert {"date", "machine", "compiler", "commit", "preset", "seed"} <= set(about)
    run = make_run({INLINE: [3.0, 4.0]})
    path = report.write_results(
        tmp_path / "results", report.raw_results(run, Field([INLINE], {"go": "get it"}), about)
    )
    raw = json.loads(path.read_text())
    assert len(raw["repetitions"]) == 2
    assert raw["missing"] == {"go": "get it"}
    assert str(raw["commit"]) in path.name
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_seed_is_the_programs_seed() -> None:
    assert f"SEED = {report.SEED} " in (BENCH / "rows.h").read_text()


def test_results_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    with pytest.raises(BenchError) as caught:
        report.write_whole(blocker / "x.json", "{}")
    assert str(caught.value).startswith(f"{blocker}/x.json: ")


@pytest.mark.parametrize(
    ("cache", "name"),
    [
        ({"CMAKE_BUILD_TYPE": "Release", "SPANWISE_CHECK": "1"}, "release"),
        ({"CMAKE_BUILD_TYPE": "Release", "SPANWISE_CHECK": "0"}, "bare"),
        ({"CMAKE_BUILD_TYPE": "RelWithDebInfo", "SPANWISE_CHECK": "2"}, "dev"),
    ],
)
def test_preset_name(cache: dict[str, str], name: str) -> None:
    assert report.preset_name(cache) == name


# --- instruction counts ---------------------------------------------------------------------------


CLOSING = "==7== Events    : Ir Dr Dw Bc\n==7== Collected : 67978 20 10 5\n==7==\n"


def test_parse_collected() -> None:
    assert counts.parse_collected(CLOSING) == {"Ir": 67978, "Dr": 20, "Dw": 10, "Bc": 5}
    with pytest.raises(BenchError, match=r"^callgrind gave no count: valgrind: no"):
        counts.parse_collected("valgrind: no\n")
    assert counts.parse_calls("fn=(1) a\ncalls=3 +5\n12 9\ncalls=40 -2\n") == 43


def count_of(instructions: float, loads: float = 5.0) -> counts.Counts:
    return counts.Counts(instructions, loads, 2.0, 3.0, 0.0)


def test_growth_beyond_the_slack() -> None:
    baseline = {"a": count_of(20), "b": count_of(20), "c": count_of(20), "gone": count_of(5)}
    now = {"a": count_of(20.3), "b": count_of(21), "c": count_of(20, 6), "new": count_of(9)}
    grown = counts.growths(baseline, now)
    assert [(growth.path, growth.kind) for growth in grown] == [
        ("b", "instructions"),
        ("c", "loads"),
    ]
    assert str(grown[0]).startswith("b: 20.00 -> 21.00 instructions an operation; ")
    said = instructions.complaints({"k": baseline}, {"k": now})
    assert said[-1] == "no baseline: new (k); run bench/instructions.py --update"
    assert len(said) == 3


def test_committed_baseline_is_valid() -> None:
    baseline = counts.load_baseline(BENCH / "instructions.json")
    assert baseline
    for key, rows in baseline.items():
        assert len(key.split()) == 4, key
        assert all(each.instructions > 0 for each in rows.values())
        if "check1" in key:
            assert set(rows) == counted_paths(), key


def test_instructions_without_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counts, "find_valgrind", lambda: "valgrind")
    assert instructions.main(["--build", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"instructions: {tmp_path}/bench_paths is missing: build with ")
    monkeypatch.setattr(counts, "find_valgrind", lambda: None)
    assert instructions.main(["--check"]) == 77
    assert capsys.readouterr().out.startswith("skipped: valgrind was not found")


def test_bad_baseline(tmp_path: Path) -> None:
    path = tmp_path / "instructions.json"
    path.write_text("[1]")
    with pytest.raises(BenchError, match="not a baseline of counts by key and path"):
        counts.load_baseline(path)
