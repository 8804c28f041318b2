# SPDX-License-Identifier: Apache-2.0
"""Builds with a given table: files, inline code of other tables, failures, interruptions."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import spanwise as sw
from install_tools import quick_compiler
from spanwise.builds import steps
from spanwise.builds.build import BuildOptions, build_with, check_malloc_table, put_in_place
from spanwise.builds.steps import (
    COMMON_FLAGS,
    NO_TABLES_FLAG,
    NO_TABLES_SOURCES,
    PRELOAD_FLAGS,
    PRELOAD_LINK_FLAGS,
    PRELOAD_ROOMS,
    SHARED_FLAGS,
    SHORT_FLAG,
    SHORT_SOURCES,
    BuildError,
    core_rooms,
    run_step,
)
from spanwise.results.jobs import Signals

from tests.python.helpers import ROOT, lives, random_ops, script, spanwise, wait_for

CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="no cc; install gcc")

SIZES = [8, 16, 48, 80, 208, 512, 1040, 4096, 12288]

USER = """\
#include <spanwise/fast.h>
#include <spanwise/spanwise.h>
#include <stdio.h>
int main(void) {
    const sw_table *table = sw_table_default();
    sw_table_destroy((sw_table *)(uintptr_t)table); /* ignored */
    if (sw_table_builtin("c16") != sw_table_c16() || table == sw_table_c16()) return 1;
    if (sw_table_hash(sw_table_c16()) != C16_HASH || sw_table_hash(table) != SW_FAST_TABLE_HASH)
        return 2;
    if (sw_heap_table(sw_heap_default()) != table) return 3;
    if (sw_heap_path(sw_heap_default(), 40, SW_SCAN) != SW_PATH_SPECIALISED) return 4;
    void *p = sw_fast_malloc(40);
    printf("%s %zu\\n", sw_table_name(sw_heap_table(sw_heap_default())), sw_usable_size(p));
    sw_fast_free(p);
    return 0;
}
"""


@pytest.fixture(scope="module")
def table() -> sw.SizeClassTable:
    return sw.SizeClassTable.custom(SIZES, name="few-16.x")


@pytest.fixture(scope="module")
def built(table: sw.SizeClassTable, tmp_path_factory: pytest.TempPathFactory) -> sw.Build:
    """One build for all tests, with a compiler that does not optimise, which halves the time."""
    lines: list[str] = []
    folder = tmp_path_factory.mktemp("build")
    compiler = quick_compiler(folder / "cc")
    made = build_with(table, folder / "few", BuildOptions(str(compiler)), lines.append)
    assert lines[0].startswith("table few-16.x: 9 classes") and len(lines) >= 5
    return made


def compile_user(
    folder: Path, include: Path, *words: str | Path
) -> subprocess.CompletedProcess[str]:
    source = folder / "user.c"
    source.write_text(USER)
    c16 = f"-DC16_HASH=0x{sw.SizeClassTable.c16().hash:016x}u"
    command = ["cc", "-O2", c16, f"-I{include}", str(source), "-o", str(folder / "user")]
    command += map(str, words)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_user(folder: Path, libdir: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LD_LIBRARY_PATH": str(libdir)}
    return subprocess.run([folder / "user"], env=env, capture_output=True, text=True, check=False)


# --- what comes out -------------------------------------------------------------------------------


def test_stamp_and_files(built: sw.Build, table: sw.SizeClassTable) -> None:
    stamp = built.stamp
    assert stamp["table"]["hash"] == f"{table.hash:016x}" and stamp["table"]["classes"] == 9
    assert stamp["compiler"]["version"] and "-O3" in stamp["flags"] and stamp["malloc"] is True
    assert any(proof.startswith("division ") for proof in stamp["proofs"])
    for path in (built.library, built.archive, built.malloc_library):
        assert path.stat().st_size > 10_000
    again = sw.Build.open(built.folder)
    assert again.stamp == stamp and again.table == table and "few-16.x" in repr(again)
    objects = built.archive.read_bytes() + built.malloc_library.read_bytes()
    assert os.fsencode(str(built.folder.parent)) not in objects  # no path of this machine


def test_programs_link_with_it(built: sw.Build, tmp_path: Path) -> None:
    for words in (
        (built.archive, *built.stamp["link"]),
        (built.library,),
    ):
        done = compile_user(tmp_path, built.include, *words)
        assert done.returncode == 0, done.stderr
        said = run_user(tmp_path, built.folder / "lib")
        assert (said.returncode, said.stdout) == (0, "few-16.x 48\n"), said.stderr


def test_programs_run_with_its_malloc(built: sw.Build) -> None:
    done = built.run(["cat", "/proc/self/maps"], capture_output=True, text=True)
    assert done.returncode == 0 and str(built.malloc_library) in done.stdout


def test_replay_on_a_build(built: sw.Build) -> None:
    recording = sw.Recording.from_ops(random_ops(1, 3000, threads=2))
    seen = sw.replay(recording, lib=built.folder, drain=(), samples=8)
    assert seen.allocator == "spanwise few-16.x (built)"
    assert seen.runs[0].malloc == str(built.malloc_library)


# --- whole or not at all --------------------------------------------------------------------------


def test_no_compiler(tmp_path: Path) -> None:
    done = spanwise("build", "--table", "c16", "-o", tmp_path / "b", "--cc", "no-such-cc")
    assert done.returncode == 2
    assert done.stderr == (
        "spanwise: no-such-cc: no such C compiler; install gcc or clang, or name one with --cc\n"
    )
    assert list(tmp_path.iterdir()) == []
    bare = {"PATH": str(tmp_path), "CC": ""}
    done = spanwise("build", "--table", "c16", "-o", tmp_path / "b", env=bare)
    assert done.returncode == 2 and "no C compiler was found" in done.stderr


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("*runs.c*", "compiling page/runs.c: page/runs.c:7: error: bad day"),
        ("*soname,libspanwise.so*", "linking libspanwise.so"),
    ],
)
def test_a_failing_build_changes_nothing(tmp_path: Path, when: str, said: str) -> None:
    body = (
        f'case "$*" in {when}) echo "page/runs.c:7: error: bad day" >&2; exit 1;; esac\n'
        'case "$*" in *" -c "*) for last; do :; done; : >"$last"; exit 0;; esac\n'
        'exec cc "$@"'
    )
    compiler = script(tmp_path / "cc-broken", body)
    fresh = tmp_path / "fresh"
    with pytest.raises(sw.BuildError, match=said):
        sw.build("c16", fresh, cc=compiler)
    assert not fresh.exists()
    old = tmp_path / "old"
    (old / "lib").mkdir(parents=True)
    (old / "build.json").write_text("{}")
    (old / "lib/libspanwise.a").write_text("as it was")
    with pytest.raises(sw.BuildError):
        sw.build("c16", old, cc=compiler)
    assert (old / "lib/libspanwise.a").read_text() == "as it was"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cc-broken", "old"]


def test_a_second_build_replaces_the_first(tmp_path: Path) -> None:
    """Only what an earlier build made is replaced, and only once the new one is whole."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "precious.txt").write_text("keep")
    with pytest.raises(sw.InvalidError, match="contains something other than a build"):
        sw.build("c16", folder)
    assert (folder / "precious.txt").read_text() == "keep"
    with pytest.raises(sw.InvalidError, match="no such folder"):
        sw.build("c16", tmp_path / "a/b/c")
    with pytest.raises(sw.InvalidError, match="is not a folder"):
        sw.build("c16", folder / "precious.txt")


