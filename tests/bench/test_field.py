# SPDX-License-Identifier: Apache-2.0
"""The programs of bench/field and the rows that they measure; no times asserted."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest
from runner import counts, simulate
from runner import field as field_runner
from runner.contenders import Contender, Field
from runner.errors import BenchError
from runner.runs import Job, Run, run_job
from runner.stats import geometric_mean
from scoreboard import field_file, selection, targets_file
from scoreboard.judge import Rules
from scoreboard.means import score_programs
from scoreboard.scores import jobs_of, races_of, score
from scoreboard.targets import Requirement, Target
from spanwise._lib import native_library

from tests.bench.tools import BENCH, FILE, PRELOAD, TARGETS, run_of

GLIBC = Contender("glibc", "preload", Path("bench_malloc"), "malloc", None, "2.36")
MIMALLOC3 = Contender("mimalloc3", "preload", Path("bench_malloc"), "malloc", Path("m"), "3.4")
EARLIER = Contender("today", "preload", Path("bench_malloc"), "malloc", Path("t"), "")
PEERS = [Requirement.parse(text, exact=True) for text in ("glibc >= 2", "mimalloc3 >= 3")]
FIXED = {"repetitions": 3, "peers": ["glibc >= 2", "mimalloc3 >= 3"]}


def make_row(**changes: object) -> Target:
    row = {"name": "field, one", "bench": "field/one", **changes}
    return field_file.parse_field_row({k: v for k, v in row.items() if v is not None}, PEERS)


def options(rows: str | None) -> argparse.Namespace:
    return argparse.Namespace(rows=rows)


# --- the programs ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs, as cmake/SpanwiseBench.cmake makes them but for the flags."""
    folder = tmp_path_factory.mktemp("field")
    sources = sorted((BENCH / "field").glob("*.c"))
    phases = BENCH / "field/phases.c"
    programs = {
        "bench_field": [source for source in sources if source != phases],
        "bench_field_phases": [phases],
        "bench_launch": [BENCH.parent / "src/launch/main.c"],
    }
    for name, files in programs.items():
        words = ["cc", "-std=gnu11", "-O1", "-fno-builtin", "-rdynamic", "-pthread", "-o"]
        subprocess.run([*words, str(folder / name), *map(str, files), "-lm"], check=True)
    return folder


def test_the_rows_are_the_programs(built: Path) -> None:
    told = subprocess.run([built / "bench_field"], stdout=subprocess.PIPE, text=True, check=True)
    names = {f"field/{name}" for name in told.stdout.split()} - {"field/small-process"}
    assert {*names, "field/phases"} == set(selection.FIELD_FIGURES)


@pytest.mark.parametrize("bench", selection.FIELD_FIGURES)
def test_a_program_does_the_same_under_ours(bench: str, built: Path) -> None:
    """The check is a sum over what objects held when they were freed."""
    face = str(native_library("libspanwise-malloc.so"))
    plain, ours = (
        field_runner.run_program(built, bench, 1, variables, 60.0)
        for variables in ({}, {"LD_PRELOAD": face})
    )
    assert (plain["ops"], plain["check"]) == (ours["ops"], ours["check"])
    assert plain["ops"] > 0
    assert ours["cpu"] == pytest.approx(ours["op"] * ours["ops"])


def test_the_peak_is_of_the_program_alone(built: Path) -> None:
    """A child starts with the peak of whoever forked it: Python's would be 20 MiB and more."""
    told = field_runner.run_program(built, "field/lifo-1", 1, {}, 60.0)
    assert 0.5 < told["peak"] < 8.0


def test_the_latency_of_the_slowest_calls_is_told(built: Path) -> None:
    told = field_runner.run_program(built, "field/latency", 1, {}, 60.0)
    assert told["malloc_p999"] > 0
    assert told["free_p999"] > 0


