# SPDX-License-Identifier: Apache-2.0
"""Real programs under the malloc face print and write what they do under glibc; no times asserted.

The short form of `./dev real`: quick inputs of a few programs. Then the parts of bench/run_real.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from real import cli, field, identity, launch, programs, report, verdict
from real.drivers import Place, run_once
from real.measure import Measured, Runner, Sample, measure, split_runnable
from real.programs import Program
from runner.contenders import Contender, find_library
from runner.errors import BenchError
from runner.launch import Usage, read_usage
from spanwise._lib import native_library

from tests.bench.tools import BENCH

EVERY = {program.name: program for program in programs.load_programs()}
# As many as fit into half a minute: an interpreter, a compiler, a database, a server.
SHORT = ("python-json", "python-objects", "gcc", "g++", "sqlite3", "perl", "lua", "redis")


def make_program(**changes: object) -> Program:
    row: dict[str, object] = {
        "name": "one",
        "about": "",
        "probe": ["true"],
        "size": "1",
        "quick": "1",
        "command": ["true"],
        **changes,
    }
    return programs._parse(row, "here")


def libc() -> Path:
    found = find_library("libc.so.6")
    assert found is not None
    return found.resolve()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("real")
    return Place(launch.build_launcher(folder), folder, folder, "1")


@pytest.fixture(scope="module")
def runner(place: Place) -> Runner:
    return Runner(place.launcher, place.scratch, quick=True)


@pytest.fixture(scope="module")
def both() -> list[Contender]:
    """Glibc and ours, as the installed package has it."""
    library = native_library(field.FACE)
    contenders, _ = field.find_contenders(library, [])
    assert [contender.name for contender in contenders[:2]] == ["glibc", "spanwise"]
    return contenders[:2]


# --- identity -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHORT)
def test_output_is_glibcs(name: str, runner: Runner, both: list[Contender]) -> None:
    program = EVERY[name]
    lacking = program.lacking()
    if lacking:
        pytest.skip(f"lacks {' '.join(lacking)}")
    expected, found = (runner.sample(program, contender) for contender in both)
    assert (expected.problem, found.problem) == ("", "")
    assert set(expected.digests) >= {"stdout", "stderr"} | set(program.artefacts)
    assert expected.digests == found.digests


def test_a_preload_that_changes_output_is_seen(place: Place, tmp_path: Path) -> None:
    """A library that serves malloc and speaks: the comparison must not pass it."""
    source = tmp_path / "loud.c"
    source.write_text(
        "#include <stddef.h>\n#include <unistd.h>\n"
        "extern void *__libc_malloc(size_t);\n"
        "void *malloc(size_t n) { return __libc_malloc(n); }\n"
        '__attribute__((constructor)) static void hello(void) { (void)!write(1, "x\\n", 2); }\n'
    )
    library = tmp_path / "loud.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    program = make_program(command=["expr", "1", "+", "1"], probe=["expr", "1"])
    made = Runner(place.launcher, place.scratch, quick=True)
    contenders = [
        Contender(name, "preload", path, "", path)
        for name, path in (("glibc", libc()), ("spanwise", library))
    ]
    measured = Measured([program], contenders, {})
    measure(made, measured, 2)
    assert measured.problem("one", "glibc") == ""
    said = "differs: stdout line 1: 'x', glibc '2' (2 of 2 runs)"
    assert measured.problem("one", "spanwise") == said
    assert f"FAIL: {'one'}" in report.identity_line(measured)
    assert report.outcome(measured.problem("one", "spanwise")) == "DIFFERS"


def test_a_crash_is_a_failure_with_its_last_words(place: Place) -> None:
    program = make_program(command=["sh", "-c", "echo bad luck >&2; kill -SEGV $$"])
    usage = run_once(program, str(libc()), place).usage
    assert usage.error.startswith("ended with signal 11")


def test_a_program_that_writes_nothing_is_seen() -> None:
    assert identity.difference({"a.o": b"x"}, {}) == "a.o was not written"
    assert identity.difference({"a.o": b"xyz"}, {"a.o": b"xaz"}) == (
        "a.o differs at byte 1 (3 bytes, glibc 3)"
    )
    assert identity.difference({"stdout": b"a\nb"}, {"stdout": b"a"}) == (
        "stdout has 1 lines, glibc 2"
    )
    assert identity.difference({"stdout": b"a"}, {"stdout": b"a"}) == ""


def test_masks_hide_times_and_nothing_else() -> None:
    masks = EVERY["python-tests"].mask
    masked = identity.mask(b"0:00:01 load avg: 0.52 [1/3] test_x\nRan 7 tests in 0.123s\n", masks)
    assert masked == b"TIME [1/3] test_x\nRan 7 in TIME\n"
    assert identity.mask(b"test_a ... ok\n7 FAILED\n", masks) == b"test_a ... ok\n7 FAILED\n"
    left = identity.comparable({"stdout": b"[12]", "a.o": b"[12]"}, [(r"\[\d+\]", "[]")])
    assert left == {"stdout": b"[]", "a.o": b"[12]"}


# --- who serves malloc ----------------------------------------------------------------------------

LIB = "/x/libours.so"
LINE = "  1:\tbinding file {} [0] to {} [0]: normal symbol `malloc' [GLIBC_2.2.5]\n"


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("prog", LIB), ("/lib/libc.so.6", LIB)], ""),
        ([("prog", LIB), ("/lib/libssl.so", "prog")], ""),
        ([("prog", "/lib/libc.so.6")], "prog takes malloc from /lib/libc.so.6"),
        ([("prog", LIB), ("/lib/liba.so", "/lib/libc.so.6")], "liba.so takes malloc from "),
        ([], "no process of it looked malloc up: it is linked statically"),
    ],
)
def test_bindings(pairs: list[tuple[str, str]], said: str) -> None:
    log = "".join(LINE.format(*pair) for pair in pairs)
    found = field.judge_bindings([log], Path(LIB))
    assert found.startswith(said) if said else found == ""


def test_a_probe_proves_glibc_and_refutes_another() -> None:
    program = make_program(probe=["expr", "1"])
    assert field.served(program, Contender("glibc", "preload", libc(), "", libc())) == ""
    other = find_library("libm.so.6")
    assert other is not None
    said = field.served(program, Contender("m", "preload", other, "", other))
    assert "takes malloc from" in said


# --- the launcher ---------------------------------------------------------------------------------


def test_peak_rss_is_the_commands_own(place: Place) -> None:
    """Not that of the Python which forked it."""
    ballast = bytearray(60 << 20)
    usage = run_once(make_program(command=["true"]), str(libc()), place).usage
    assert (len(ballast), usage.error) == (60 << 20, "")
    assert 0 < usage.peak_rss_bytes < 8 << 20
    big = make_program(command=[sys.executable, "-S", "-c", "x = bytes(range(256)) * (1 << 18)"])
    assert run_once(big, str(libc()), place).usage.peak_rss_bytes > 64 << 20


def test_a_program_that_hangs_is_ended(place: Place, tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    process = launch.start(place.launcher, str(libc()), ["sleep", "60"], cwd, {})
    usage = launch.finish(process, cwd, 0.3)
    assert usage.error == "did not end within 0 s"
    assert process.poll() is not None


def test_usage_that_was_not_written(tmp_path: Path) -> None:
    assert read_usage(tmp_path / "none").error == "the launcher wrote no report"


def test_environment_has_no_allocator_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("LD_PRELOAD", "")
    assert sorted(launch.environment(tmp_path, {"A": "b"})) == ["A", "HOME", "LANG", "PATH", "TZ"]


# --- verdicts -------------------------------------------------------------------------------------


def make_measured(rows: dict[str, list[float]], problem: str = "") -> Measured:
    """One program's seconds (and as many MB) a repetition, by contender."""
    contenders = [Contender(name, "preload", Path(name), "", Path(name)) for name in rows]
    measured = Measured([make_program()], contenders, {})
    for i in range(len(next(iter(rows.values())))):
        measured.repetitions.append(
            {
                ("one", name): Sample(
                    Usage(values[i], values[i], int(values[i] * 1e6)),
                    problem if name == "spanwise" else "",
                )
                for name, values in rows.items()
            }
        )
    return measured


