# SPDX-License-Identifier: Apache-2.0
"""Recording programs from Python, and programs that cannot be recorded."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.recordings import programs

from tests.python.helpers import needs_python_malloc, needs_recorder, parts_of, python, spanwise

pytestmark = needs_recorder()

CC = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler on this machine")

COUNTED = """
#include <stdlib.h>
int main(void) {
    void *kept[100];
    for (int i = 0; i < 100; i++) kept[i] = malloc(1000 + (size_t)i);
    for (int i = 0; i < 60; i++) free(kept[i]);
    kept[99] = realloc(kept[99], 54321);
    return calloc(7, 11) == NULL;
}
"""
EMPTY = "int main(void) { return 0; }"


def compiled(folder: Path, code: str, *flags: str) -> Path:
    """Compile a program from C source."""
    source = folder / "program.c"
    source.write_text(code)
    assert CC is not None
    subprocess.run([CC, "-O0", "-o", folder / "program", source, *flags], check=True)
    return folder / "program"


def refused(*argv: str | Path) -> str:
    """Return the message for a program that cannot be recorded."""
    with pytest.raises(sw.ProgramError) as caught:
        sw.record(argv)
    return str(caught.value)


# --- what is recorded -----------------------------------------------------------------------------


@needs_compiler
def test_counts_are_those_of_the_program(tmp_path: Path) -> None:
    program = compiled(tmp_path, COUNTED)
    recording = sw.record([program], tmp_path / "counted.swt")
    sizes = {int(row["size_bytes"]): int(row["count"]) for row in recording.histogram()}
    assert all(sizes.get(1000 + i, 0) >= 1 for i in range(100))
    assert sizes[54321] == sizes[77] == 1
    summary = recording.summary
    assert (summary.allocs, summary.frees, summary.reallocs) == (101, 60, 1)
    assert summary.zeroed_allocs == 1
    assert recording.program == str(program)
    assert recording.arguments == [str(program)]
    assert sum(site.allocs for site in recording.sites) == 101
    assert recording.sites[0].frames[0].startswith(f"{program}+0x")
    assert list(tmp_path.glob(".spanwise-*")) == []


def test_an_output_that_exists_is_kept(tmp_path: Path) -> None:
    """Unless force is given: nothing brings a recording back."""
    place = tmp_path / "a.swt"
    events = len(sw.record(["/bin/ls", "/"], place))
    before = place.read_bytes()
    with pytest.raises(sw.InvalidError, match="exists already; give another name, or force=True"):
        sw.record(["/bin/true"], place)
    assert place.read_bytes() == before
    assert len(sw.record(["/bin/true"], place, force=True)) != events


def test_a_recording_without_a_name_goes_at_the_end() -> None:
    """It is removed when the process that made it ends, not when its children end."""
    script = (
        "import os, spanwise as sw; r = sw.record(['/bin/true']); p = os.fork();"
        " p or exit(0); os.waitpid(p, 0); assert os.path.exists(r.path); print(r.path)"
    )
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("/") and not Path(done.stdout.strip()).exists()


def test_children(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = "/bin/ls / >/dev/null; /bin/ls / >/dev/null; :"
    alone = sw.record(["/bin/sh", "-c", script], tmp_path / "alone.swt")
    assert alone.summary.children_unrecorded == 2
    assert (
        capfd.readouterr()
        .err.rstrip()
        .endswith("; 2 children not recorded (--children records them)")
    )
    family = sw.record(["/bin/sh", "-c", script], tmp_path / "all.swt", children=True)
    assert isinstance(family, sw.RecordingSet)
    assert len(family) == 3
    assert family[0].path == str(tmp_path / "all.swt")
    assert {Path(child.program).name for child in family[1:]} == {"ls"}
    said = capfd.readouterr().err
    assert "; 2 children recorded (" in said
    for child in family[1:]:
        name, _, rest = next(
            line for line in said.splitlines() if Path(str(child.path)).name in line
        ).split(maxsplit=2)
        assert rest.endswith("/bin/ls /"), name
    reopened = sw.RecordingSet.open([tmp_path / "all*.swt"])
    assert reopened.ledger("go").held_bytes == family.ledger("go").held_bytes


def test_force_removes_the_recordings_of_an_earlier_runs_children(tmp_path: Path) -> None:
    """And of its images before exec; not other files, whatever they are called."""
    output = tmp_path / "r.swt"
    words = ["/bin/sh", "-c", "/bin/ls / >/dev/null; exec /bin/ls / >/dev/null"]
    first = sw.record(words, output, children=True)
    assert isinstance(first, sw.RecordingSet) and len(first) == 3
    earlier = {Path(str(one.path)) for one in first} - {output}
    image = sw.record(words, tmp_path / "image.swt")
    (before_exec,) = tmp_path.glob("image.*.swt")
    before_exec.rename(tmp_path / f"r.{image.info['pid']}.2.swt")
    kept = {tmp_path / f"r.{name}.swt" for name in ("2024", "1.2.3", "x1", "3")}
    for path in kept:
        shutil.copy(output, path)
    (tmp_path / "r.3.swt").write_text("no recording")
    kept |= {tmp_path / "image.swt", tmp_path / f"rs.{first[0].info['pid']}.swt"}
    shutil.copy(output, tmp_path / f"rs.{first[0].info['pid']}.swt")
    assert "exists already" in spanwise("record", "-o", output, "--", "/bin/true").stderr
    assert all(path.exists() for path in earlier)
    script = "/bin/ls / >/dev/null; :"
    done = spanwise("record", "-f", "--children", "-o", output, "--", "/bin/sh", "-c", script)
    assert done.returncode == 0, done.stderr
    found = set(tmp_path.glob("*.swt"))
    (child,) = found - kept - {output}
    assert child not in earlier and kept <= found
    assert Path(sw.Recording.open(child).program).name == "ls"
    again = sw.record(["/bin/true"], output, force=True)
    assert set(tmp_path.glob("*.swt")) == kept | {Path(str(again.path))}


@needs_python_malloc()
def test_scripts_are_recorded_as_their_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text(f"#!{sys.executable}\nprint('x' * 3)\n")
    script.chmod(0o755)
    recording = sw.record([script], tmp_path / "a.swt")
    assert Path(recording.program).resolve() == Path(sys.executable).resolve()
    assert recording.info["pythonmalloc"] == 1


def test_a_recorded_ledger_is_that_of_a_live_heap(tmp_path: Path) -> None:
    """The operations of a real program through a real heap: the same to the byte."""
    code = "import json; json.loads(json.dumps([{'a': i, 'b': str(i)} for i in range(2000)]))"
    recording = sw.record([sys.executable, "-c", code], tmp_path / "a.swt")
    for table in ("go", "c16"):
        model = recording.ledger(table, "end")
        with sw.Heap(table, manual_clock=True) as heap:
            stats = heap.run(recording.ops)
            live = heap.ledger()
            heap.verify()
        assert parts_of(model) == parts_of(live)
        # A heap knows neither how much will be live at the peak, nor what is resident meanwhile.
        assert model.stats is not None and model.stats.steady_held_over_requested is not None
        assert model.stats.peak_resident_bytes is not None
        known = replace(model.stats, steady_held_over_requested=None, peak_resident_bytes=None)
        assert known == stats
        assert (model.classes == live.classes).all()


@needs_python_malloc()
def test_a_killed_program_leaves_a_recording(tmp_path: Path) -> None:
    code = "import os\nx = [str(i) for i in range(200000)]\nos.kill(os.getpid(), 9)"
    recording = sw.record([sys.executable, "-c", code], tmp_path / "a.swt")
    assert recording.summary.allocs > 200_000
    assert recording.summary.incomplete == 0
    assert recording.ledger("go").requested_bytes > 0


# --- what cannot be -------------------------------------------------------------------------------


def test_program_not_found(tmp_path: Path) -> None:
    assert refused("no-such-program-here") == (
        "no-such-program-here: program not found; give its path, or a name that is in PATH"
    )
    path = tmp_path / "nothing"
    assert refused(path) == f"{path}: program not found; check the path"
    assert refused(tmp_path) == f"{tmp_path}: is a directory, not a program"
    path.write_text("text")
    assert refused(path) == f"{path}: is not executable; chmod +x it"
    path.chmod(0o755)
    assert refused(path) == f"{path}: cannot be recorded: neither an ELF program nor a script"
    path.write_text("#!/no/such/interpreter\n")
    assert refused(path) == f"{path}: its interpreter /no/such/interpreter was not found"
    path.write_text("#!/usr/bin/env no-such-interpreter\n")
    assert refused(path) == f"{path}: its interpreter no-such-interpreter was not found"


@needs_compiler
@pytest.mark.parametrize("flags", [["-static"], ["-static-pie"]])
def test_statically_linked(tmp_path: Path, flags: list[str]) -> None:
    program = compiled(tmp_path, EMPTY, *flags)
    assert refused(program) == (
        f"{program}: cannot be recorded: statically linked, the loader never sees LD_PRELOAD"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="making a set-user-ID program of another needs root")
@needs_compiler
def test_set_user_id(tmp_path: Path) -> None:
    program = compiled(tmp_path, EMPTY)
    os.chown(program, 12345, -1)
    program.chmod(0o4755)
    assert refused(program) == (
        f"{program}: cannot be recorded: set-user-ID program, the loader ignores LD_PRELOAD"
    )
    os.chown(program, 0, 12345)
    program.chmod(0o2755)
    assert "set-group-ID program" in refused(program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)  # of the user who runs it: nothing changes at its start
    assert program.stat().st_mode & stat.S_ISUID
    assert len(sw.record([program], tmp_path / "a.swt")) == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="written for x86-64")
@needs_compiler
def test_another_machine(tmp_path: Path) -> None:
    program = compiled(tmp_path, EMPTY)
    raw = bytearray(program.read_bytes())
    raw[18:20] = (183).to_bytes(2, "little")
    program.write_bytes(raw)
    assert refused(program) == (
        f"{program}: cannot be recorded: it is 64-bit AArch64, the recorder is 64-bit x86-64"
    )
    raw[4] = 1
    raw[18:20] = (3).to_bytes(2, "little")
    program.write_bytes(raw)
    assert refused(program) == (
        f"{program}: cannot be recorded: it is 32-bit x86, the recorder is 64-bit x86-64"
    )


@needs_compiler
def test_no_elf_bytes_crash_the_look(tmp_path: Path) -> None:
    program = compiled(tmp_path, EMPTY)
    whole, elf = program.read_bytes(), programs.read_elf(str(program))
    assert elf is not None and elf.bits == 64 and elf.needed
    path = tmp_path / "cut"
    for length in [*range(0, 1200, 7), len(whole) // 2]:
        path.write_bytes(whole[:length])
        assert programs.read_elf(str(path)) is None or length > 64
    for place in range(0, 900, 3):
        path.write_bytes(whole[:place] + b"\xff\xff\xff" + whole[place + 3 :])
        assert programs.read_elf(str(path)) is None or place > 3  # the magic number is 4 bytes


def test_bad_arguments(tmp_path: Path) -> None:
    bad: list[Any] = [[], "ls", b"ls"]
    for argv in bad:
        with pytest.raises(ValueError, match="argv must be a list"):
            sw.record(argv)
    with pytest.raises(ValueError, match="stacks 129 is too large; give at most 128"):
        sw.record(["/bin/ls"], stacks=129)
    with pytest.raises(OSError, match="cannot write there: No such file or directory"):
        sw.record(["/bin/ls"], tmp_path / "no/such/folder/a.swt")


def test_without_the_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANWISE_NATIVE_DIR", str(tmp_path))
    with pytest.raises(sw.UnsupportedError) as caught:
        sw.record(["/bin/ls"])
    assert str(caught.value) == (
        f"{tmp_path}/libspanwise-record.so: not there; install the wheel, or set"
        " SPANWISE_NATIVE_DIR to its folder"
    )


# --- resources ------------------------------------------------------------------------------------


def limited(files: int) -> Callable[[], None]:
    """Sets the largest file that a program may write, bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (files, files))