# --- tables ---------------------------------------------------------------------------------------


def test_malloc_refuses_classes_that_are_no_multiple_of_16(tmp_path: Path) -> None:
    done = spanwise("build", "--table", "go", "-o", tmp_path / "go")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "class 3 (24 bytes) is not a multiple of 16" in done.stderr
    assert "--no-malloc" in done.stderr and list(tmp_path.iterdir()) == []
    check_malloc_table(sw.SizeClassTable.c16())
    check_malloc_table(sw.SizeClassTable.custom([8, 16, 32]))


def test_impossible_table_files(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"name": "t", "page_bytes": 8192, "classes": [{"size": 12}]}))
    done = spanwise("build", "--table", path, "-o", tmp_path / "b")
    assert done.returncode == 2 and "t.json: class 1" in done.stderr
    with pytest.raises(sw.InvalidError, match="was not created by"):
        sw.Build.open(tmp_path)
    with pytest.raises(sw.InvalidError, match="cutoff_bytes 2000 is too large"):
        sw.build("c16", tmp_path / "b", cutoff_bytes=2000)


def test_flags_and_sources_are_those_of_cmake() -> None:
    """A build does not use CMake, so changes there must also be made in steps.py."""
    folder = ROOT / "cmake"
    targets = (folder / "SpanwiseTargets.cmake").read_text()
    library = (folder / "SpanwiseLibrary.cmake").read_text()
    for flag in (*SHARED_FLAGS, *COMMON_FLAGS):
        if flag.startswith(("-Wl,", "-fno-")) and flag != "-Wl,-z,defs":
            assert flag in targets, flag
    for flag in (*PRELOAD_FLAGS, *PRELOAD_LINK_FLAGS):
        assert flag.removeprefix("-D") in library, flag
    short = re.findall(
        r"set_source_files_properties\(([^()]*) PROPERTIES COMPILE_OPTIONS (\S+)\)", library
    )
    assert [(sorted(names.split()), flag) for names, flag in short] == [
        (sorted(f"src/{name}" for name in SHORT_SOURCES), SHORT_FLAG),
        (sorted(f"src/{name}" for name in NO_TABLES_SOURCES), f'"{SHORT_FLAG};{NO_TABLES_FLAG}"'),
    ]
    floor = {"base", "os/linux", "ds"}
    for name, rooms in (("core", core_rooms(ROOT, True)), ("malloc", PRELOAD_ROOMS)):
        words = re.findall(rf"spanwise_sources\({name}_sources (.*?)\)", library, re.DOTALL)[0]
        listed = {room.removesuffix("/*") for room in re.findall(r'"([^"]+)"', words)}
        assert listed | floor == set(rooms), name


