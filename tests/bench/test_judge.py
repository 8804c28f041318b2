# SPDX-License-Identifier: Apache-2.0
"""Verdicts: intervals, weaker targets by machine, and repetitions. Each expected word by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runner import counts
from runner.contenders import Field
from runner.runs import Run
from runner.stats import Interval
from scoreboard import cli, judge, machine, report, scores, scripted, show, targets_file
from scoreboard.judge import Bar, Rules
from scoreboard.machine import Machine
from scoreboard.targets import Weaker

from tests.bench.tools import FILE, INLINE, MACHINES, SNMALLOC, TARGETS, make_run, make_target

WEAKER = [{"machine": "slow", "target": 2.1, "prototype": "transition", "figure": 2.17}]
ROW: dict[str, Any] = {"weaker": WEAKER, "decision": "0018", "cause": "two forwards"}
FIELD = Field([INLINE, SNMALLOC], {})


def interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 0.98, 10)


# --- intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "target", "said"),
    [
        (1.2, 1.5, 1.5, "met"),
        (1.2, 1.51, 1.5, "missed"),
        (0.9, 1.1, 1.0, "met"),
        (1.01, 1.1, 1.0, "missed"),
        (0.6, 2.4, 1.0, "missed"),
        (0.4, 1.2, 1.0, "met"),
        (0.5, 0.7, 0.6, "missed"),
        (1.05, 1.15, 1.1, "missed"),
    ],
)
def test_the_whole_interval_is_within_but_for_a_target_of_one(
    low: float, high: float, target: float, said: str
) -> None:
    assert judge.verdict(interval(low, high), Bar(target)) == said


@pytest.mark.parametrize(
    ("low", "high", "target", "said"),
    [(0.9, 1.0, 1.0, "met"), (0.9, 1.01, 1.0, "missed"), (1.0, 1.2, 1.16, "missed")],
)
def test_a_weaker_target_is_never_met_by_overlap(
    low: float, high: float, target: float, said: str
) -> None:
    """The first two were asked 0.6; the last 1.0, with which it overlaps."""
    bar = Bar(target, Weaker("slow", target, "transition", target))
    assert judge.verdict(interval(low, high), bar) == said


# --- machines -------------------------------------------------------------------------------------


def test_a_weaker_target_holds_on_its_machine_alone() -> None:
    """1.75: above the 1.5 that was asked, within the 2.1 of the slow machine."""
    run = make_run({INLINE: [3.5] * 3, SNMALLOC: [2.0] * 3})
    found = {
        key: scores.score(make_target(**ROW), FIELD, run, Rules(3, key))
        for key in ("slow", "fast", machine.UNKNOWN)
    }
    assert [score.verdict for score in found.values()] == ["met", "missed", "reported"]
    assert [score.bar.limit for score in found.values()] == [2.1, 1.5, 1.5]
    assert [score.note for score in found.values()] == ["", "", "machine class unknown"]
    assert [score.is_eased for score in found.values()] == [True, False, False]


def test_what_is_asked_holds_on_every_machine() -> None:
    run = make_run({INLINE: [3.5] * 3, SNMALLOC: [2.0] * 3})
    for key in ("slow", "fast", machine.UNKNOWN):
        assert scores.score(make_target(), FIELD, run, Rules(3, key)).verdict == "missed"


def test_each_machine_has_its_own_weaker_target() -> None:
    two = [*WEAKER, {"machine": "fast", "target": 1.7, "prototype": "sized", "figure": 1.8}]
    target = make_target(weaker=two, decision="0018")
    run = make_run({INLINE: [3.5] * 3, SNMALLOC: [2.0] * 3})
    found = [scores.score(target, FIELD, run, Rules(3, key)) for key in ("slow", "fast")]
    assert [(score.bar.limit, score.verdict) for score in found] == [(2.1, "met"), (1.7, "missed")]


def test_a_weaker_target_is_shown_with_what_was_asked_and_its_prototype() -> None:
    run = make_run({INLINE: [3.5] * 3, SNMALLOC: [2.0] * 3})
    slow, fast, unknown = (
        scores.score(make_target(**ROW), FIELD, run, Rules(3, key))
        for key in ("slow", "fast", machine.UNKNOWN)
    )
    text = report.scoreboard_table([slow])
    assert "<= 2.1 (asked 1.5)" in text
    assert (
        "  pair: <= 2.1 on slow instead of 1.5: prototype `transition` reached 2.17 "
        "(docs/decisions/0018)\n"
    ) in text
    assert "met above what was asked, and why:\n  pair: two forwards\n" in text
    assert text.endswith("1 met, 0 missed, 0 no peer, 1 of the met ones above what was asked")
    told = slow.as_json()
    assert (told["target"], told["asked"], told["decision"]) == (2.1, 1.5, "0018")
    assert told["weaker"] == WEAKER[0]
    assert told["cause"] == "two forwards"
    for score in (fast, unknown):
        text = report.scoreboard_table([score])
        assert "<= 1.5 " in text and "2.1" not in text and "asked" not in text
        assert (score.as_json()["target"], score.as_json()["weaker"]) == (1.5, None)
    assert "reported (machine class unknown)" in text


@pytest.mark.parametrize(("ours", "eased"), [(2.9, False), (3.1, True)])
def test_a_row_within_what_was_asked_is_not_eased(ours: float, eased: bool) -> None:
    run = make_run({INLINE: [ours] * 3, SNMALLOC: [2.0] * 3})
    found = scores.score(make_target(**ROW), FIELD, run, Rules(3, "slow"))
    assert (found.verdict, found.is_eased) == ("met", eased)


XEON = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 167
model name\t: Intel(R) Xeon(R) Processor
stepping\t: 1

processor\t: 1
vendor_id\t: AnotherVendor
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 243.75
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd0c
"""


