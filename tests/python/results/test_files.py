# SPDX-License-Identifier: Apache-2.0
"""Errors of reading are one line, also of damaged files; files appear whole; pipes and links."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import shutil
import stat
import struct
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.measure.bench_cases import read_cases
from spanwise.measure.running import read_process_ledger
from spanwise.recordings import conversion
from spanwise.results.files import reading, write_whole

from tests.python.helpers import ROOT, needs_recorder, python, spanwise

LEDGER = ROOT / "tests/fuzz/seeds/process-ledger.json"
DEEP = "[" * 200_000


def none() -> Any:
    return None


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (lambda: int("x"), "invalid literal for int() with base 10: 'x'"),
        (lambda: int(float("inf")), "cannot convert float infinity to integer"),
        (lambda: (1 << 64).to_bytes(8, "little"), "int too big to convert"),
        (lambda: dict[str, int]()["size"], "lacks 'size'"),
        (lambda: list[int]()[3], "list index out of range"),
        (lambda: none() + 1, "unsupported operand type(s) for +: 'NoneType' and 'int'"),
        (lambda: none().items, "'NoneType' object has no attribute 'items'"),
        (lambda: zlib.decompress(b"xx"), "Error -3 while decompressing data"),
        (lambda: struct.unpack("<I", b"x"), "unpack requires a buffer of 4 bytes"),
        (b"a\xff".decode, "byte 1 is not utf-8"),
        (lambda: json.loads(DEEP), "is nested too deeply"),
        (lambda: 1 // 0, "integer division or modulo by zero"),
    ],
)
def test_what_goes_wrong_is_one_line(deed: Callable[[], Any], said: str) -> None:
    with pytest.raises(sw.TraceFormatError) as caught, reading("a.dat", lambda: "line 7"):
        deed()
    assert str(caught.value).startswith(f"a.dat: line 7: {said}")
    assert "\n" not in str(caught.value)
    with (
        pytest.raises(sw.InvalidError, match=r"^a\.dat: [^:]"),
        reading("a.dat", error=sw.InvalidError),
    ):
        deed()


def test_long_messages_are_cut_and_have_no_lines() -> None:
    with pytest.raises(sw.TraceFormatError) as caught, reading("a.dat"):
        raise ValueError("two\nlines " + "x" * 1000)
    assert str(caught.value).startswith("a.dat: two lines xxx") and len(str(caught.value)) == 167


def test_errors_that_are_not_the_files_pass() -> None:
    for one in (
        sw.LimitError("a.dat: mine"),
        OSError(errno.EIO, "of the disk"),
        KeyboardInterrupt(),
    ):
        with pytest.raises(type(one)) as caught, reading("b.dat"):
            raise one
        assert caught.value is one
    said = r"^b\.dat: line 3: needs more memory than there is"
    with pytest.raises(sw.OutOfMemoryError, match=said), reading("b.dat", lambda: "line 3"):
        raise MemoryError


def test_names_that_are_not_utf8_are_printed_and_written(tmp_path: Path) -> None:
    """A locale of UTF-8 has strict output; a name of a file is any bytes."""
    odd = tmp_path / os.fsdecode(b"x\xff.swt")
    shutil.copy(ROOT / "tests/data/births.swt", odd)
    env = {"PYTHONIOENCODING": "utf-8:strict"}
    done = python("-m", "spanwise", "ledger", odd, env=env)
    assert done.returncode == 0 and "ledger of x\\udcff.swt" in done.stdout, done.stderr
    write_whole(tmp_path / "a.txt", f"{odd.name} µ")
    assert (tmp_path / "a.txt").read_bytes() == b"x\\udcff.swt \xc2\xb5"


# --- readers that have no test of their own damage ------------------------------------------------


def refused(reads: Callable[[Path], Any], path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    with pytest.raises(sw.InvalidError) as caught:
        reads(path)
    said = str(caught.value)
    assert said.startswith(str(path)) and "\n" not in said and len(said) < 400
    return said.removeprefix(str(path))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([{"argv": ["a\0b"]}], ": case 1: argv must be a list of words"),
        ([{"argv": ["a"]}, {"argv": ["\ud800"]}], ": case 2: argv must be a list of words"),
        ([{"argv": ["a"], "environment": {"a=b": "c"}}], ": case 1: environment must be an object"),
        ([{"argv": ["a"], "environment": {"": "c"}}], ": case 1: environment must be an object"),
        ([{"argv": ["a"], "environment": {"b": "\0"}}], ": case 1: environment must be an object"),
        ([{"argv": ["a"], "program": ["b"]}], ": case 1: program and input must be texts"),
        ([{"argv": ["a"], "k" * 5000: 1}], f": case 1: unknown key '{'k' * 40}'; the keys are"),
    ],
)
def test_cases(value: Any, said: str, tmp_path: Path) -> None:
    assert refused(read_cases, tmp_path / "c.json", json.dumps(value)).startswith(said)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("pid",), "7"),
        (("pid",), -1),
        (("peak_held_bytes",), None),
        (("limit_bytes",), 1 << 64),
        (("end", "held_bytes"), 0.5),
        (("end", "ops"), []),
        (("end", "resident", "held_bytes"), "1"),
        (("end", "classes"), [[1 << 64] * 21]),
        (("run", "ops"), {}),
        (("peak",), [1]),
    ],
)
def test_process_ledgers(place: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    whole = json.loads(LEDGER.read_bytes())
    part = whole
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    said = refused(read_process_ledger, tmp_path / "l.json", json.dumps(whole))
    assert said.startswith(": no ledger of the preloaded malloc: ")


def test_a_whole_process_ledger() -> None:
    found = read_process_ledger(LEDGER)
    assert (found.pid, found.program, found.tracked) == (23920, "/usr/bin/true", True)
    assert found.ledger.held_bytes == 386_256 and found.ledger.resident_bytes == 148_688
    assert found.peak is not None and found.peak.requested_bytes == 66_061


@pytest.mark.parametrize("stamp", ["[]", '{"table": {"name": "go"}}', DEEP, '{"table": 7}', "\xff"])
def test_builds(stamp: str, tmp_path: Path) -> None:
    (tmp_path / "build.json").write_text(stamp, encoding="latin-1")
    with pytest.raises(sw.InvalidError, match="was not created by `spanwise build`"):
        sw.Build.open(tmp_path)


# --- pipes and links ------------------------------------------------------------------------------

DATA = Path(__file__).parents[2] / "data"


def through_pipe(pipe: Path, write: Callable[[], object]) -> bytes:
    """What a reader of the pipe gets from `write`, after which it must still be a pipe."""
    os.mkfifo(pipe)
    read = bytearray()
    with ThreadPoolExecutor(1) as pool:
        # Opened for both directions, so that neither side waits for the other one to open it.
        handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        try:
            writing = pool.submit(write)
            while not writing.done() or select.select([handle], [], [], 0)[0]:
                if select.select([handle], [], [], 0.01)[0]:
                    read += os.read(handle, 1 << 16)
            writing.result()
        finally:
            os.close(handle)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert [path.name for path in pipe.parent.iterdir()] == [pipe.name]
    return bytes(read)


def test_a_pipe_gets_the_bytes(tmp_path: Path) -> None:
    assert through_pipe(tmp_path / "pipe", lambda: write_whole(tmp_path / "pipe", "abc")) == b"abc"


def test_a_pipe_gets_an_export(tmp_path: Path) -> None:
    recording = sw.Recording.open(DATA / "births.swt")
    recording.export(tmp_path.parent / f"{tmp_path.name}.txt", "openmetrics")
    pipe = tmp_path / "pipe"
    whole = (tmp_path.parent / f"{tmp_path.name}.txt").read_bytes()
    assert through_pipe(pipe, lambda: recording.export(pipe, "openmetrics")) == whole != b""


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there/target.txt", tmp_path / "link.txt"
    target.write_text("before")
    link.symlink_to(target)
    write_whole(link, "after")
    assert link.is_symlink() and target.read_text() == "after"


def test_a_link_in_a_circle_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    write_whole(tmp_path / "a", "")  # the link that closes the circle gives way
    assert (tmp_path / "a").is_file()


@needs_recorder()
def test_a_recording_refuses_what_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused = f"spanwise: {pipe}: not a regular file; give another name\n"
    for force in ((), ("-f",)):
        done = spanwise("record", *force, "-o", pipe, "--", "true")
        assert (done.returncode, done.stderr) == (2, refused)
    with pytest.raises(sw.InvalidError, match="not a regular file"):
        sw.record(["true"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


# --- damaged files for every reader: the short form of `./dev stress python_files` ----------------


FILES = 510


@pytest.mark.skipif(sys.platform != "linux", reason="needs forks and /proc")
def test_no_damaged_file_ends_in_a_traceback(tmp_path: Path) -> None:
    """Each reader accepts some damaged files and rejects others, so both paths are tested."""
    words = ["--files", str(FILES), "--seed", "7", "--keep", str(tmp_path)]
    done = python("-m", "tests.fuzz.fuzz_files", *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FILES} files: 0 failures" in done.stdout
    rows = re.findall(r"^(.+?) +(\d+) +(\d+) +(\d+)$", done.stdout, re.MULTILINE)
    assert len(rows) >= 17
    assert {f"convert {form}" for form in conversion.FORMS} < {name for name, *_ in rows}
    for name, *counts in rows:
        files, fine, refused = map(int, counts)
        assert fine + refused == files >= FILES // len(rows)
        assert fine > 0 and refused > 0, name
