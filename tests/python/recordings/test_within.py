# SPDX-License-Identifier: Apache-2.0
"""`with spanwise.recording()`: the block and nothing else, or one error that says what to do."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.recordings import within

from tests.python.helpers import needs_python_malloc, needs_recorder, spanwise

SIZE = 100_000
# bytearray(n) takes n + 1 bytes of malloc, which no other object here does.
HEAD = f"""
import json, os, sys, threading
import spanwise as sw
def take(n, size={SIZE}):
    return [bytearray(size) for _ in range(n)]
def counts(recording, size={SIZE}):
    ops = recording.ops
    mine = ops[ops["size"] == size + 1]
    return int((mine["kind"] == 0).sum())
before = take(7)
"""


def told(tmp_path: Path, body: str, *words: str) -> Any:
    """What a script prints as JSON, run under the recorder."""
    script = tmp_path / "script.py"
    script.write_text(HEAD + body)
    output = tmp_path / "whole.swt"
    done = spanwise("record", *words, "-o", output, "--", sys.executable, script)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_recorder()
@needs_python_malloc()
def test_the_block_and_what_was_live(tmp_path: Path) -> None:
    said = told(
        tmp_path,
        """
with sw.recording() as part:
    inside = take(50)
    del inside[10:]
after = take(3)
ledger = part.recording.ledger()
print(json.dumps([counts(part.recording), part.recording.name, ledger.requested_bytes]))
""",
    )
    # Seven were live when the block began; those of after it are not there.
    assert said[0] == 57
    assert said[1].startswith("spanwise-") and not Path(tempfile.gettempdir(), said[1]).exists()
    assert said[2] >= 57 * SIZE
    whole = sw.Recording.open(tmp_path / "whole.swt")
    assert int(((whole.ops["size"] == SIZE + 1) & (whole.ops["kind"] == 0)).sum()) == 60


@needs_recorder()
@needs_python_malloc()
def test_blocks_nest_and_follow(tmp_path: Path) -> None:
    said = told(
        tmp_path,
        """
with sw.recording() as outer:
    a = take(5)
    with sw.recording() as inner:
        b = take(11)
    c = take(17)
with sw.recording() as empty:
    pass
print(json.dumps([counts(part.recording) for part in (outer, inner, empty)]))
""",
    )
    assert said == [40, 23, 40]


@needs_recorder()
@needs_python_malloc()
def test_other_threads_are_in_it(tmp_path: Path) -> None:
    said = told(
        tmp_path,
        """
found = []
with sw.recording() as part:
    threads = [threading.Thread(target=lambda: found.append(take(20))) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
ops = part.recording.ops
print(json.dumps([counts(part.recording), len(set(ops["thread"].tolist()))]))
""",
    )
    assert said[0] == 87
    assert said[1] >= 5


@needs_recorder()
@needs_python_malloc()
def test_a_recorded_child(tmp_path: Path) -> None:
    said = told(
        tmp_path,
        """
import subprocess
child = '''
import json, spanwise as sw
with sw.recording() as part:
    kept = [bytearray(%d) for _ in range(9)]
ops = part.recording.ops
print(json.dumps(int(((ops["size"] == %d + 1) & (ops["kind"] == 0)).sum())))
''' % ((100_000,) * 2)
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
""",
        "--children",
    )
    assert said == 9


@needs_recorder()
def test_a_child_that_is_not_recorded(tmp_path: Path) -> None:
    said = told(
        tmp_path,
        """
import subprocess
child = "import spanwise as sw\\nwith sw.recording(): pass"
done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
print(json.dumps(done.stderr.splitlines()[-1]))
""",
    )
    assert "is a child that is not recorded" in said
    assert "`spanwise record --children -o FILE.swt -- python3 SCRIPT`" in said


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


@needs_recorder()
def test_a_block_that_raises_has_no_recording(tmp_path: Path) -> None:
    said = told(
        tmp_path,
        """
try:
    with sw.recording() as part:
        raise KeyError("mine")
except KeyError as error:
    caught = repr(error)
try:
    part.recording
except sw.StateError as error:
    print(json.dumps([caught, str(error)]))
""",
    )
    assert said == [
        "KeyError('mine')",
        "recording(): the block ended with an exception, so it has no recording",
    ]


def test_before_the_end_there_is_none() -> None:
    with pytest.raises(sw.StateError, match="the block has not ended"):
        _ = sw.RecordedPart().recording


@needs_recorder()
def test_the_block_is_kept_where_it_is_told(tmp_path: Path) -> None:
    """A file that is there already is refused before the block runs; the whole stays small."""
    kept = tmp_path / "block.swt"
    said = told(
        tmp_path,
        f"""
with sw.recording({str(kept)!r}) as part:
    inside = take(50)
try:
    with sw.recording({str(kept)!r}):
        raise KeyError
except sw.InvalidError as error:
    print(json.dumps([part.recording.path, str(error)]))
""",
    )
    assert said == [str(kept), f"{kept}: exists already; give another name"]
    peak = sw.Recording.open(kept).summary.peak_requested_bytes
    assert peak >= 57 * SIZE
    # What the cutting takes is not the program's.
    whole = sw.Recording.open(tmp_path / "whole.swt")
    assert whole.summary.peak_requested_bytes < peak + (1 << 20)


def test_marks_that_are_not_there_are_an_error() -> None:
    """As after a full disk; and marks are told from allocations that look like them."""
    marks = (5, 6, 7, 8, 9, 10, 11, 12)
    rows = [(size, 12) for size in (5, 6, 7, 8, 9, 10, 11, 13, *marks, 5)]
    ops = sw.Recording.from_ops(_pairs(rows)).ops
    assert within._place(ops, marks) == (16, 32)
    with pytest.raises(sw.StateError, match="lost events"):
        within._place(ops[:-6], marks)


def _pairs(rows: list[tuple[int, int]]) -> Any:
    """Operations: each row (size, log2 of the alignment) is allocated and freed at once."""
    ops = np.zeros(2 * len(rows), sw.OPS_DTYPE)
    ops["object"] = np.repeat(np.arange(len(rows)), 2)
    ops["kind"][1::2] = 1
    ops["size"][::2], ops["align_log2"][::2] = zip(*rows, strict=True)
    return ops
