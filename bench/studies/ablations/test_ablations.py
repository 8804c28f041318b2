# SPDX-License-Identifier: Apache-2.0
"""The study ablations: the plan, reading of counters, the table, error texts; no times."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runner import children
from runner.errors import BenchError

from studies.ablations import build as ablation_build
from studies.ablations import measure as ablation_measure
from studies.ablations import patches
from studies.ablations import plan as ablation_plan
from studies.ablations import plot as ablation_plot
from studies.ablations import report as ablation_report
from studies.ablations.measure import COLD, HOT, Events
from studies.ablations.report import Cell
from tests.bench.tools import BENCH, ROOT

PERF = """\
1000,,instructions:u,500,100.00,,
20,,L1-icache-load-misses:u,500,100.00,,
30,,L1-dcache-load-misses:u,500,100.00,,
4,,branch-misses:u,500,100.00,,
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH / "run_study.py"), "ablations", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def built(folder: Path, recipe: ablation_build.Recipe) -> ablation_build.Built:
    return ablation_build.build_one(ablation_build.survey(ROOT, folder), recipe)


def cell(variant: str, ns: list[float], **changes: Any) -> Cell:
    values: dict[str, Any] = {"ours": variant == "ours", "state": HOT, "code_bytes": 100, **changes}
    return Cell("division", "pair/16", variant=variant, ns=ns, **values)


def test_every_ablation_has_ours_first_and_different_others() -> None:
    ablations = ablation_plan.plan(ROOT)
    assert len({each.name for each in ablations}) == len(ablations)
    for each in ablations:
        others = {(v.patch, v.cutoff, v.options) for v in each.variants}
        assert each.variants[0].cutoff is None
        assert len(others) == len(each.variants) >= 2
        assert each.rows
        assert each.variants[0].patch == ""


def test_plan_has_what_was_asked() -> None:
    ablations = {each.name: each for each in ablation_plan.plan(ROOT)}
    assert list(ablations) == [
        *("special", "cutoff", "division", "scan-bits", "zeroing"),
        *("hints", "tiny", "scan-split", "page-size"),
    ]
    assert {v.cutoff for v in ablations["cutoff"].variants} == {None, 0, 64, 80, 128, 1024}
    pages = [v.options[1].partition(":")[0] for v in ablations["page-size"].variants]
    assert pages == ["8192", "4096", "8192", "16384", "65536"]


def test_patches_are_those_of_the_plan() -> None:
    named = {v.patch for each in ablation_plan.plan(ROOT) for v in each.variants}
    assert named == {"", *patches.PATCHES}


def test_a_patch_that_no_longer_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(patches.PATCHES, "scan", patches.Patch("no such text", ""))
    with pytest.raises(BenchError, match="patch 'scan': 0 places of include/ and src/ have"):
        patches.patched(ROOT, tmp_path, "scan")


def test_select() -> None:
    ablations = ablation_plan.plan(ROOT)
    chosen = ablation_plan.select(ablations, "tiny, hints")
    assert [each.name for each in chosen] == ["tiny", "hints"]
    with pytest.raises(BenchError, match="--only 'bogus' is no ablation; use special, "):
        ablation_plan.select(ablations, "bogus")


def test_perf() -> None:
    assert ablation_measure.from_perf(PERF) == Events(1000, 20, 30, 4)
    lacking = PERF.replace("20,,", "<not supported>,,")
    assert ablation_measure.from_perf(lacking) is None


def test_callgrind() -> None:
    totals = {"Ir": 9, "I1mr": 1, "D1mr": 2, "D1mw": 3, "Bcm": 4, "Bim": 5}
    assert ablation_measure.from_callgrind(totals) == Events(9, 1, 5, 9)
    with pytest.raises(BenchError, match="callgrind counted no 'Bim'"):
        ablation_measure.from_callgrind({k: v for k, v in totals.items() if k != "Bim"})


def test_text_bytes() -> None:
    assert ablation_build.parse_text_bytes("x  :\n.init 23 1\n.text   4097  4096\n") == 4097
    with pytest.raises(BenchError, match=r"no section \.text"):
        ablation_build.parse_text_bytes("")


def test_table_and_json() -> None:
    cells = [
        cell("ours", [2.0, 2.0, 2.0], events=Events(10, 0, 0, 0)),
        cell("divide", [4.0, 4.0, 4.0], code_bytes=90),
    ]
    text = ablation_report.table(cells)
    assert "2.00 [2.00, 2.00]" in text
    assert "-10" in text.splitlines()[3]
    ours, divide = ablation_report.as_json(cells)
    assert ours["over_ours"] is None
    assert divide["over_ours"] == 2.0
    assert divide["verdict"] == "slower"
    assert divide["instructions"] is None


