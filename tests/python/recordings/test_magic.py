# SPDX-License-Identifier: Apache-2.0
"""The %%record cell magic, in a real IPython shell."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.recordings.regions import _travels, used_names

from tests.python.helpers import needs_python_malloc, needs_recorder

testing = pytest.importorskip("IPython.testing.globalipapp")
pytestmark = needs_recorder()


@pytest.fixture(scope="module")
def shell() -> Any:
    made = testing.start_ipython() or testing.get_ipython()
    made.run_line_magic("load_ext", "spanwise")
    return made


@needs_python_malloc()
def test_a_cell_is_recorded(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("record", "", "kept = [str(i) for i in range(3000)]\nprint(len(kept))\n")
    recording = shell.user_ns["recording"]
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


def test_a_cell_gives_its_recording_back(shell: Any) -> None:
    shown = shell.run_cell_magic("record", "shown", "x = 1\n")
    assert shown is shell.user_ns["shown"]


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