PEERS = {"glibc": [2.0] * 5, "jemalloc": [1.0] * 5, "mimalloc": [1.5] * 5, "tcmalloc": [1.5] * 5}


@pytest.mark.parametrize(
    ("ours", "time", "memory"),
    [(0.9, "met", "met"), (1.05, "missed", "met"), (1.2, "missed", "missed")],
)
def test_verdicts(ours: float, time: str, memory: str) -> None:
    measured = make_measured({**PEERS, "spanwise": [ours] * 5})
    by_time = verdict.stand(measured, "wall_s", [])
    by_memory = verdict.stand(measured, "peak_rss_bytes", [])
    assert (by_time.peer, by_time.verdict, by_memory.verdict) == ("jemalloc", time, memory)
    assert by_time.means["spanwise"] == pytest.approx(ours / 2)


def test_overlap_is_level_for_time() -> None:
    measured = make_measured({**PEERS, "spanwise": [0.99, 1.01, 1.02, 1.02, 1.02]})
    assert verdict.stand(measured, "wall_s", []).verdict == "met"


def test_an_absent_peer_is_no_met() -> None:
    measured = make_measured({"glibc": [2.0] * 5, "spanwise": [0.5] * 5})
    absent = verdict.missing_peers(measured)
    assert absent == ["jemalloc", "mimalloc", "tcmalloc"]
    found = verdict.stand(measured, "wall_s", absent)
    assert (found.verdict, found.note) == ("no peer", "lacks jemalloc, mimalloc, tcmalloc")


