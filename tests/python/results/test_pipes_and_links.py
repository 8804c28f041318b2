# SPDX-License-Identifier: Apache-2.0
"""Outputs that are no regular files: a device, a pipe or a link must outlive the command."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.results.files import write_whole

from tests.python.helpers import needs_recorder, spanwise

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs mkfifo")

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
    recording = sw.Recording.open(DATA / "births-v1.swt")
    recording.export(tmp_path.parent / f"{tmp_path.name}.txt", "openmetrics")
    pipe = tmp_path / "pipe"
    whole = (tmp_path.parent / f"{tmp_path.name}.txt").read_bytes()
    assert through_pipe(pipe, lambda: recording.export(pipe, "openmetrics")) == whole != b""


def test_a_pipe_gets_a_picture(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.svg"
    command = ("compare", DATA / "births-v1.swt", "--plot", pipe)
    assert b"<svg" in through_pipe(pipe, lambda: spanwise(*command))


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


def test_a_conversion_refuses_what_is_no_file(tmp_path: Path) -> None:
    trace, pipe = tmp_path / "a.txt", tmp_path / "pipe"
    trace.write_text("1: malloc 0x10 8\n")
    os.mkfifo(pipe)
    done = spanwise("convert", "-f", trace, "-o", pipe)
    assert done.returncode == 2
    assert done.stderr == f"spanwise: {pipe}: not a regular file; give another name\n"
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