def test_no_ratio_where_a_cold_difference_is_negative() -> None:
    cells = [cell("ours", [-1.0], state=COLD), cell("divide", [2.0], state=COLD)]
    assert ablation_report.as_json(cells)[1]["over_ours"] is None
    assert "-" in ablation_report.table(cells)


@pytest.mark.by_hand
def test_bad_input() -> None:
    done = run("--only", "bogus")
    assert done.returncode == 2
    assert done.stderr.startswith("ablations: --only 'bogus' is no ablation")
    done = run("--only", "tiny", "--rows", "bogus")
    assert done.returncode == 2
    assert done.stderr.startswith("ablations: --rows 'bogus' matches no row; there are keep/1-15")
    assert run("--repetitions", "0").returncode == 2


@pytest.mark.by_hand
def test_ctrl_c_stops_it_and_leaves_nothing(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, str(BENCH / "run_study.py"), "ablations", "--build", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".part-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (130, "", "ablations: interrupted\n")
    assert not list(tmp_path.glob(".part-*"))


@pytest.mark.by_hand
def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    cells = [
        cell(variant, [2.0, 2.1, 2.2], state=state)
        for state in (HOT, COLD)
        for variant in ("ours", "divide")
    ]
    picture = ablation_plot.plot(cells, tmp_path / "picture.png", "here")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_panels_fill_three_columns_in_their_order() -> None:
    lines = {"a": 12, "b": 24, "c": 6, "d": 6, "e": 8, "f": 4, "g": 2, "h": 6, "i": 10}
    columns = ablation_plot._columns(lines)
    assert [name for column in columns for name in column] == list(lines)
    assert columns == [["a", "b"], ["c", "d", "e", "f"], ["g", "h", "i"]]
    assert ablation_plot._columns({"a": 1}) == [["a"]]


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BenchError, match="no-such-compiler: No such file or directory; install it"):
        built(tmp_path, ("", None))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(BenchError, match="false --version ended with 1; set CC to a compiler"):
        built(tmp_path, ("", None))


@pytest.mark.by_hand
def test_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = patches.Patch(patches.PATCHES["scan"].ours, "#error broken\n")
    monkeypatch.setitem(patches.PATCHES, "scan", broken)
    with pytest.raises(BenchError, match=r"^ours scan: cc ended with 1: .*error: "):
        built(tmp_path, ("scan", None))
    assert not list(tmp_path.iterdir())


def test_programs_of_other_sources_are_removed(tmp_path: Path) -> None:
    site = ablation_build.survey(ROOT, tmp_path)
    names = {"other": "0" * 12 + "-" + "1" * 12, "same": site.sources + "-" + "2" * 12}
    for name in (*names.values(), "mine"):
        (tmp_path / name).touch()
    assert not ablation_build.build_all(site, [])
    assert {path.name for path in tmp_path.iterdir()} == {names["same"], "mine"}


def test_a_failure_ends_the_other_children() -> None:
    def one(seconds: float) -> None:
        if seconds < 0:
            raise BenchError("this one")
        children.run(["sleep", str(seconds)])

    begin = time.monotonic()
    with pytest.raises(BenchError, match="this one"):
        children.each(one, [-1, 60, 60, 60], 2)
    assert time.monotonic() - begin < 30
    assert children.run(["true"]).returncode == 0


def test_a_missing_counter_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ablation_measure.counter("auto") == "none"
    with pytest.raises(BenchError, match="--counter perf: perf has no such hardware counters here"):
        ablation_measure.counter("perf")
    with pytest.raises(BenchError, match="--counter callgrind: valgrind was not found: apt-get"):
        ablation_measure.counter("callgrind")
    assert "no counts" in ablation_report.legend("none", 10, full=True)


@pytest.mark.by_hand
def test_end_to_end(tmp_path: Path) -> None:
    """Builds two variants, times and counts a row of each."""
    arguments = ("--only", "scan-bits", "--rows", "malloc/16", "--json", "--repetitions", "1")
    done = run(*arguments, "--quick", "--build", str(tmp_path))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["counter"] in ("perf", "callgrind", "none")
    assert said["commit"]
    cells = said["cells"]
    assert [(c["variant"], c["cache"]) for c in cells] == [
        ("ours", "hot"),
        ("bit by bit", "hot"),
        ("ours", "cold"),
        ("bit by bit", "cold"),
    ]
    ours, bits = cells[:2]
    assert ours["ns"] > 0
    assert bits["code_bytes"] > ours["code_bytes"]
    if ours["instructions"] is not None:  # else there is neither perf nor valgrind
        assert bits["instructions"] > ours["instructions"] + 10
        assert cells[2]["i1_misses"] > ours["i1_misses"]
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == 2
    assert run(*arguments, "--counter", "none", "--build", str(tmp_path)).returncode == 0
    assert sorted(tmp_path.iterdir()) == kept
