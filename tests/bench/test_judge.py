# SPDX-License-Identifier: Apache-2.0
"""Verdicts, ratios, means and instruction counts; each expected value is calculated by hand."""

from __future__ import annotations

from pathlib import Path

import instructions
import pytest
from driver import counts, judge
from driver.contenders import Contender
from driver.judge import Plan, reaches, score, score_mean
from driver.measure import Figures
from driver.rows import Row
from driver.stats import Interval, geometric_mean, interval, order_rank, ratio
from driver.tools import BenchError

OURS = Contender("spanwise", ("ours",))
FAST, SLOW = Contender("fast", ("fast",)), Contender("slow", ("slow",))


def figures(**series: list[float]) -> dict[Contender, list[Figures]]:
    who = {"ours": OURS, "fast": FAST, "slow": SLOW}
    return {who[name]: [{"ns": value} for value in values] for name, values in series.items()}


def row(**changes: object) -> Row:
    return Row("a", "inline x", ("linked x",), **{"target": 1.5, **changes})  # type: ignore[arg-type]


def judged(one: Plan, values: dict[Contender, list[Figures]], **bases: Plan) -> judge.Score:
    return score(one, values, {}, bases, judged=True)


# --- statistics -----------------------------------------------------------------------------------


def test_order_statistics_by_hand() -> None:
    """Of ten values the second smallest and second largest: 1 - 2 (1 + 10) / 1024 = 0.9785."""
    assert order_rank(10) == (2, 1 - 22 / 1024)
    assert order_rank(5) == (1, 1 - 2 / 32)
    found = interval([5, 1, 9, 3, 7, 2, 8, 4, 6, 10])
    assert (found.median, found.low, found.high) == (5.5, 2, 9)


def test_a_ratio_is_taken_in_each_repetition() -> None:
    """Medians 20 / 10 = 2, but the repetitions' ratios are 1, 2 and 8."""
    assert ratio([10, 20, 80], [10, 10, 10]).median == 2
    assert ratio([10, 20, 80], [1, 20, 40]).median == 2
    with pytest.raises(ValueError, match="argument"):
        ratio([1, 2], [1])


def test_geometric_mean() -> None:
    assert geometric_mean([1, 4, 16]) == pytest.approx(4)
    with pytest.raises(ValueError, match="no values"):
        geometric_mean([])


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "target", "met"),
    [
        (1.2, 1.5, 1.5, True),
        (1.2, 1.51, 1.5, False),
        (0.5, 0.7, 0.6, False),
        (0.9, 1.1, 1.0, True),
        (1.01, 1.1, 1.0, False),
        (0.6, 2.4, 1.0, False),
        (0.4, 1.2, 1.0, True),
    ],
)
def test_the_whole_interval_reaches_the_target(
    low: float, high: float, target: float, met: bool
) -> None:
    assert reaches(Interval((low + high) / 2, low, high, 0.98), target) is met


def test_overlap_does_not_meet_a_limit() -> None:
    assert not reaches(Interval(1.0, 0.9, 1.1, 0.98), 1.0, overlap=False)


def test_the_best_peer_is_the_one_with_the_least_median() -> None:
    one = Plan(row(), OURS, [SLOW, FAST])
    found = judged(one, figures(ours=[3.0] * 3, fast=[2.0] * 3, slow=[4.0] * 3))
    assert (found.peer_name, found.peer, found.verdict) == ("fast", 2.0, "met")
    assert found.ratio is not None and found.ratio.median == 1.5


def test_a_limit_is_in_the_unit_of_the_value() -> None:
    one = Plan(Row("a", "arenas x", limit=2.0, per=10), OURS)
    assert judged(one, figures(ours=[19.0] * 3)).verdict == "met"
    found = judged(one, figures(ours=[21.0] * 3))
    assert (found.ours, found.verdict, found.peer) == (2.1, "missed", 2.0)


def test_spare_widens_the_target_by_an_absolute_amount() -> None:
    """0.5 above 2 is 1.25 of it, more than the target of 1.1."""
    one = Plan(row(target=1.1, spare=0.5), OURS, [FAST])
    assert judged(one, figures(ours=[2.5] * 3, fast=[2.0] * 3)).verdict == "met"
    assert judged(one, figures(ours=[2.6] * 3, fast=[2.0] * 3)).verdict == "missed"


