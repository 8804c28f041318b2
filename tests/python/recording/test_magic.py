# SPDX-License-Identifier: Apache-2.0
"""The %%record cell magic, in a real IPython shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spanwise as sw

from tests.python.helpers import needs_recorder

testing = pytest.importorskip("IPython.testing.globalipapp")
pytestmark = needs_recorder()


@pytest.fixture(scope="module")
def shell() -> Any:
    made = testing.start_ipython() or testing.get_ipython()
    made.run_line_magic("load_ext", "spanwise")
    return made


def test_a_cell_is_recorded(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("record", "", "kept = [str(i) for i in range(3000)]\nprint(len(kept))\n")
    recording = shell.user_ns["recording"]
    assert isinstance(recording, sw.Recording)
    assert recording.info["pythonmalloc"] == 1
    assert recording.summary.allocs > 3000
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3000"
    assert lines[1].startswith(f"{recording.path}: {len(recording):,} events")
    assert "kept" not in shell.user_ns


def test_options(shell: Any, tmp_path: Path) -> None:
    output = tmp_path / "cell.swt"
    shell.run_cell_magic("record", f"mine -o '{output}' --stacks 3 --keep-pymalloc", "x = 1\n")
    mine = shell.user_ns["mine"]
    assert mine.path == str(output)
    assert (mine.info["stack_depth"], mine.info["pythonmalloc"]) == (3, 0)


def test_wrong_options(shell: Any) -> None:
    with pytest.raises(sw.SpanwiseError, match=r"^%%record: unrecognized arguments: --sideways$"):
        shell.run_cell_magic("record", "--sideways", "x = 1\n")


def test_a_failing_cell_is_still_recorded(shell: Any, capfd: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("record", "failed", "raise SystemExit(3)\n")
    assert "the program exited with 3" in capfd.readouterr().out
    assert len(shell.user_ns["failed"]) > 0
