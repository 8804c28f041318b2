# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found"
"""The bench tools: statistics, verdicts, targets, parsing, error texts; no times are asserted."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

from bench_lib import cli, contenders, counts, report, runner, scoreboard, stats, targets  # noqa: E402
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


# --- targets.toml ---------------------------------------------------------------------------------


def test_targets_name_rows_that_the_programs_have() -> None:
    known = {*cli.FIGURES, *cli.MORE_FIGURES, "replace_rss/8-1024"}
    for row in TARGETS:
        assert {row.bench, row.peer_bench} <= known, row.name


def test_targets_name_paths_that_are_counted() -> None:
    source = (BENCH / "paths.c").read_text()
    for row in TARGETS:
        assert row.path == "" or f'{{"{row.path}", ' in source, row.name


def test_every_row_has_a_reference_or_a_constant() -> None:
    assert len(TARGETS) >= 35
    assert all(bool(row.reference) != bool(row.constant) for row in TARGETS)


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
            "row 1 (a): reference names a peer, except for peers = 'constant'",
        ),
        ('[[row]]\nname = "a"\nspeed = 3', "row 1 (a): unknown key 'speed'"),
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
    assert cli.choose(names, "pair/16") == ["pair/16"]
    assert cli.choose(names, "pair/*") == ["pair/16", "pair/64"]
    assert cli.choose(names, "/16") == ["pair/16", "zpair/16"]
    assert cli.choose(names, None) == names
    with pytest.raises(BenchError, match=r"^--rows 'quad' matches no row; there are 3: pair/16, "):
        cli.choose(names, "quad")


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


def test_parse_collected() -> None:
    assert counts.parse_collected("==7== Events    : Ir\n==7== Collected : 67978\n==7==\n") == 67978
    with pytest.raises(BenchError, match=r"^callgrind gave no count: valgrind: no"):
        counts.parse_collected("valgrind: no\n")


def test_growth_beyond_the_slack() -> None:
    baseline = {"a": 20.0, "b": 20.0, "gone": 5.0}
    grown = counts.growths(baseline, {"a": 20.05, "b": 21.0, "new": 9.0})
    assert [growth.path for growth in grown] == ["b"]
    assert str(grown[0]).startswith("b: 20.00 -> 21.00 instructions an operation; ")


def test_committed_baseline_is_valid() -> None:
    baseline = counts.load_baseline(BENCH / "instructions.json")
    assert baseline
    for key, rows in baseline.items():
        assert len(key.split()) == 4, key
        assert all(value > 0 for value in rows.values())


def test_bad_baseline(tmp_path: Path) -> None:
    path = tmp_path / "instructions.json"
    path.write_text("[1]")
    with pytest.raises(BenchError, match="not a baseline of counts by key and path"):
        counts.load_baseline(path)