def test_the_class_is_read_from_the_first_processor(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(XEON)
    xeon = Machine("GenuineIntel", 6, 167, "Intel(R) Xeon(R) Processor")
    assert machine.this_machine(path) == xeon
    assert str(xeon) == "GenuineIntel family 6 model 167, Intel(R) Xeon(R) Processor"
    assert machine.parse_cpuinfo(ARM) == Machine("0x41", 8, 0xD0C, "")
    assert machine.this_machine(tmp_path / "none") == Machine("", 0, 0, "")


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({}, "fast"),
        ({"vendor": "AuthenticAMD"}, ""),
        ({"family": 7}, ""),
        ({"model": 106}, ""),
        ({"name": "another Xeon"}, ""),
    ],
)
def test_a_class_is_known_when_all_four_words_are_equal(changed: dict[str, Any], key: str) -> None:
    words = {"vendor": "GenuineIntel", "family": 6, "model": 167, "name": "some Xeon", **changed}
    assert machine.key_of(Machine(**words), MACHINES) == key


def test_the_machines_of_the_record_are_known() -> None:
    """docs/measurements/2026-11-22-weaker-targets.md names these two."""
    xeon = machine.parse_cpuinfo(XEON)
    epyc = Machine("AuthenticAMD", 25, 17, "AMD EPYC")
    assert machine.key_of(xeon, FILE.machines) == "xeon-6-167"
    assert machine.key_of(epyc, FILE.machines) == "epyc-25-17"
    assert len(FILE.machines) == 2


def test_alloc64_is_as_weak_as_its_prototypes() -> None:
    (row,) = (row for row in TARGETS if row.name == "Go's Alloc64")
    assert row.target == 0.35
    assert {each.machine: each.target for each in row.weaker} == {
        "xeon-6-167": 0.6,
        "epyc-25-17": 0.4,
    }


# --- repetitions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("made", "said"), [(9, "reported"), (10, "met"), (11, "reported")])
def test_a_row_is_judged_with_the_fixed_repetitions_alone(made: int, said: str) -> None:
    run = make_run({INLINE: [2.0] * made, SNMALLOC: [2.0] * made})
    found = scores.score(make_target(), FIELD, run, Rules(10))
    assert found.verdict == said
    assert found.note == ("" if made == 10 else f"repetitions made: {made}, fixed: 10")
    assert found.ratio is not None


def test_a_short_run_is_not_judged_whatever_failed() -> None:
    found = scores.score(make_target(), FIELD, make_run({SNMALLOC: [2.0]}), Rules(10))
    assert (found.verdict, found.note) == ("reported", "ours did not run")
    found = scores.score(make_target(), FIELD, make_run({INLINE: [2.0]}), Rules(10))
    assert found.verdict == "no peer"


