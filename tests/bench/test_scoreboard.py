# SPDX-License-Identifier: Apache-2.0
"""The scoreboard: statistics and verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runner import counts, stats
from runner.contenders import Field
from runner.runs import Job, Result, Run
from scoreboard import report, scores

from tests.bench.tools import (
    INLINE,
    MIMALLOC,
    PRELOAD,
    SNMALLOC,
    THREE,
    make_run,
    make_target,
    run_of,
)

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


def test_score_takes_the_best_peer() -> None:
    run = make_run({INLINE: [2.5] * 3, SNMALLOC: [2.0] * 3, MIMALLOC: [4.0] * 3})
    row = scores.score(make_target(), Field([INLINE, SNMALLOC, MIMALLOC], {}), run, THREE).as_json()
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
    found = scores.score(make_target(), Field([INLINE, MIMALLOC], {}), run, THREE)
    assert (found.verdict, found.note) == ("no peer", "needs snmalloc >= 0.7")
    assert found.ratio is not None


def test_score_with_too_old_a_reference_is_no_peer() -> None:
    target = make_target(reference=["mimalloc >= 3.0"])
    run = make_run({INLINE: [1.0] * 3, MIMALLOC: [4.0] * 3})
    assert scores.score(target, Field([INLINE, MIMALLOC], {}), run, THREE).verdict == "no peer"


def test_a_wide_interval_is_marked() -> None:
    run = make_run({INLINE: [1.0, 2.0, 5.0], SNMALLOC: [2.0] * 3})
    found = scores.score(make_target(), Field([INLINE, SNMALLOC], {}), run, THREE)
    assert found.note == "noisy: run again on a quiet machine"


def test_score_without_ours_is_missed() -> None:
    run = make_run({SNMALLOC: [4.0] * 3})
    found = scores.score(make_target(), Field([SNMALLOC], {}), run, THREE)
    assert (found.verdict, found.note, found.ours) == ("missed", "ours did not run", None)


def test_score_against_a_constant() -> None:
    target = make_target(
        peers="constant", constant="live bytes", metric="rss_over_live", reference=None, target=1.12
    )
    job = Job("pair/16", INLINE)
    run = Run(
        [job], [{job.key: Result({"rss_over_live": value}, 1)} for value in (1.1, 1.11, 1.12)]
    )
    found = scores.score(target, Field([INLINE], {}), run, THREE)
    assert (found.ours, found.peer_name, found.verdict) == (1.11, "live bytes", "met")


APART = {"apart": ["snmalloc >= 0.7"], "reference": ["mimalloc >= 2.0"], "because": "huge pages"}


def test_a_peer_that_stands_apart_is_shown_and_does_not_compete() -> None:
    run = make_run({INLINE: [2.5] * 3, SNMALLOC: [2.0] * 3, MIMALLOC: [4.0] * 3})
    field = Field([INLINE, SNMALLOC, MIMALLOC], {})
    target = make_target(target=0.7, **APART)
    assert scores.jobs_of([target], field) == run.jobs
    found = scores.score(target, field, run, THREE)
    assert (found.peer_name, found.peer, found.verdict) == ("mimalloc", 4.0, "met")
    assert found.as_json()["note"] == "snmalloc 2.00 ns not compared: huge pages"
    text = report.scoreboard_table([found])
    assert "\nwho competes, and how:\n  pair: snmalloc 2.00 ns not compared: huge pages\n" in text
    assert scores.score(make_target(), field, run, THREE).verdict == "met"


def test_a_peer_that_stands_apart_is_no_reference() -> None:
    run = make_run({INLINE: [2.5] * 3, SNMALLOC: [2.0] * 3, MIMALLOC: [4.0] * 3})
    target = make_target(**{**APART, "reference": ["snmalloc >= 0.7"]})
    found = scores.score(target, Field([INLINE, SNMALLOC, MIMALLOC], {}), run, THREE)
    assert (found.verdict, found.note) == ("no peer", "needs snmalloc >= 0.7")
    # Without the peer the note names what the row asks for; an older one does compete.
    alone = scores.score(target, Field([INLINE], {}), make_run({INLINE: [2.5] * 3}), THREE)
    assert alone.terms == "snmalloc >= 0.7 not compared: huge pages"
    older = replace(SNMALLOC, version="0.6")
    run = make_run({INLINE: [2.5] * 3, older: [2.0] * 3})
    assert scores.score(target, Field([INLINE, older], {}), run, THREE).peer_name == "snmalloc"


def test_ours_with_an_environment_against_one_peer_alone() -> None:
    """Two rows of one bench: ours runs twice, and each row has its own values of ours."""
    small = replace(SNMALLOC, basis="preload")
    huge = replace(MIMALLOC, basis="preload", name="mimalloc3", version="3.1.5")
    field = Field([PRELOAD, small, huge], {})
    common = {"bench": "cold/16x1M", "ours": "preload", "peers": "preload", "target": None}
    plain = make_target(**{**common, **APART, "apart": ["mimalloc >= 3.0"]})
    advised = make_target(
        **common,
        name="huge",
        reference=["mimalloc >= 3.0"],
        only=["mimalloc >= 3.0"],
        environment={"SPANWISE_THP": "advise"},
        because="both ask",
    )
    ours = replace(PRELOAD, variables=(("SPANWISE_THP", "advise"),))
    run = run_of(
        {
            ("cold/16x1M", PRELOAD): [{"op": 11e-9}] * 3,
            ("cold/16x1M", small): [{"op": 12e-9}] * 3,
            ("cold/16x1M", huge): [{"op": 5e-9}] * 3,
            ("cold/16x1M", ours): [{"op": 6e-9}] * 3,
        }
    )
    jobs = scores.jobs_of([plain, advised], field)
    assert {job.key for job in jobs} == {job.key for job in run.jobs} and len(jobs) == 4
    assert scores.jobs_of([advised], field) == [Job("cold/16x1M", c) for c in (ours, huge)]
    found = scores.score(advised, field, run, THREE)
    assert (found.ours, found.peer_name, found.peer) == pytest.approx((6.0, "mimalloc3", 5.0))
    assert found.terms == ("ours with SPANWISE_THP=advise, against mimalloc >= 3.0 alone: both ask")
    found = scores.score(plain, field, run, THREE)
    assert (found.ours, found.peer_name, found.peer) == pytest.approx((11.0, "snmalloc", 12.0))


def test_a_failed_repetition_leaves_no_value_but_a_line() -> None:
    run = make_run({INLINE: [1.0, 1.0]})
    run.repetitions[1][run.jobs[0].key] = Result({}, 0, "ended with status -11: no message")
    assert run.values("pair/16", INLINE, "op") == []
    assert run.failures() == [
        "pair/16, spanwise (inline): ended with status -11: no message (1 of 2)"
    ]


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
    found = scores.score(target, Field([INLINE, SNMALLOC], {}), run, THREE)
    assert (found.peer_name, found.verdict) == ("itself at scaling_pair/2", "met")
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(1.1)
    assert scores.jobs_of([target], Field([INLINE, SNMALLOC], {})) == run.jobs


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
    found = scores.score(target, field, run, THREE)
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(1.5)
    assert (found.peer_name, found.verdict) == ("snmalloc", "missed")
    assert scores.jobs_of([target], field) == run.jobs


def test_a_row_without_a_target_is_reported() -> None:
    run = make_run({INLINE: [9.0] * 3, SNMALLOC: [2.0] * 3})
    found = scores.score(make_target(target=None), Field([INLINE, SNMALLOC], {}), run, THREE)
    assert found.verdict == "reported"
    assert found.as_json()["target"] is None
    assert report.scoreboard_table([found]).splitlines()[-1].endswith("0 no peer, 1 reported")


def test_a_row_that_needs_more_memory_is_skipped() -> None:
    run = make_run({INLINE: [9.0] * 3, SNMALLOC: [2.0] * 3})
    found = scores.score(
        make_target(needs_gb=11), Field([INLINE, SNMALLOC], {}), run, THREE, free=3.25
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
    found = scores.score(target, Field([], {}), Run([]), THREE, counts=known)
    assert (found.verdict, found.ours, found.target.unit) == ("met", 104, "instr")
    assert scores.score(target, Field([], {}), Run([]), THREE).verdict == "no peer"


def test_a_missed_row_tells_its_cause() -> None:
    run = make_run({INLINE: [9.0] * 3, SNMALLOC: [2.0] * 3})
    field = Field([INLINE, SNMALLOC], {})
    missed = scores.score(make_target(cause="70 instructions a pair"), field, run, THREE)
    met = scores.score(make_target(target=9.0, cause="never shown"), field, run, THREE)
    text = report.scoreboard_table([missed, met])
    assert "  pair: 70 instructions a pair" in text
    assert "never shown" not in text
    assert missed.as_json()["cause"] == "70 instructions a pair"