def test_a_program_that_differs_does_not_count() -> None:
    measured = make_measured({**PEERS, "spanwise": [0.5] * 5}, "differs: stdout line 1")
    found = verdict.stand(measured, "wall_s", [])
    assert (verdict.counting(measured), found.verdict) == ([], "missed")
    assert "one, spanwise: differs: stdout line 1" in report.identity_table(measured)


def test_a_skipped_program_is_never_identical() -> None:
    lacking = make_program(needs={"no-such-program": "no-such-package"})
    runnable, skipped = split_runnable([lacking])
    assert runnable == []
    assert skipped == {"one": "lacks no-such-package (apt-get install no-such-package)"}
    line = report.identity_line(Measured(runnable, [], skipped))
    assert line == "output: 0 of 1 identical; skipped: one"


def test_raw_results_hold_every_run() -> None:
    measured = make_measured({**PEERS, "spanwise": [0.9] * 5})
    standings = [verdict.stand(measured, "wall_s", [])]
    raw = json.loads(json.dumps(report.as_json(measured, standings, {"commit": "c"})))
    assert (raw["commit"], len(raw["repetitions"]), len(raw["repetitions"][0])) == ("c", 5, 5)
    assert raw["programs"][0]["allocators"]["spanwise"]["output"] == "identical"
    wanted = {"name", "unit", "ours", "peer_name", "peer", "ratio", "low", "high", "target"}
    assert set(raw["verdicts"][0]) >= wanted | {"verdict"}


# --- programs.toml and options --------------------------------------------------------------------


def test_every_program_is_described() -> None:
    assert len(EVERY) >= 12
    for program in EVERY.values():
        assert program.about
        assert program.needs or (program.check and program.package)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [[program]] in it"),
        ("[[program]", "not TOML"),
        ("[[program]]\nspeed = 1", "program 1 (without a name): unknown key 'speed'"),
        ('[[program]]\nname = "a"', "program 1 (a): about is missing"),
    ],
)
def test_bad_programs(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "programs.toml"
    path.write_text(text)
    with pytest.raises(BenchError) as caught:
        programs.load_programs(path)
    assert str(caught.value).startswith(f"{path}: {said}")


def test_bad_rows() -> None:
    with pytest.raises(BenchError, match="here: driver is 'bus'; use one of process, redis"):
        make_program(driver="bus")
    with pytest.raises(BenchError, match=r"here: mask '\(': "):
        make_program(mask=[["(", ""]])


def test_sizes_become_words() -> None:
    program = make_program(command=["x", "{size}", "{inputs}/a{size}"])
    assert program.words(program.command, Path("/in"), "1 2") == ["x", "1", "2", "/in/a{size}"]


def test_choice_of_programs() -> None:
    every = list(EVERY.values())
    chosen = [program.name for program in cli.choose(every, "gcc,python-j*")]
    assert chosen == ["python-json", "gcc"]
    assert [p.name for p in cli.choose(every, "redis")] == ["redis"]
    with pytest.raises(BenchError, match=r"^--programs 'zz' matches none of python-tests, "):
        cli.choose(every, "zz")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--repetitions", "0"], "real: --repetitions is 0; use 1 or more\n"),
        (["--plot", "x.pdf"], "real: --plot is 'x.pdf'; use a name that ends in .png\n"),
        (["--build", "/none"], "real: /none/libspanwise-malloc.so is missing: build it with "),
    ],
)
def test_bad_options(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(said)
    assert error.count("\n") == 1


def test_generated_inputs_repeat(tmp_path: Path) -> None:
    for script, size in (("c_source", "5"), ("sqlite_source", "3"), ("redis_source", "1")):
        made = []
        for number in range(2):
            path = tmp_path / f"{script}{number}"
            source = BENCH / "real/workloads" / f"{script}.py"
            subprocess.run([sys.executable, str(source), size, str(path)], check=True)
            made.append(path.read_bytes())
        assert made[0] == made[1]
        assert made[0]
