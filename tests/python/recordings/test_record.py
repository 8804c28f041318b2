# SPDX-License-Identifier: Apache-2.0
"""Recording programs: what is recorded, what cannot be, gaps, Ctrl-C, the messages of commands."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.heap import handle
from spanwise.recordings import finish, programs, recorder
from spanwise.recordings.attached import parse_duration

from tests.python.helpers import (
    compiled,
    lives,
    make_ops,
    needs_python_malloc,
    needs_recorder,
    python,
    spanwise,
    wait_for,
)

pytestmark = needs_recorder()


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


def refused(*argv: str | Path) -> str:
    """Return the message for a program that cannot be recorded."""
    with pytest.raises(sw.ProgramError) as caught:
        sw.record(argv)
    return str(caught.value)


# --- what is recorded -----------------------------------------------------------------------------


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


def test_the_bar_counts_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends at no more than there are, which is known before."""
    loop = "for (int i = 0; i < 300000; i++) kept = malloc(40);"
    code = f"#include <stdlib.h>\nvoid *volatile kept;\nint main(void) {{ {loop} return 0; }}"
    totals: list[int] = []
    steps: list[int] = []

    @contextmanager
    def bar(_progress: None, total: int, _what: str, _unit: str) -> Iterator[object]:
        totals.append(total)
        yield steps.append

    monkeypatch.setattr(finish, "progress_bar", bar)
    monkeypatch.setattr(handle, "LOOK_SECONDS", 0.001)
    assert len(sw.record([compiled(tmp_path, code)], tmp_path / "a.swt")) == 300_000
    assert totals == [300_000] and 0 < sum(steps) <= 300_000 and len(steps) > 2


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
    """And of programs after exec; not other files, whatever they are called."""
    output = tmp_path / "r.swt"
    words = ["/bin/sh", "-c", "/bin/ls / >/dev/null; exec /bin/ls / >/dev/null"]
    first = sw.record(words, output, children=True)
    assert isinstance(first, sw.RecordingSet) and len(first) == 3
    earlier = {Path(str(one.path)) for one in first} - {output}
    images = sw.record(words, tmp_path / "image.swt", children=True)
    assert isinstance(images, sw.RecordingSet)
    pid = images[0].info["pid"]
    (tmp_path / f"image.{pid}.swt").rename(tmp_path / f"r.{pid}.2.swt")
    for child in tmp_path.glob("image.*.swt"):
        child.unlink()
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


def test_what_a_process_was_before_exec_is_recorded_with_its_children_only(tmp_path: Path) -> None:
    words = ["/bin/sh", "-c", "echo begun; exec /bin/ls /"]
    only = sw.record(words, tmp_path / "a.swt")
    assert Path(only.program).name == "ls"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.swt"]
    both = sw.record(words, tmp_path / "b.swt", children=True)
    assert isinstance(both, sw.RecordingSet)
    assert [Path(one.program).name for one in both] == ["sh", "ls"]


@needs_python_malloc()
def test_scripts_are_recorded_as_their_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text(f"#!{sys.executable}\nprint('x' * 3)\n")
    script.chmod(0o755)
    recording = sw.record([script], tmp_path / "a.swt")
    assert Path(recording.program).resolve() == Path(sys.executable).resolve()
    assert recording.info["pythonmalloc"] == 1


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


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie"]])
def test_statically_linked(tmp_path: Path, flags: list[str]) -> None:
    program = compiled(tmp_path, EMPTY, *flags)
    assert refused(program) == (
        f"{program}: cannot be recorded: statically linked, the loader never sees LD_PRELOAD"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="making a set-user-ID program of another needs root")
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


def test_a_link_to_the_output_stays(tmp_path: Path) -> None:
    """As /dev/stdout is one when stdout is a file: a rename would replace the link itself."""
    target, link = tmp_path / "target.swt", tmp_path / "link.swt"
    link.symlink_to(target.name)
    for again in (False, True):
        sw.record(["true"], link, force=again)
        assert link.is_symlink() and sorted(tmp_path.iterdir()) == [link, target]
        assert sw.Recording.open(target).info["ops"] >= 0


