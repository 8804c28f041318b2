# SPDX-License-Identifier: Apache-2.0
"""Recording a block of this process with `spanwise.recording()`, or a cell with %%record."""

from __future__ import annotations

import json
import pickle
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
from spanwise.recordings.regions import _travels, used_names

from tests.python.helpers import needs_python_malloc, needs_recorder, spanwise

pytestmark = needs_recorder()
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


@needs_python_malloc()
def test_the_block_and_what_was_live(output: Told) -> None:
    """Seven were live when the block began; those of after it are not there."""
    count, name, requested = output.said["live"]
    assert count == 57
    assert name.startswith("spanwise-") and not Path(tempfile.gettempdir(), name).exists()
    assert requested >= 57 * SIZE
    ops = sw.Recording.open(output.whole).ops
    assert int(((ops["size"] == SIZE + 1) & (ops["kind"] == 0)).sum()) == 60


@needs_python_malloc()
def test_other_threads_are_in_it(output: Told) -> None:
    count, threads = output.said["threads"]
    assert count == 80
    assert threads >= 5


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


# --- the magic of a cell, in a real IPython shell -------------------------------------------------


@pytest.fixture(scope="module")
def shell() -> Any:
    testing = pytest.importorskip("IPython.testing.globalipapp")
    made = testing.start_ipython() or testing.get_ipython()
    made.run_line_magic("load_ext", "spanwise")
    return made


@needs_python_malloc()
def test_a_cell_is_recorded(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cell = "kept = [str(i) for i in range(3000)]\nprint(len(kept))\n"
    shown = shell.run_cell_magic("record", "", cell)
    recording = shell.user_ns["recording"]
    assert shown is recording
    assert isinstance(recording, sw.Recording)
    assert recording.info["pythonmalloc"] == 1
    assert recording.summary.allocs > 3000
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3000"
    assert lines[1].startswith(f"{recording.path}: {len(recording):,} events")
    assert lines[2] == "most bytes were allocated by"
    assert "(notebook/cell.py:1)" in lines[3]
    assert lines[-1] == "the recording is in the variable recording"
    assert "kept" not in shell.user_ns


def test_options(shell: Any, tmp_path: Path) -> None:
    output = tmp_path / "cell.swt"
    shell.run_cell_magic("record", f"mine -o '{output}' --stacks 3 --keep-pymalloc", "x = 1\n")
    mine = shell.user_ns["mine"]
    assert mine.path == str(output)
    assert (mine.info["stack_depth"], mine.info["pythonmalloc"]) == (3, 0)


@needs_python_malloc()
def test_native_call_sites(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("record", "--native", "kept = [str(i) for i in range(3000)]\n")
    assert "cell.py" not in capsys.readouterr().out
    shell.run_cell_magic("record", "--stacks 0", "x = 1\n")
    assert "most bytes" not in capsys.readouterr().out


def test_wrong_options(shell: Any) -> None:
    with pytest.raises(sw.SpanwiseError, match=r"^%%record: unrecognized arguments: --sideways$"):
        shell.run_cell_magic("record", "--sideways", "x = 1\n")


def test_a_failing_cell_is_still_recorded(shell: Any, capfd: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("record", "failed", "raise SystemExit(3)\n")
    assert "the program exited with 3" in capfd.readouterr().out
    assert len(shell.user_ns["failed"]) > 0


def test_a_cell_gets_the_variables_and_modules_that_it_uses(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("import math as m\ncount, words, unused = 5, ['a', 'b'], lambda: 0")
    cell = (
        "def area(r):\n    return m.pi * r * r + count\n"
        "count += 1\nprint(round(area(1)), [w * 2 for w in words], __name__)\n"
    )
    shell.run_cell_magic("record", "", cell)
    assert capsys.readouterr().out.splitlines()[0] == "9 ['aa', 'bb'] __main__"
    assert shell.user_ns["count"] == 5  # the notebook's own is as it was


def test_what_another_process_cannot_get_is_named(shell: Any) -> None:
    shell.run_cell("f = lambda: 1\nclass Mine: pass\nmine = Mine()")
    shell.run_cell("file = open('/dev/null')\nok = 1")
    with pytest.raises(sw.InvalidError) as caught:
        shell.run_cell_magic("record", "", "print(f(), Mine, mine, file, ok)")
    assert "cannot get Mine, f, file, mine of this notebook" in str(caught.value)
    # A name that the cell binds itself is no obstacle.
    shell.run_cell_magic("record", "", "file = open('/dev/null')\nprint(file.name)\nfile.close()")


def test_names_that_a_cell_uses() -> None:
    cell = (
        "import os\nx = y\nz += 1\ndef f(a):\n    b = a + c\n    return [d for d in b]\nprint(f(x))"
    )
    assert used_names(cell) == {"c": False, "f": True, "x": True, "y": False, "z": True}
    assert used_names("this is no Python") == {}


def test_what_a_cell_defined_does_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's cells are its __main__: such a class pickles by name, which a fresh one lacks."""
    mine = type("Mine", (), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Mine", mine, raising=False)
    assert pickle.loads(pickle.dumps(mine)) is mine
    assert not _travels(mine) and not _travels([mine()])
    assert _travels(sw.SizeClassTable.go()) and _travels(sys)
