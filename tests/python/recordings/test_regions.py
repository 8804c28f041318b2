# SPDX-License-Identifier: Apache-2.0
"""Recording a block of this process: `with spanwise.recording()`."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.recordings import regions

from tests.python.helpers import needs_python_malloc, needs_recorder, spanwise

SIZE = 100_000
# One program, a function for each test. bytearray(n) takes n + 1 bytes of malloc, which no other
# object here does; each function has a size of its own, so that their blocks do not mix.
PROGRAM = f"""
import json, threading
import spanwise as sw

def take(n, size):
    return [bytearray(size) for _ in range(n)]

def count(recording, size):
    ops = recording.ops
    return int(((ops["size"] == size + 1) & (ops["kind"] == 0)).sum())

def live(size={SIZE}):
    before = take(7, size)
    with sw.recording() as part:
        inside = take(50, size)
        del inside[10:]
    after = take(3, size)
    recording = part.recording
    return [count(recording, size), recording.name, recording.ledger().requested_bytes]

def nested(size={SIZE} + 100):
    before = take(7, size)
    with sw.recording() as outer:
        a = take(5, size)
        with sw.recording() as inner:
            b = take(11, size)
        c = take(17, size)
    with sw.recording() as empty:
        pass
    return [count(part.recording, size) for part in (outer, inner, empty)]

def threads(size={SIZE} + 200):
    found = []
    with sw.recording() as part:
        threads = [threading.Thread(target=lambda: found.append(take(20, size))) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    return [count(part.recording, size), len(set(part.recording.ops["thread"].tolist()))]

def raised():
    try:
        with sw.recording() as part:
            raise KeyError("mine")
    except KeyError as error:
        caught = repr(error)
    try:
        part.recording
    except sw.StateError as error:
        return [caught, str(error)]

print(json.dumps(dict(live=live(), nested=nested(), threads=threads(), raised=raised())))
"""


@dataclass(frozen=True)
class Told:
    """What the program printed about its blocks, and the recording of all of it."""

    said: dict[str, Any]
    whole: Path


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("within")
    script, whole = folder / "script.py", folder / "whole.swt"
    script.write_text(PROGRAM)
    words = ("-o", whole, "--", sys.executable, script)
    done = spanwise("record", *words)
    assert done.returncode == 0, done.stderr
    return Told(json.loads(done.stdout), whole)


@needs_recorder()
@needs_python_malloc()
def test_the_block_and_what_was_live(output: Told) -> None:
    """Seven were live when the block began; those of after it are not there."""
    count, name, requested = output.said["live"]
    assert count == 57
    assert name.startswith("spanwise-") and not Path(tempfile.gettempdir(), name).exists()
    assert requested >= 57 * SIZE
    ops = sw.Recording.open(output.whole).ops
    assert int(((ops["size"] == SIZE + 1) & (ops["kind"] == 0)).sum()) == 60


@needs_recorder()
@needs_python_malloc()
def test_other_threads_are_in_it(output: Told) -> None:
    count, threads = output.said["threads"]
    assert count == 80
    assert threads >= 5


@needs_recorder()
@needs_python_malloc()
def test_a_recorded_child(tmp_path: Path) -> None:
    child = f"""
import spanwise as sw
with sw.recording() as part:
    kept = [bytearray({SIZE}) for _ in range(9)]
ops = part.recording.ops
print(int(((ops["size"] == {SIZE} + 1) & (ops["kind"] == 0)).sum()))
"""
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    words = ("--children", "-o", tmp_path / "whole.swt", "--", sys.executable, "-c", parent, child)
    assert spanwise("record", *words).stdout == "9\n"


def test_a_process_that_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPANWISE_RECORD_FILE", "SPANWISE_RECORD_PID"):
        monkeypatch.delenv(name, raising=False)
    entered = False
    with (
        pytest.raises(sw.StateError, match=re.escape("spanwise record -o FILE.swt -- python3")),
        sw.recording(),
    ):
        entered = True
    assert not entered


def test_before_the_end_there_is_none() -> None:
    with pytest.raises(sw.StateError, match="the block has not ended"):
        _ = sw.RecordedPart().recording


def test_marks_that_are_not_there_are_an_error() -> None:
    """As after a full disk; and marks differ from allocations that look like them."""
    marks = (5, 6, 7, 8, 9, 10, 11, 12)
    rows = [(size, 12) for size in (5, 6, 7, 8, 9, 10, 11, 13, *marks, 5)]
    ops = sw.Recording.from_ops(_pairs(rows)).ops
    assert regions._place(ops, marks) == (16, 32)
    with pytest.raises(sw.StateError, match="lost events"):
        regions._place(ops[:-6], marks)


def _pairs(rows: list[tuple[int, int]]) -> Any:
    """Operations: each row (size, log2 of the alignment) is allocated and freed at once."""
    ops = np.zeros(2 * len(rows), sw.OPS_DTYPE)
    ops["object"] = np.repeat(np.arange(len(rows)), 2)
    ops["kind"][1::2] = 1
    ops["size"][::2], ops["align_log2"][::2] = zip(*rows, strict=True)
    return ops