def test_goes_without_zstd(tmp_path: Path) -> None:
    """Only the heap is compiled then; a stand-in for cc stops the build after that line."""
    body = (
        'case "$*" in *" -dM "*) echo "#define __STDC__ 1"; exit;; *probe*) exit 1;;'
        ' *trace*|*optimize*) echo "error: trace"; exit 1;;'
    )
    compiler = script(
        tmp_path / "cc-bare", body + ' *" -c "*) echo "error: stop" >&2; exit 1;; esac'
    )
    lines: list[str] = []
    with pytest.raises(sw.BuildError, match="stop"):
        build_with("c16", tmp_path / "b", BuildOptions(compiler), lines.append)
    assert any("building without recordings" in line for line in lines)
    assert not any(room.startswith(("trace", "optimize")) for room in core_rooms(ROOT, False))


# --- interrupted ----------------------------------------------------------------------------------


pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no cc; install gcc")

SLEEPS = "exec sleep 600"
IGNORES_SIGTERM = "trap '' TERM; sleep 600 & echo >$0.pids/$!; wait; exec sleep 600"

StartBuild = Callable[[str], "subprocess.Popen[str]"]


def compilers(folder: Path) -> list[int]:
    """Return the live processes of folder/cc-slow."""
    return [int(path.name) for path in (folder / "cc-slow.pids").iterdir() if lives(path.name)]


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartBuild]:
    """Starts a build in tmp_path/out and waits for its first compiler, which takes ten minutes."""
    pids = tmp_path / "cc-slow.pids"
    pids.mkdir()
    started: list[subprocess.Popen[str]] = []

    def started_build(how: str) -> subprocess.Popen[str]:
        body = f'case "$*" in *" -c "*) echo >$0.pids/$$; {how};; esac\nexec cc "$@"'
        words = ["build", "--table", "c16", "-o", str(tmp_path / "out"), "--jobs", "2"]
        child = subprocess.Popen(
            [sys.executable, "-m", "spanwise", *words, "--cc", script(tmp_path / "cc-slow", body)],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(child)
        wait_for(lambda: any(pids.iterdir()))
        return child

    yield started_build
    for child in started:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate(timeout=300)
    for pid in compilers(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def assert_nothing_is_left(child: subprocess.Popen[str], folder: Path, status: int) -> str:
    """Check that a build ends before its compilers would, and leaves nothing; return its output."""
    _, said = child.communicate(timeout=300)
    assert child.returncode == status
    assert compilers(folder) == []
    assert left_in(folder) == ["cc-slow", "cc-slow.pids"]
    return said


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [SLEEPS, IGNORES_SIGTERM], ids=["sleeps", "ignores-sigterm"])
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["alone", "group"])  # as a terminal does
def test_ctrl_c_leaves_nothing(
    start: StartBuild, tmp_path: Path, how: str, send: Callable[[int, int], None]
) -> None:
    child = start(how)
    send(child.pid, signal.SIGINT)
    said = assert_nothing_is_left(child, tmp_path, 130)
    assert said.endswith("spanwise: interrupted\n") and "Traceback" not in said


