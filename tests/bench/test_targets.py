# SPDX-License-Identifier: Apache-2.0
"""bench/scoreboard/targets.toml, and rows that scripts measure."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from runner.errors import BenchError
from scoreboard import (
    arena_speed,
    buffer_speed,
    cli,
    loop_speed,
    range_speed,
    scripted,
    selection,
    targets,
    targets_file,
)
from scoreboard.machine import Machine
from spanwise.lessons.service import serve

from tests.bench.tools import TARGETS, counted_paths, make_target

FIXED = "repetitions = 3\n"
MACHINE = "[[machine]]\nkey = 'fast'\nvendor = 'V'\nfamily = 6\nmodel = 1\nname = 'N'\n"
DECISIONS = Path(__file__).resolve().parents[2] / "docs/decisions"

# --- targets.toml ---------------------------------------------------------------------------------


def test_targets_name_rows_that_the_programs_have() -> None:
    known = {
        *selection.FIGURES,
        *selection.MORE_FIGURES,
        *selection.HEAVY_FIGURES,
        *selection.RATIO_ROWS,
        *selection.FIELD_FIGURES,
    }
    for row in TARGETS:
        if row.programs:
            assert set(row.programs) <= known, row.name
        elif row.peers != "counts" and not row.script:
            assert {row.bench, row.peer_bench, row.base or row.bench} <= known, row.name


def test_scripted_targets_are_those_of_the_script() -> None:
    found = {row.bench: row for row in TARGETS if row.script == "loop_speed.py"}
    assert list(found) == [row.name for row in loop_speed.ROWS]
    assert all(found[row.name].unit == row.unit for row in loop_speed.ROWS)
    limits = [row.limit for row in found.values() if row.limit is not None]
    assert limits == [1.0, 1.0, 30.0, 30.0]


def test_range_targets_are_those_of_the_script() -> None:
    found = {row.bench: row for row in TARGETS if row.script == "range_speed.py"}
    assert list(found) == [row.name for row in range_speed.ROWS]
    limits = [row.limit for row in found.values()]
    assert limits == [0.8, 0.8, 0.6, 0.7, 0.7, 0.7, 1.0, 0.5]


def test_arena_targets_are_those_of_the_script() -> None:
    found = {row.bench: row for row in TARGETS if row.script == "arena_speed.py"}
    assert list(found) == [row.name for row in arena_speed.ROWS]
    limits = [row.limit for row in found.values() if row.limit is not None]
    limits_new = [0.05, 0.08] * 2
    assert limits == [1.5, 1.5, *limits_new, 0.1, 0.4, 0.5, 0.2, 0.7, *[0.1] * 4, 2.0]


def test_rows_without_a_peer_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    arena_speed.go_program.cache_clear()
    row = next(row for row in arena_speed.ROWS if row.name == "new 32 B, Go arena")
    found = loop_speed.measured(row, loop_speed.Setting(Path("none"), 1, True), 0.05)
    assert (found["verdict"], found["ours"], found["ratio"]) == ("no peer", None, None)
    assert found["note"] == "there is no Go toolchain"


@pytest.mark.skipif("SPANWISE_FULL_TESTS" not in os.environ, reason="builds Go's side")
def test_the_server_in_go_replies_the_same() -> None:
    arena_speed.go_program.cache_clear()
    told = arena_speed.go_times(loop_speed.Setting(Path("none"), 1, False))
    ours = serve("batch", messages=3200, connections=1000, latencies=False)
    assert told["checksum"] == ours.checksum % 2**32


def test_buffer_targets_are_those_of_the_script() -> None:
    found = {row.bench: row for row in TARGETS if row.script == "buffer_speed.py"}
    assert list(found) == [row.name for row in buffer_speed.ROWS]
    assert [row.limit for row in found.values()] == [0.7] * 8 + [1.0, 1.5, 1.5, 2.0]


def told(**times: float) -> str:
    """What bench_ranges prints with --benchmark_format=json."""
    rows = [{"name": f"{name}/range/find", "cpu_time": time} for name, time in times.items()]
    return json.dumps({"benchmarks": rows})


def test_a_range_is_compared_with_its_reference() -> None:
    text = told(two=3.0, wide=2.0, single=4.0, reference_two=8.0)
    assert range_speed.BENCH.ratio(text, "find", ("two",), "reference_two") == 0.375
    assert range_speed.BENCH.ratio(text, "find", ("two", "wide", "single"), "reference_two") == 0.25
    with pytest.raises(BenchError, match="no row reference_single/range/find"):
        range_speed.BENCH.ratio(text, "find", ("two",), "reference_single")


def test_weaker_targets_have_a_decision_whose_figures_name_them() -> None:
    for row in TARGETS:
        if not row.weaker:
            continue
        notes = list(DECISIONS.glob(f"{row.decision}-*.md"))
        assert len(notes) == 1, row.name
        linked = re.findall(
            r"\]\((\.\./measurements/[^)#]+)\)", notes[0].read_text(encoding="utf-8")
        )
        figures = [(DECISIONS / page).read_text(encoding="utf-8") for page in linked]
        assert any(f"| {row.name} |" in page for page in figures), row.name


def test_targets_name_paths_that_are_counted() -> None:
    named = {path.removeprefix("bare ") for row in TARGETS for path in row.paths}
    assert len(named) >= 20
    assert named <= counted_paths()


def test_every_row_has_what_it_is_compared_with() -> None:
    assert len(TARGETS) >= 60
    for row in TARGETS:
        assert bool(row.reference) == (row.peers in targets.PROPER or bool(row.programs)), row.name
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
        ("repetitions = 0\n[[row]]", "repetitions is 0; use a number, 1 or more"),
        ("repetitions = 2.5\n[[row]]", "repetitions is 2.5; use a number, 1 or more"),
        ("repetitions = true\n[[row]]", "repetitions is True; use a number, 1 or more"),
        ("[[row]]", "repetitions is None; use a number, 1 or more"),
        (f"{FIXED}[[machine]]\nkey = 'a'\n[[row]]", "machine {'key': 'a'}: use key, vendor, fam"),
        (f"{FIXED}{MACHINE * 2}[[row]]", "machine 'fast' is described twice"),
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
        (
            '[[row]]\nname = "a"\nbench = "x"\ntarget = 2\nweaker = [{ target = 3 }]',
            "row 1 (a): weaker and decision come together: a weaker target has its reason",
        ),
        (
            '[[row]]\nname = "a"\nbench = "x"\ntarget = 2\ndecision = "0018"',
            "row 1 (a): weaker and decision come together: a weaker target has its reason",
        ),
        ('[[row]]\nname = "a"\nspeed = 3', "row 1 (a): unknown key 'speed'"),
        (
            '[[row]]\nname = "loop"\nbench = "x"\nscript = "a.py"\nours = "inline"',
            "row 1 (loop): ours does not belong to a row with a script or limit",
        ),
        (
            '[[row]]\nname = "a"\nbench = "x"\nscript = "a.py"\nunit = "s"',
            "row 1 (a): the name of a row with a script begins with 'arena' or 'gc' or 'loop'",
        ),
        (
            '[[row]]\nname = "loop"\nbench = "x"\nlimit = 3',
            "row 1 (loop): script and unit are missing, or no text",
        ),
    ],
)
def test_bad_targets(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(f"{FIXED}{text}" if said.startswith("row") else text)
    with pytest.raises(BenchError) as caught:
        targets_file.load(path)
    assert str(caught.value).startswith(f"{path}: {said}")


PRELOADED = """[[row]]
name = "a"
bench = "x"
ours = "preload"
peers = "preload"
reference = ["go >= 1"]
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('apart = "mimalloc"', "apart is 'mimalloc'; use a list of 'NAME >= VERSION'"),
        ('apart = ["mimalloc"]', "apart 'mimalloc' is not 'NAME >= VERSION'"),
        ('only = ["go >= 1"]', "because is the reason of apart, only or environment: none without"),
        ('because = "b"', "because is the reason of apart, only or environment: none without"),
        ('only = ["go >= 1"]\napart = ["go >= 2"]', "apart and only do not go together: only"),
        ("environment = 3", "environment is 3; use a table, e.g. { SPANWISE_THP = 'off' }"),
        (
            'environment = { LD_PRELOAD = "x" }',
            "environment has 'LD_PRELOAD'; options of ours begin with SPANWISE_",
        ),
        ("environment = { SPANWISE_THP = 1 }", "environment has SPANWISE_THP = 1; use text"),
        (
            'path = "p"\nenvironment = { SPANWISE_THP = "off" }',
            "environment does not reach what is counted: no path, no counts",
        ),
        ("because = 3", "because is 3; use text"),
    ],
)
def test_bad_terms(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(FIXED + PRELOADED + text)
    with pytest.raises(BenchError) as caught:
        targets_file.load(path)
    assert str(caught.value).startswith(f"{path}: row 1 (a): {said}")


def test_terms_of_rows_that_cannot_have_them() -> None:
    with pytest.raises(ValueError, match="apart names peers for peers = linked or preload or go"):
        make_target(peers="self", peer_bench="y", reference=None, apart=["go >= 1"])
    with pytest.raises(ValueError, match="environment belongs to ours = 'preload', which reads it"):
        make_target(environment={"SPANWISE_THP": "off"})


def test_first_touches_are_compared_like_with_like() -> None:
    """Small pages against small pages, huge ones against huge ones."""
    small, huge = (row for row in TARGETS if row.bench == "cold/16x1M")
    for name, version, is_huge in (
        ("mimalloc", "2.0.9", False),
        ("jemalloc", "5.3.0", False),
        ("mimalloc3", "3.1.5", True),
        ("mimalloc", "3.1.5", True),
    ):
        assert small.admits(name, version) != is_huge, name
        assert huge.admits(name, version) == is_huge, name
    assert (small.environment, huge.environment) == ((), (("SPANWISE_THP", "advise"),))
    assert (small.target, huge.target) == (1.0, None)


WEAKER = """[[row]]
name = "a"
bench = "x"
ours = "inline"
peers = "linked"
reference = ["go >= 1"]
target = 1.5
decision = "0018"
weaker = [{ %s }]
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "machine = 'fast', target = 1.7, figure = 1.8",
            "weaker has {'machine': 'fast', 'target':",
        ),
        (
            "machine = 'fast', target = 1.7, prototype = 'sized', figure = 1.8, why = 'x'",
            "weaker has {'machine': 'fast', 'target': 1.7, 'prototype': 'sized', 'figure': 1.8, 'w",
        ),
        (
            "machine = 'slow', target = 1.7, prototype = 'sized', figure = 1.8",
            "weaker on machine 'slow', which no [[machine]] is",
        ),
        (
            "machine = 'fast', target = 1.7, prototype = 'wish', figure = 1.8",
            "weaker by prototype 'wish', which ./dev study limits lacks",
        ),
        (
            "machine = 'fast', target = 1.5, prototype = 'sized', figure = 1.8",
            "weaker on 'fast' is 1.5: it lies above target",
        ),
        (
            "machine = 'fast', target = 1.81, prototype = 'sized', figure = 1.8",
            "weaker on 'fast' is 1.81, above the 1.8 that its prototype 'sized' reached",
        ),
        (
            "machine = 'fast', target = true, prototype = 'sized', figure = 1.8",
            "target is True; use a ratio above 0",
        ),
        (
            "machine = 'fast', target = 1.7, prototype = 'sized', figure = 1.8 }, "
            "{ machine = 'fast', target = 1.6, prototype = 'sized', figure = 1.8",
            "weaker on 'fast' twice",
        ),
    ],
)
def test_bad_weaker_targets(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(FIXED + MACHINE + WEAKER % text)
    with pytest.raises(BenchError) as caught:
        targets_file.load(path)
    assert str(caught.value).startswith(f"{path}: row 1 (a): {said}")


def test_weaker_targets_are_read(tmp_path: Path) -> None:
    path = tmp_path / "targets.toml"
    text = "machine = 'fast', target = 1.8, prototype = 'sized', figure = 1.8"
    path.write_text(FIXED + MACHINE + WEAKER % text)
    file = targets_file.load(path)
    assert file.repetitions == 3
    assert file.machines == {"fast": Machine("V", 6, 1, "N")}
    assert file.rows[0].target == 1.5
    assert file.rows[0].weaker_on("fast") == targets.Weaker("fast", 1.8, "sized", 1.8)
    assert file.rows[0].weaker_on("slow") is None


def test_missing_targets(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="No such file or directory"):
        targets_file.load(tmp_path / "none.toml")


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


def test_a_script_runs() -> None:
    told = scripted.measure("loop_speed.py", ["--quick", "--rows", "simulator"])
    (row,) = told["rows"].values()
    assert row["ours"] > 0 and row["verdict"] == "reported"


def test_a_script_that_fails() -> None:
    with pytest.raises(BenchError, match=r"loop_speed.py told no figures: exit 2"):
        scripted.measure("loop_speed.py", ["--rows", "no such row"])