# --- gaps -----------------------------------------------------------------------------------------


SHUT = """
import resource
kept = [bytes(600) for _ in range(9000)]
resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
"""


@needs_python_malloc()
def test_a_disk_that_was_full_at_the_end_is_named(tmp_path: Path) -> None:
    """The last events and the end mark could not be written by the program."""
    place = tmp_path / "a.swt"
    words: list[str | Path] = ["--stacks", "0", "-o", place, "--"]
    words += [sys.executable, "-S", "-c", SHUT]
    done = spanwise("record", *words)
    assert done.returncode == 1
    assert "are missing: the disk was full, or the file at its size limit" in done.stderr
    assert "calls lost (disk): " in done.stderr
    assert "it has no end" not in done.stderr
    summary = sw.Recording.open(place).summary
    assert not summary.incomplete and summary.dropped_calls > 0 < summary.allocs
    assert "the disk was full" in spanwise("ledger", place).stderr


# --- programs that end abruptly -------------------------------------------------------------------


@pytest.mark.parametrize("signal", [9, 11])
def test_a_program_that_a_signal_ended(tmp_path: Path, signal: int) -> None:
    """What is recorded of it: tests/recorder/test_sudden.py."""
    path = tmp_path / "a.swt"
    done = spanwise("record", "-o", path, "--", "sh", "-c", f"kill -{signal} $$")
    assert sw.Recording.open(path).summary.gaps() == []
    assert done.stderr.splitlines()[:-1] == [f"the program was ended by signal {signal}"]
    assert done.returncode == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.swt"]


@pytest.mark.parametrize("there", [True, False])
def test_areas_go_where_memory_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Without such a place they are next to the output; no file remains in either."""
    if not there:
        monkeypatch.setattr(recorder, "_MEMORY", str(tmp_path / "nowhere"))
    elif not Path(recorder._MEMORY).is_dir():
        pytest.skip(f"no {recorder._MEMORY} on this machine")
    printed = tmp_path / "printed"
    script = f'echo "$SPANWISE_RECORD_AREAS" >{printed}; kill -9 $$'
    recording = sw.record(["sh", "-c", script], tmp_path / "a.swt")
    areas = Path(printed.read_text().rstrip("\n"))
    assert areas.parent == (Path(recorder._MEMORY) if there else tmp_path)
    assert not areas.exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.swt", "printed"]
    assert recording.summary.allocs > 0 and not recording.summary.incomplete


def test_runtimes(tmp_path: Path) -> None:
    assert programs.runtime_of("/usr/lib/jvm/lib/server/libjvm.so") == "the Java virtual machine"
    assert programs.runtime_of("/bin/ls") == ""
    assert programs.runtime_of(str(tmp_path)) == ""


# --- what commands say of gaps --------------------------------------------------------------------

CUT = "it has no end: what the program did last is missing"


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A recording whose last bytes are missing."""
    rows = [(0, i, 100 + i % 50) for i in range(20_000)]
    path = tmp_path / "cut.swt"
    sw.Recording.from_ops(make_ops(*rows), path)
    path.write_bytes(path.read_bytes()[:-60])
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["ledger"],
        ["ledger", "--json"],
        ["compare"],
        ["compare", "--json"],
        ["replay", "--drain", "0.01"],
        ["replay", "--ledger"],
        ["sweep", "--table", "go", "--workers", "1"],
    ],
)
def test_a_result_of_a_cut_recording_is_a_finding(cut: Path, words: list[str]) -> None:
    done = spanwise(*words, cut, "--valid-prefix")
    assert done.returncode == 1, done.stderr
    assert f"spanwise: cut.swt: {CUT}" in done.stderr.splitlines()
    assert len(done.stdout.splitlines()) > 3
    if "--json" in words:
        json.loads(done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ["ledger"],
        ["compare"],
        ["sweep", "--table", "go", "--workers", "1"],
        ["replay"],
        ["replay", "--ledger"],
        ["optimize"],
    ],
)
def test_an_empty_recording_is_a_finding(tmp_path: Path, words: list[str]) -> None:
    sw.Recording.from_ops(make_ops(), tmp_path / "none.swt")
    done = spanwise(*words, tmp_path / "none.swt")
    assert done.returncode == 1, done.stderr
    assert "spanwise: none.swt: it holds no events" in done.stderr.splitlines()
    assert "Traceback" not in done.stderr