def test_a_signal_that_another_thread_takes(tmp_path: Path) -> None:
    """The main thread is not woken by it; it was heard when the compilers had ended."""
    began, mark = time.monotonic(), tmp_path / "mark"

    def take() -> None:
        wait_for(mark.exists)
        time.sleep(0.3)  # the main thread is in its wait by now
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    taker = threading.Thread(target=take)
    taker.start()
    with pytest.raises(KeyboardInterrupt), Signals() as signals, signals.heard():
        run_step(["sh", "-c", f"echo > {mark}; exec sleep 600"], "sleeping")
    taker.join()
    assert time.monotonic() - began < 300


# --- failures -------------------------------------------------------------------------------------


def test_the_first_failure_ends_the_other_compilers(tmp_path: Path) -> None:
    """The first of two takes ten minutes; the other, which fails, is not kept waiting for it."""
    (tmp_path / "cc-slow.pids").mkdir()
    body = (
        'case "$*" in *" -c "*) ;; *) exec cc "$@";; esac\n'
        f"if mkdir $0.first; then echo >$0.pids/$$; {SLEEPS}; fi\n"
        'echo "x.c:7: error: bad day" >&2; exit 1'
    )
    begin = time.monotonic()
    with pytest.raises(BuildError, match=r"compiling .*: x\.c:7: error: bad day"):
        sw.build("c16", tmp_path / "out", cc=script(tmp_path / "cc-slow", body), jobs=2)
    assert time.monotonic() - begin < 300 and compilers(tmp_path) == []
    assert left_in(tmp_path) == ["cc-slow", "cc-slow.first", "cc-slow.pids"]


def test_a_step_that_does_not_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its own children end with it."""
    note = tmp_path / "pid"
    for seconds in (0.5, 5.5, 50.5):  # until it has started a child
        monkeypatch.setattr(steps, "_STEP_SECONDS", seconds)
        with pytest.raises(BuildError, match=rf"^waiting: did not end within {seconds} s$"):
            run_step(["sh", "-c", f"sleep 600 & echo $! >{note}; wait"], "waiting")
        if note.exists() and note.read_text().strip():
            break
    pid = note.read_text().strip()
    wait_for(lambda: not lives(pid))


def test_a_program_that_does_not_start() -> None:
    with pytest.raises(BuildError, match=r"^looking: /no/such: there is no such program$"):
        run_step(["/no/such"], "looking")


def folder(path: Path, content: str) -> Path:
    path.mkdir(parents=True)
    (path / "file").write_text(content)
    return path


def test_a_build_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    made = folder(tmp_path / "work/out", "new")
    place = folder(tmp_path / "place", "earlier")
    put_in_place(made, place)
    assert (place / "file").read_text() == "new"
    assert not made.exists()


def test_an_earlier_build_stays_when_the_new_one_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder(tmp_path / "work/out", "new")
    place = folder(tmp_path / "place", "earlier")
    rename = Path.rename

    def refuse_the_new_one(path: Path, target: Path) -> Path:
        if path == made:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new_one)
    with pytest.raises(OSError, match="No space left on device"):
        put_in_place(made, place)
    assert (place / "file").read_text() == "earlier"
    assert (made / "file").read_text() == "new"
    assert not (tmp_path / "work/old").exists()


def test_where_nothing_was_nothing_is_left(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "work/out", place)
    assert not place.exists()