def test_a_base_divides_both_sides() -> None:
    """Ours grows from 2 to 6, the peer from 1 to 2: 3 against 2."""
    small, large = Contender("spanwise", ("small",)), Contender("fast", ("small",))
    base = Plan(row(), small, [large])
    values = {**figures(ours=[6.0] * 3, fast=[2.0] * 3), small: [{"ns": 2.0}] * 3}
    values[large] = [{"ns": 1.0}] * 3
    found = judged(Plan(row(base="b"), OURS, [FAST]), values, b=base)
    assert found.ratio is not None and found.ratio.median == 1.5


def test_no_verdict_without_a_peer_or_with_too_few_repetitions() -> None:
    one = Plan(row(), OURS, [FAST])
    values = figures(ours=[9.0] * 3, fast=[2.0] * 3)
    assert score(one, values, {}, {}, judged=False).verdict == "reported"
    failed = score(one, figures(ours=[1.0]), {FAST: "it fell over"}, {}, judged=True)
    assert (failed.verdict, failed.note) == ("no peer", "it fell over")
    lacking = score(Plan(row(), OURS, [], "needs x", "no peer"), values, {}, {}, judged=True)
    assert (lacking.verdict, lacking.note) == ("no peer", "needs x")


def test_a_peer_at_zero_gives_no_ratio() -> None:
    found = judged(Plan(row(), OURS, [FAST]), figures(ours=[1.0], fast=[0.0]))
    assert (found.verdict, found.ratio, found.note) == ("reported", None, "the peer's value is 0")


def test_ours_failing_is_a_failed_row() -> None:
    one = Plan(row(), OURS, [FAST])
    found = score(one, figures(fast=[2.0]), {OURS: "signal 11"}, {}, judged=True)
    assert (found.verdict, found.note) == ("failed", "signal 11")


# --- means ----------------------------------------------------------------------------------------


def mean_plans() -> tuple[list[Plan], dict[Contender, list[Figures]]]:
    """Two rows: ours 2 and 8 (mean 4), fast 1 and 4 (2), glibc 8 and 8 (8)."""
    plans: list[Plan] = []
    values: dict[Contender, list[Figures]] = {}
    for name, numbers in (("p1", (2, 1, 8)), ("p2", (8, 4, 8))):
        who = [Contender(one, (name,)) for one in ("spanwise", "fast", "glibc")]
        plans.append(Plan(Row(name, "pattern x", ("y",)), who[0], who[1:]))
        values |= {w: [{"ns": float(n)}] * 3 for w, n in zip(who, numbers, strict=True)}
    return plans, values


def test_a_rank_counts_who_is_lower() -> None:
    plans, values = mean_plans()
    found = score_mean(Row("m", rows=("p?",), rank=2), plans, values, judged=True)
    assert found.ratio is not None
    assert (found.ratio.median, found.verdict) == (2.0, "met")
    assert found.ours == pytest.approx(0.5)
    assert found.note == "over glibc: fast 0.250, spanwise 0.500, glibc 1.000"
    first = score_mean(Row("m", rows=("p?",), rank=1), plans, values, judged=True)
    assert first.verdict == "missed"


def test_a_mean_is_over_the_best_of_each_row() -> None:
    plans, values = mean_plans()
    found = score_mean(Row("m", rows=("p1", "p2"), target=2.1), plans, values, judged=True)
    assert found.ratio is not None and found.ratio.median == pytest.approx(2.0)
    assert found.verdict == "met"


def test_a_mean_needs_all_its_rows() -> None:
    plans, values = mean_plans()
    plans[1].verdict = "no peer"
    assert score_mean(Row("m", rows=("p?",)), plans, values, judged=True).verdict == "no peer"


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
    assert str(grown[0]).startswith("b: 20.00 -> 21.00 instructions per operation; ")
    said = instructions.complaints({"k": baseline}, {"k": now})
    assert said[-1] == "no baseline: new (k); run bench/instructions.py --update"
    assert len(said) == 3


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


def test_nothing_collected() -> None:
    said = "==1== Events    : Ir Dr Dw\n==1== Collected : 0\n"
    with pytest.raises(BenchError, match="callgrind collected nothing"):
        counts.parse_collected(said)
    assert counts.parse_collected(said.replace("d : 0", "d : 3 2 1")) == {"Ir": 3, "Dr": 2, "Dw": 1}
