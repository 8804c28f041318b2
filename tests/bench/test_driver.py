# SPDX-License-Identifier: Apache-2.0
"""The driver of the benches: its rows, runs of programs that print fixed figures, real programs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from driver import cli, contenders
from driver.contenders import Contender, Machine, parse_peer
from driver.measure import measure, read_google, read_json, read_lines
from driver.rows import choose, load
from driver.tools import BenchError

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"


def bench_build(program: str) -> Path:
    """Return the folder of the bench programs; skip the test if `program` was not built."""
    build = Path(os.environ.get("SPANWISE_BENCH_BUILD", ROOT / "build/bench"))
    if not (build / program).is_file():
        pytest.skip(f"no {program} in {build}: ./dev test builds it")
    return build


TARGETS = load(BENCH / "targets.toml")
GOOD = 'repetitions = 3\n[[rows]]\nname = "a"\nours = "inline pair/16"\npeers = "linked pair/16"\n'


def read(tmp_path: Path, text: str) -> str:
    path = tmp_path / "targets.toml"
    path.write_text(text)
    with pytest.raises(BenchError) as caught:
        load(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rows]", "not TOML"),
        ("[[rows]]", "repetitions is None; use a whole number, 1 or more"),
        ("repetitions = true\n", "repetitions is True; use a whole number, 1 or more"),
        ("repetitions = 2.5\n", "repetitions is 2.5; use a whole number, 1 or more"),
        ("repetitions = 3\n", "has no rows"),
        (GOOD + "target = 0\n", "row 1 (a): target is 0; use a number above 0"),
        (GOOD + "target = true\n", "row 1 (a): target is True; use a number above 0"),
        (GOOD + "each = [16]\n", "row 1 (a): each is [16]; use a text or a list of texts"),
        (GOOD + 'each = ["x", "y"]\n', "row 1 (a): an earlier row has the same name"),
        (GOOD + "speed = 3\n", "row 1 (a): unknown key 'speed'; known are "),
        (GOOD + "unit = 3\n", "row 1 (a): unit is 3; use text"),
        (GOOD + "needs = [3]\n", "row 1 (a): needs is [3]; use a text or a list of texts"),
        (GOOD + 'needs = "go >= 1"\n', "row 1 (a): 'go >= 1' is not NAME or NAME VERSION"),
        (GOOD + "limit = 1\n", "row 1 (a): give either peers (and a target) or a limit"),
        (GOOD + "rank = 1\n", "row 1 (a): rank belongs to a row with rows"),
        (GOOD + 'rows = "b"\n', "row 1 (a): give either ours (a measured row) or rows"),
        (GOOD + GOOD.partition("\n")[2], "row 2 (a): an earlier row has the same name"),
        ('repetitions = 3\n[[rows]]\nours = "inline x"\nlimit = 1\n', "row 1 (?): name is missing"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, said: str) -> None:
    assert read(tmp_path, text).startswith(said)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"none\.toml: No such file or directory"):
        load(tmp_path / "none.toml")


def test_each_makes_one_row_per_word(tmp_path: Path) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(GOOD.replace('"a"', '"a {}"').replace("16", "{}") + 'each = ["16", "64"]\n')
    rows = load(path).rows
    assert [row.name for row in rows] == ["a 16", "a 64"]
    assert [(row.ours, row.peers) for row in rows] == [
        ("inline pair/16", ("linked pair/16",)),
        ("inline pair/64", ("linked pair/64",)),
    ]


def test_rows_are_chosen_by_pattern_or_by_text() -> None:
    names = [row.name for row in choose(TARGETS.rows, ["range find*"])]
    assert names == ["range find, single tree", "range find, two trees"]
    assert [row.name for row in choose(TARGETS.rows, ["buddy"])] == ["range buddy pair"]
    with pytest.raises(BenchError, match="--rows 'nothing' matches none of "):
        choose(TARGETS.rows, ["nothing"])


# --- the driver -----------------------------------------------------------------------------------


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


# --- the real programs of ./dev bench --programs --------------------------------------------------


@pytest.fixture(scope="module")
def programs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_programs", BENCH / "programs/run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_program_is_complete(programs: ModuleType) -> None:
    rows = programs.load()
    assert len(rows) >= 8
    for row in rows:
        assert {"name", "needs", "command", "size", "quick"} <= row.keys(), row["name"]
        for word in (*row["command"], *row.get("prepare", ())):
            if word.startswith("{here}/"):
                assert (BENCH / "programs" / word.removeprefix("{here}/")).is_file(), word


def test_words_are_filled_in(programs: ModuleType, tmp_path: Path) -> None:
    words = programs.words_of(["sh", "{inputs}/a", "n={size}"], tmp_path, "7")
    assert words == [shutil.which("sh"), f"{tmp_path}/a", "n=7"]


def test_missing_packages_are_named(
    programs: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert programs.main(["--packages", "--only", "lua,redis"]) == 0
    assert capsys.readouterr().out == "lua5.4 redis-tools\n"


def test_a_wrong_name_is_refused(programs: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        programs.main(["--only", "nothing"])
    assert ended.value.code == 2
    assert "--only nothing: no such program" in capsys.readouterr().err


def test_a_program_runs_under_every_allocator(
    programs: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BENCH)  # main changes the folder; this restores it
    if shutil.which("sqlite3") is None:
        pytest.skip("no sqlite3")
    assert programs.main(["--only", "sqlite3", "--quick"]) == 0
    said = capsys.readouterr().out
    assert "sqlite3" in said and "glibc" in said and "spanwise" in said