def test_counts_are_exact_and_need_no_repetitions() -> None:
    target = make_target(
        bench="b", peer_bench="a", ours="exported", peers="counts", reference=None, target=1.05
    )
    known = {"a": counts.Counts(100, 1, 1, 1, 0), "b": counts.Counts(106, 1, 1, 1, 0)}
    found = scores.score(target, Field([], {}), Run([]), Rules(10), counts=known)
    assert (found.verdict, found.note) == ("missed", "")


def test_a_script_that_ran_less_often_is_not_judged() -> None:
    row = next(row for row in TARGETS if row.name.startswith("loop, optimiser"))
    told = {
        "name": row.bench,
        "ours": 0.5,
        "peer_name": "limit",
        "peer": 1.0,
        "ratio": 0.5,
        "low": 0.4,
        "high": 0.6,
        "verdict": "met",
        "note": "",
    }
    ten, nine = (
        scripted.score(row, {"rounds": rounds, "rows": {row.bench: told}}, Rules(10))
        for rounds in (10, 9)
    )
    assert (ten.verdict, ten.note) == ("met", "")
    assert (nine.verdict, nine.note) == ("reported", "repetitions made: 9, fixed: 10")


def test_what_was_fixed_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "this_machine", lambda: MACHINES["slow"])
    show.say_rules(Rules(10, "slow"), 10)
    assert capsys.readouterr().out == (
        "\nmachine class: slow (AuthenticAMD family 25 model 17, some EPYC)\n"
    )
    show.say_rules(Rules(10), 3)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "machine class: unknown (AuthenticAMD family 25 model 17, some EPYC)",
        "rows with weaker targets on known classes are reported, beside what was asked",
        "not judged: repetitions made: 3, fixed in the file of targets: 10",
    ]


# --- the whole command, on programs that print figures -------------------------------------------

PROGRAM = """#!/bin/sh
case $1 in --version) echo 9.9; echo /none; exit ;; esac
printf '{"benchmarks": [{"iterations": 1, "op": %s}]}'
"""
ONE_ROW = """repetitions = 4
[[machine]]
key = "slow"
vendor = "AuthenticAMD"
family = 25
model = 17
name = "some EPYC"
[[row]]
name = "inline pair"
bench = "pair/16"
ours = "inline"
peers = "linked"
target = 1.5
reference = ["rpmalloc >= 2.0"]
decision = "0018"
weaker = [{ machine = "slow", target = 2.1, prototype = "transition", figure = 2.17 }]
"""


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of which ours takes 1.75 times as long as the peer's, and a file of targets."""
    for name, seconds in (
        ("bench_spanwise", "3.5e-9"),
        ("bench_spanwise_bare", "1"),
        ("bench_malloc", "1"),
        ("bench_peer_rpmalloc", "2e-9"),
    ):
        (tmp_path / name).write_text(PROGRAM % seconds)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "targets.toml").write_text(ONE_ROW)
    monkeypatch.setattr("runner.contenders.PRELOADS", {})
    return tmp_path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["slow"], ("met", 2.1)),
        (["fast"], ("reported", 1.5)),
        (["slow", "--repetitions", "3"], ("reported", 2.1)),
        (["slow", "--quick"], ("reported", 2.1)),
    ],
)
def test_a_scoreboard_from_end_to_end(
    build: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: tuple[str, float],
) -> None:
    """On a machine that the file knows, or does not."""
    monkeypatch.setattr(cli, "this_machine", lambda: MACHINES[options[0]])
    words = ["--build", str(build), "--results", str(build / "results"), *options[1:]]
    assert cli.main(["--scoreboard", "--json", "--targets", f"{build}/targets.toml", *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    (raw,) = (build / "results").glob("*.json")
    key = "slow" if options[0] == "slow" else machine.UNKNOWN
    assert json.loads(raw.read_text())["rules"] == {"repetitions": 4, "machine": key}
    assert ((row["verdict"], row["target"]), row["asked"]) == (said, 1.5)
    assert row["ratio"] == pytest.approx(1.75)


def test_the_file_fixes_ten_repetitions() -> None:
    assert targets_file.load(cli.BENCH / "scoreboard/targets.toml").repetitions == 10