# --- stopped --------------------------------------------------------------------------------------


KEPT = "the recording of what ran until then is kept"
SERVER = """
import os, pathlib, signal, sys, time
state = {"stops": 0}
def stop(number, frame):
    state["stops"] += 1
    pathlib.Path(f"stop-{state['stops']}").touch()
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
kept = [str(i) * 10 for i in range(20_000)]
pathlib.Path("pid").write_text(str(os.getpid()))
pathlib.Path("ready").touch()
while state["stops"] == 0 or (STUBBORN and not pathlib.Path("enough").exists()):
    time.sleep(0.01)
kept += [str(i) * 10 for i in range(20_000)]
pathlib.Path("clean").touch()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process in tmp_path, in a process group of its own, and ends it after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str | Path, **settings: object) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = subprocess.Popen(
            [str(word) for word in words],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **settings,  # type: ignore[call-overload]
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def recorded(code: str, stubborn: bool = False) -> list[str]:
    """Return the words of a command that records a Python program."""
    program = [sys.executable, "-c", code.replace("STUBBORN", str(stubborn))]
    return [sys.executable, "-m", "spanwise", "record", "-o", "a.swt", "--", *program]


def allocations(path: Path) -> int:
    """Of a recording that is whole."""
    summary = sw.Recording.open(path).summary
    assert summary.incomplete == 0
    return summary.allocs


def ends_within(pid: str, seconds: float) -> None:
    """Wait for the end, up to the given time."""
    until = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.01)


# --- spanwise record ------------------------------------------------------------------------------


@needs_python_malloc()
def test_ctrl_c_that_the_program_answers(tmp_path: Path, start: Start) -> None:
    command = start(*recorded(SERVER))
    wait_for((tmp_path / "ready").exists)
    os.killpg(command.pid, signal.SIGINT)
    lines = command.communicate()[1].splitlines()
    assert command.returncode == 130
    assert lines[0] == f"ended after SIGINT; {KEPT}"
    assert lines[-1].startswith("a.swt: ")
    assert "Traceback" not in "".join(lines)
    assert (tmp_path / "clean").exists()
    assert allocations(tmp_path / "a.swt") > 40_000
    assert not list(tmp_path.glob(".spanwise-*"))


@needs_python_malloc()
def test_the_second_ctrl_c_kills(tmp_path: Path, start: Start) -> None:
    command = start(*recorded(SERVER, stubborn=True))
    wait_for((tmp_path / "ready").exists)
    os.killpg(command.pid, signal.SIGINT)
    wait_for((tmp_path / "stop-1").exists)
    assert command.poll() is None  # waits for the program, which goes on
    program = (tmp_path / "pid").read_text()
    while lives(program):  # two that come before the command has heard the first are one
        os.killpg(command.pid, signal.SIGINT)
        ends_within(program, 5)
    lines = command.communicate()[1].splitlines()
    assert command.returncode == 130
    assert lines[:2] == [f"ended after SIGINT; {KEPT}", "the program was ended by signal 9"]
    assert not (tmp_path / "clean").exists()
    assert sw.Recording.open(tmp_path / "a.swt").summary.allocs > 15_000


# --- options of record --pid ----------------------------------------------------------------------


def test_times() -> None:
    given = ("60s", "500ms", "5m", "1h", "7", "1.5s")
    assert [parse_duration(word) for word in given] == [60, 0.5, 300, 3600, 7, 1.5]
    for word in ("", "0s", "-1s", "s", "1d", "1 2"):
        with pytest.raises(sw.InvalidError):
            parse_duration(word)


def test_options_that_do_not_fit() -> None:
    for words in (["--for", "1s", "--", "true"], ["--pid", "1", "--", "true"]):
        done = subprocess.run(
            [sys.executable, "-m", "spanwise", "record", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "--pid" in done.stderr