def test_phases_have_a_clock_of_their_own(built: Path) -> None:
    """A library that is preloaded and asks for the time gets the program's, from 1 s on."""
    text = (
        "#include <time.h>\n#include <stdio.h>\n__attribute__((destructor)) static void tell(void)"
    )
    text += (
        '{struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); printf("now %ld\\n", t.tv_sec);}'
    )
    source, library = built / "ask.c", built / "ask.so"
    source.write_text(text, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    told = field_runner.run_program(built, "field/phases", 1, {"LD_PRELOAD": str(library)}, 60.0)
    # Four cycles of five phases of 60 s, from 1 s on; each phase falls short by less than a step.
    assert 1200 <= told["now"] <= 1201


GROWTH = """
#define main phases_main
#include "field/phases.c"
#undef main
int main(int count, char **words) {
    double values[LONG];
    for (int i = 2; i < count; i++) values[i - 2] = atof(words[i]);
    printf("%.9f", growth_of(values, (uint32_t)(count - 2), atof(words[1])));
}
"""


@pytest.mark.parametrize(
    ("values", "student", "expected"),
    [
        # A line without noise: 3 steps of 10, over a mean of 115.
        ([100, 110, 120, 130], 6.314, 30 / 115),
        ([130, 120, 110, 100], 6.314, 0.0),
        # Slope 0.5, residuals -0.25, 0.75, -0.75, 0.25: their squares make 1.25, the standard error
        # of the slope is sqrt(1.25 / 2 / 5). One error below the slope are 3 steps of 0.146447.
        ([10, 11.5, 10.5, 12], 1.0, 3 * (0.5 - 0.125**0.5) / 11),
        ([10, 11.5, 10.5, 12], 2.92, 0.0),
    ],
)
def test_growth_is_what_the_noise_of_cycles_does_not_explain(
    tmp_path: Path, values: list[float], student: float, expected: float
) -> None:
    (tmp_path / "growth.c").write_text(GROWTH, encoding="utf-8")
    words = ["cc", "-std=gnu11", "-I", str(BENCH), "-I", str(BENCH / "field"), "-o"]
    subprocess.run(
        [*words, str(tmp_path / "growth"), str(tmp_path / "growth.c"), "-lm"], check=True
    )
    given = [str(value) for value in (student, *values)]
    told = subprocess.run([str(tmp_path / "growth"), *given], stdout=subprocess.PIPE, check=True)
    assert float(told.stdout) == pytest.approx(expected, abs=1e-8)


def test_a_leak_is_growth(built: Path) -> None:
    """One of a thousand calls of malloc leaks a page."""
    text = (
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdlib.h>\n#include <string.h>\n"
        "void *malloc(size_t size) { static void *(*next)(size_t); static unsigned calls;"
        ' if (!next) next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");'
        " if (++calls % 1000 == 0) memset(next(4096), 1, 4096); return next(size); }"
    )
    source, library = built / "leak.c", built / "leak.so"
    source.write_text(text, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    told = field_runner.run_program(built, "field/phases", 1, {"LD_PRELOAD": str(library)}, 60.0)
    # Two million calls leak 2,000 pages; from the second of four cycles to the last 1,000.
    assert told["rss_growth"] > 1.02


def test_a_program_that_fails_is_a_result(built: Path, tmp_path: Path) -> None:
    (tmp_path / "bench_field").write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    (tmp_path / "bench_field").chmod(0o755)
    (tmp_path / "bench_launch").symlink_to(built / "bench_launch")
    who = Contender("glibc", "preload", tmp_path / "bench_malloc", "malloc")
    assert run_job(Job("field/x", who), 0.05).error == "cannot run: ended with exit 3"
    (tmp_path / "bench_field").write_text("#!/bin/sh\necho ops 3\n")
    assert "no ops and check" in run_job(Job("field/x", who), 0.05).error


def test_an_interrupt_is_no_result(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C goes on as such, also when the program has just ended and there is nobody to kill."""

    def interrupted(child: subprocess.Popen[str], **_: float) -> tuple[str, str]:
        child.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_job(Job("field/lifo-1", Contender("g", "preload", built / "x", "malloc")), 0.0)


@pytest.mark.parametrize(("seconds", "percent"), [(0.05, 100), (0.02, 40), (0.0, 1), (1.0, 100)])
def test_the_share_of_the_work(seconds: float, percent: int) -> None:
    assert field_runner.percent_of(seconds) == percent


# --- by simulation --------------------------------------------------------------------------------


def test_totals_of_cachegrind() -> None:
    told = "==7== I   refs:      23,326,959\n==7== Branches:  3 (2 cond + 1 ind)\n"
    told += "==7== Mispredicts:      236,310  (  236,044 cond +     266 ind)\n"
    assert simulate.parse_totals(told) == {"instructions": 23326959, "mispredicted": 236310}
    with pytest.raises(BenchError, match="cachegrind gave no count: valgrind: no"):
        simulate.parse_totals("valgrind: no\n")


def test_what_an_operation_executes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: (900 - 300) / (30 - 10) instructions, (50 - 30) / 20 mispredictions."""
    runs = {1: ({"instructions": 300, "mispredicted": 30}, 10.0)}
    runs[3] = ({"instructions": 900, "mispredicted": 50}, 30.0)
    monkeypatch.setattr(simulate, "find_valgrind", lambda: "valgrind")
    monkeypatch.setattr(simulate, "_run", lambda _, percent: runs[percent])
    job = Job("field/one", GLIBC)
    found = simulate.simulate(job)
    assert found == simulate.Simulated(30.0, 1.0)
    assert simulate.tables([job], [found])["mispredicted"][1] == ["field/one", "1.000"]


def test_a_simulated_program(built: Path) -> None:
    if counts.find_valgrind() is None:
        pytest.skip("lacks valgrind")
    found = simulate.simulate(Job("field/lifo-1", Contender("g", "preload", built / "x", "malloc")))
    assert found is not None
    assert 20 < found.instructions < 500
    assert 0 <= found.mispredicted < 5


# --- the rows -------------------------------------------------------------------------------------


def test_rows_of_the_field_only_when_asked_for() -> None:
    every = selection.chosen_targets(FILE, options(None), scripted=False)
    field = selection.chosen_targets(FILE, options("field*"), scripted=False)
    assert not any(row.is_field for row in every)
    assert field == [row for row in TARGETS if row.name.startswith("field")]
    assert FILE.field_repetitions == 15


def test_the_field_is_of_eight() -> None:
    rank = next(row for row in TARGETS if row.peers == "rank")
    assert sorted(need.family for need in rank.reference) == [
        "glibc",
        "jemalloc",
        "mimalloc",
        "mimalloc3",
        "rpmalloc",
        "snmalloc",
        "tcmalloc",
    ]
    assert [n.family for n in rank.reference if n.met_by("mimalloc3", "3.4")] == ["mimalloc3"]


def test_what_is_asked_of_the_patterns() -> None:
    """The numbers of the issue, which no later change may weaken."""
    asked = {(r.bench, r.metric, r.peers): r.target for r in TARGETS if r.is_field}
    wanted = {
        "random-1k": 1.25,
        "random-5k": 1.2,
        "random-10k": 1.2,
        "handover-1": 1.1,
        "handover-2": 1.1,
        "random-100k": 1.25,
        "random-1m": 1.0,
        "random-100": 1.1,
        "random-300": 1.1,
        "big-numbers": 1.1,
        "lifo-1": 1.1,
        "lifo-2": 1.1,
        "births": 1.0,
        "cross-16k": 1.0,
    }
    for name, target in wanted.items():
        assert asked[f"field/{name}", "cpu", "preload"] == target, name
    assert asked["field/cross-16k", "elapsed", "preload"] == 1.05
    assert asked["field/latency", "malloc_p999", "preload"] == 1.0
    assert asked["field/latency", "free_p999", "preload"] == 1.0
    assert asked["field/phases", "rss_growth", "constant"] == 1.0
    assert asked["24 programs", "cpu", "rank"] == asked["24 programs", "peak", "rank"] == 2
    assert asked["10 programs", "peak", "mean"] == 1.03


def test_an_earlier_library_competes_only_where_it_is_named() -> None:
    field = Field([PRELOAD, GLIBC, MIMALLOC3, EARLIER], {})
    best, today = make_row(), make_row(against="today", target=1.1)
    names = [[job.contender.name for job in jobs_of([row], field)] for row in (best, today)]
    assert names == [["spanwise", "glibc", "mimalloc3"], ["spanwise", "today"]]
    assert races_of([best, today], field) == []  # nobody is spared: means need all


def test_a_row_is_judged_by_ratio_or_by_what_may_be_spare() -> None:
    row = make_row(metric="peak", target=1.15, spare=0.375)
    values = {PRELOAD: [1.3] * 3, GLIBC: [1.0] * 3, MIMALLOC3: [2.0] * 3}
    run = run_of({("field/one", who): [{"peak": v} for v in s] for who, s in values.items()})
    small = score(row, Field(list(values), {}), run, Rules(3))
    assert (small.verdict, small.bar.limit) == ("met", 1.375)
    values = {PRELOAD: [13.0] * 3, GLIBC: [10.0] * 3, MIMALLOC3: [20.0] * 3}
    run = run_of({("field/one", who): [{"peak": v} for v in s] for who, s in values.items()})
    large = score(row, Field(list(values), {}), run, Rules(3))
    assert (large.verdict, large.bar.limit) == ("missed", 1.15)


Series = dict[Contender, tuple[list[float], list[float]]]


def two_programs(**changes: object) -> Target:
    return make_row(bench=None, programs=["field/a", "field/b"], **changes)


def run_of_two(series: Series) -> Run:
    """CPU times of the programs a and b by repetition."""
    return run_of(
        {
            (bench, who): [{"cpu": value} for value in values]
            for who, pair in series.items()
            for bench, values in zip(("field/a", "field/b"), pair, strict=True)
        }
    )


# Means by hand: ours sqrt(1 * 4) = 2, glibc sqrt(4 * 4) = 4, mimalloc3 sqrt(0.5 * 2) = 1.
SERIES: Series = {
    PRELOAD: ([1.0] * 3, [4.0] * 3),
    GLIBC: ([4.0] * 3, [4.0] * 3),
    MIMALLOC3: ([0.5] * 3, [2.0] * 3),
}


def test_the_rank_is_by_geometric_means() -> None:
    field, run = Field(list(SERIES), {}), run_of_two(SERIES)
    found = score_programs(two_programs(against="rank", target=2), field, run, Rules(3))
    assert found.ratio is not None
    assert (found.verdict, found.ratio.median, found.ours) == ("met", 2.0, 0.5)
    assert (found.peer_name, found.peer) == ("mimalloc3", 0.25)
    assert found.terms == "rank by means, glibc = 1: mimalloc3 0.250, ours 0.500, glibc 1.000"
    first = score_programs(two_programs(against="rank", target=1), field, run, Rules(3))
    assert first.verdict == "missed"


def test_a_tie_takes_no_rank() -> None:
    series: Series = {**SERIES, MIMALLOC3: SERIES[PRELOAD]}
    row, field = two_programs(against="rank", target=2), Field(list(series), {})
    found = score_programs(row, field, run_of_two(series), Rules(3))
    assert found.ratio is not None
    assert found.ratio.median == 1.0


def test_the_rank_needs_the_whole_field() -> None:
    few: Series = {who: SERIES[who] for who in (PRELOAD, GLIBC)}
    row = two_programs(against="rank", target=2)
    found = score_programs(row, Field(list(few), {}), run_of_two(few), Rules(3))
    assert (found.verdict, found.note) == ("no peer", "needs mimalloc3 >= 3")


def test_a_run_of_another_length_is_not_judged() -> None:
    row = two_programs(against="rank", target=2)
    found = score_programs(row, Field(list(SERIES), {}), run_of_two(SERIES), Rules(15))
    assert (found.verdict, found.note) == ("reported", "repetitions made: 3, fixed: 15")


def test_a_mean_is_against_the_best_of_each_program() -> None:
    """By hand: a's best is mimalloc3's 0.5, b's glibc's 1; ours over both is 2 / sqrt(0.5)."""
    series: Series = {**SERIES, GLIBC: ([4.0] * 3, [1.0] * 3)}
    row = two_programs(against="mean", target=1.03)
    found = score_programs(row, Field(list(series), {}), run_of_two(series), Rules(3))
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(2 / 0.5**0.5)
    assert (found.verdict, found.peer_name) == ("missed", "best of each")


def test_geometric_mean() -> None:
    assert geometric_mean([1.0, 8.0]) == pytest.approx(8**0.5)
    with pytest.raises(ValueError, match="no values"):
        geometric_mean([])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "one"}, "the name of a row of the field begins with 'field'"),
        ({"against": "worst"}, "against is 'worst'"),
        ({"metric": "smell"}, "metric is 'smell'"),
        ({"programs": ["field/a"]}, "programs belong to"),
        ({"against": "rank"}, "programs belong to"),
        ({"target": 0}, "target is 0"),
        ({"tarmet": 1}, "unknown key 'tarmet'"),
    ],
)
def test_bad_rows(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_row(**changes)


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(
        "repetitions = 3\n[[row]]\nname = 'a'\nbench = 'b'\nours = 'preload'\npeers = 'constant'\n"
        "constant = 'c'\n[field]\nrepetitions = 3\n[[field.row]]\nname = 'field x'\nmetric = 'y'\n",
        encoding="utf-8",
    )
    with pytest.raises(BenchError, match=r"field: row field x: metric is 'y'"):
        targets_file.load(path)