@needs_python_malloc()
def test_out_of_disk_does_not_disturb_the_program(tmp_path: Path) -> None:
    output = tmp_path / "a.swt"
    code = "x = [str(i) for i in range(300000)]; print(len(x))"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "spanwise",
            "record",
            "-o",
            output,
            "--",
            sys.executable,
            "-c",
            code,
        ],
        capture_output=True,
        text=True,
        preexec_fn=limited(200_000),
        check=False,
    )
    assert done.stdout == "300000\n"
    assert done.returncode == 1, done.stderr
    assert " are missing: the disk was full, or the file at its size limit\n" in done.stderr
    assert "calls lost (disk): " in done.stderr
    recording = sw.Recording.open(output)
    assert recording.summary.dropped_calls > 0
    assert recording.summary.drop_reason == 1
    assert recording.ledger("go").held_bytes > 0
    assert list(tmp_path.glob(".spanwise-*")) == []


def test_a_link_to_the_output_stays(tmp_path: Path) -> None:
    """As /dev/stdout is one when stdout is a file: a rename would replace the link itself."""
    target, link = tmp_path / "target.swt", tmp_path / "link.swt"
    link.symlink_to(target.name)
    for again in (False, True):
        sw.record(["true"], link, force=again)
        assert link.is_symlink() and sorted(tmp_path.iterdir()) == [link, target]
        assert sw.Recording.open(target).info["ops"] >= 0
