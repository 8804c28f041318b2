# SPDX-License-Identifier: Apache-2.0
"""The driver from end to end on programs that print fixed figures, and its readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from driver import cli, contenders
from driver.contenders import Contender, Machine, parse_peer
from driver.measure import measure, read_google, read_json, read_lines
from driver.tools import BenchError

from tests.bench.tools import BENCH, bench_build

PROGRAM = """#!/bin/sh
case $1 in --version) echo 9.9; echo /none; exit ;; esac
echo "$0" >> "{log}"
printf '{{"benchmarks": [{{"iterations": 1, "op": {seconds}}}]}}'
"""
ROWS = """repetitions = 2
[[rows]]
name = "inline pair"
ours = "inline pair/16"
peers = "linked pair/16"
target = {target}
needs = "rpmalloc 2.0"
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Programs of which ours takes 1.75 times as long as the peer."""
    programs = {"bench_spanwise": "3.5e-9", "bench_peer_rpmalloc": "2e-9"}
    for name, seconds in programs.items():
        path = tmp_path / name
        path.write_text(PROGRAM.format(log=tmp_path / "log", seconds=seconds))
        path.chmod(0o755)
    return tmp_path


def drive(build: Path, target: float, *words: str) -> int:
    (build / "targets.toml").write_text(ROWS.format(target=target))
    return cli.main(["--build", str(build), "--targets", f"{build}/targets.toml", *words])


@pytest.mark.parametrize(
    ("target", "words", "end"),
    [
        (1.8, (), ("met", 0)),
        (1.7, (), ("missed", 1)),
        (1.7, ("--quick",), ("reported", 0)),
        (1.7, ("--repetitions", "1"), ("reported", 0)),
    ],
)
def test_from_rows_to_verdicts(
    build: Path,
    capsys: pytest.CaptureFixture[str],
    target: float,
    words: tuple[str, ...],
    end: tuple[str, int],
) -> None:
    verdict, status = end
    out = build / "out.json"
    assert drive(build, target, "--rows", "*", "--json", str(out), *words) == status
    said = capsys.readouterr().out
    assert "1.75 [1.75, 1.75]" in said and f"1 {verdict}" in said
    stored = json.loads(out.read_text())
    assert stored["rows"][0]["ratio"]["median"] == pytest.approx(1.75)
    assert stored["rows"][0]["verdict"] == verdict
    assert {"date", "cpu", "compiler", "commit"} <= stored.keys()


def test_repetitions_are_interleaved(build: Path) -> None:
    assert drive(build, 1.8, "--rows", "*") == 0
    order = [Path(line).name for line in (build / "log").read_text().splitlines()]
    assert order == ["bench_spanwise", "bench_peer_rpmalloc"] * 2


def test_a_peer_that_is_too_old_gives_no_verdict(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = build / "bench_peer_rpmalloc"
    peer.write_text(peer.read_text().replace("echo 9.9", "echo 1.4"))
    assert drive(build, 1.8, "--rows", "*") == 0
    assert "inline pair: needs rpmalloc 2.0" in capsys.readouterr().out


def test_a_program_that_fails_is_a_failed_row(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (build / "bench_spanwise").write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    assert drive(build, 1.8, "--rows", "*") == 1
    assert "bench_spanwise --benchmark" not in (said := capsys.readouterr().out)
    assert "ended with 3: broken" in said and "1 failed" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rows", "nothing"), "bench: --rows 'nothing' matches none of 1 rows: inline pair, ..."),
        (("--repetitions", "-1"), "bench: --repetitions is -1; use 1 or more"),
        (("--plot", "a.svg"), "bench: --plot is 'a.svg'; use a name that ends in .png"),
        (("--peer", "X=1"), "bench: --peer 'X=1' is not NAME=PATH with NAME in lower case"),
    ],
)
def test_wrong_use_is_one_line(
    build: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    if words[0] == "--peer":
        with pytest.raises(BenchError, match="is not NAME=PATH"):
            parse_peer(words[1])
        return
    rows = () if words[0] == "--rows" else ("--rows", "*")
    assert drive(build, 1.8, *rows, *words) == 2
    assert capsys.readouterr().err == said + "\n"


def test_a_picture_is_drawn(build: Path) -> None:
    picture = build / "a.png"
    assert drive(build, 1.8, "--rows", "*", "--plot", str(picture)) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


# --- readers and contenders -----------------------------------------------------------------------


def test_readers_by_hand() -> None:
    row = {"cpu_time": 7.0, "iterations": 2, "name": "x"}
    assert read_google(json.dumps({"benchmarks": [row]}))["ns"] == 7.0
    assert read_google(json.dumps({"benchmarks": [{**row, "op": 2e-9}]}))["ns"] == 2.0
    with pytest.raises(ValueError, match="2 rows match, not 1"):
        read_google(json.dumps({"benchmarks": [row, row]}))
    with pytest.raises(ValueError, match="out of memory"):
        bad = {**row, "error_occurred": True, "error_message": "out of memory"}
        read_google(json.dumps({"benchmarks": [bad]}))
    assert read_json('{"wall_ns": 3}') == {"wall_ns": 3.0}
    found = read_lines("ops 10\ncheck 7\n", "exit 0 2000000000 1000000 500000 2048 100 5\n")
    assert found == {"ops": 10, "check": 7, "cpu": 1.5, "elapsed": 2.0, "peak": 2.0}
    with pytest.raises(ValueError, match="ended with signal 9"):
        read_lines("ops 1\n", "signal 9 1 1 1 1 1 1\n")


def test_a_contender_meets_a_need_by_name_and_version() -> None:
    one = Contender("mimalloc3", ("x",), version="3.4.3")
    assert one.meets("mimalloc 3.0") and one.meets("mimalloc3") and one.meets("mimalloc 3.4.3")
    assert not one.meets("mimalloc 3.10") and not one.meets("snmalloc 0.7")
    assert not Contender("go", ("x",)).meets("go 1.26")


def test_the_preload_reaches_one_process_only(tmp_path: Path) -> None:
    asked = Contender("x", ("env",), preload=tmp_path / "lib.so", variables=(("A", "1"),))
    environment = asked.environment()
    assert environment["LD_PRELOAD"] == str(tmp_path / "lib.so") and environment["A"] == "1"
    assert "LD_PRELOAD" not in Contender("x", ("env",)).environment()


def test_an_unknown_way_and_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="the way 'warp' is unknown"):
        Machine(tmp_path).contenders("warp x")
    with pytest.raises(BenchError, match=r"bench_ranges was not built; run \./dev bench"):
        Machine(tmp_path).contenders("ranges treap/range/find")


def test_a_library_without_malloc_is_refused(tmp_path: Path) -> None:
    build = bench_build("bench_malloc")
    libm = contenders.find_library("libm.so.6")
    assert libm is not None
    with pytest.raises(BenchError, match=r"libm\.so\.6 does not define malloc"):
        _ = Machine(build, [f"libm={libm}"]).preloads


# --- the real programs, once and short ------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        *("pattern*", "range*", "buffer*", "gc *", "arena*", "loop*", "inline pair*", "exported*"),
        *("preload random*", "preload cold*"),
    ],
)
def test_every_row_runs(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    build = bench_build("bench_patterns")
    status = cli.main(["--build", str(build), "--quick", "--rows", rows])
    said = capsys.readouterr().out
    assert status == 0, said
    assert "failed" not in said.splitlines()[-2]


def test_the_program_on_path_is_the_one_that_runs() -> None:
    words = [sys.executable, str(BENCH / "run.py"), "--list"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ)
    assert "gc GCBench, CPU" in done.stdout.splitlines()


def test_measure_reports_what_a_program_said() -> None:
    with pytest.raises(BenchError, match="ended with 4: no luck"):
        measure(Contender("x", ("sh", "-c", "echo no luck >&2; exit 4")))
