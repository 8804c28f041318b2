# SPDX-License-Identifier: Apache-2.0
"""Builds with a given table: their files, inline code of other tables, failures, flags."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spanwise as sw
from install_tools import quick_compiler
from spanwise.builds.build import BuildOptions, build_with, check_malloc_table
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
    core_rooms,
)

from tests.python.elf import is_never_unloaded
from tests.python.helpers import ROOT, random_ops, script, spanwise

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
    assert is_never_unloaded(built.library) and is_never_unloaded(built.malloc_library)
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


def test_the_preloaded_malloc_serves_programs(built: sw.Build) -> None:
    code = "import json; print(len(json.dumps(list(range(50000)))))"
    done = built.run([sys.executable, "-c", code], capture_output=True, text=True)
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.returncode, done.stdout) == (0, plain.stdout)


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
