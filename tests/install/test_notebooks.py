# SPDX-License-Identifier: Apache-2.0
"""Notebooks: sources without outputs, executed from a fresh kernel, each within its time."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts/notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT: Any = _script()
SOURCES: list[Path] = SCRIPT.sources()


def test_there_are_notebooks_and_their_names_are_numbered() -> None:
    numbers = [path.name.partition("-")[0] for path in SOURCES]
    assert "01" in numbers and len(set(numbers)) == len(numbers)
    assert all(number.isdigit() and len(number) == 2 for number in numbers)


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_source_has_no_outputs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == SCRIPT.text_of(SCRIPT.stripped(SCRIPT.read(path))), "run ./dev notebooks --strip"


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_notebook_says_what_it_asks_and_answers_in_one_sentence(path: Path) -> None:
    """The first cell has the question, the input and the units; the last one prints the answer."""
    cells = SCRIPT.read(path).cells
    first = cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    for word in ("**Question.**", "**Input.**", "**Units.**"):
        assert word in first.source
    assert cells[-1].cell_type == "code" and "print(" in cells[-1].source


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_notebook_runs_from_a_fresh_kernel(path: Path) -> None:
    book = SCRIPT.execute(path)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    answer = "".join(output.get("text", "") for output in code[-1].outputs).strip()
    assert answer.count(". ") == 0 and answer.endswith(".")
    assert not any(output.get("name") == "stderr" for cell in code for output in cell.outputs)


def _book(tmp_path: Path, source: str, limit: int = 60) -> Path:
    cell = nbformat.v4.new_code_cell(source)
    book = nbformat.v4.new_notebook(cells=[cell], metadata={"spanwise": {"limit_seconds": limit}})
    path = tmp_path / "99-made-up.ipynb"
    path.write_text(SCRIPT.text_of(book), encoding="utf-8")
    return path


def test_a_cell_that_fails_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        SCRIPT.execute(_book(tmp_path, "1 / 0"))


def test_a_notebook_has_a_time_limit(tmp_path: Path) -> None:
    with pytest.raises(nbclient.exceptions.CellTimeoutError):
        SCRIPT.execute(_book(tmp_path, "import time\ntime.sleep(600)", limit=2))


def test_outputs_are_stripped(tmp_path: Path) -> None:
    path = _book(tmp_path, "print(6 * 7)")
    book = SCRIPT.execute(path)
    assert book.cells[0].outputs[0]["text"] == "42\n"
    clean = SCRIPT.stripped(book)
    assert clean.cells[0].outputs == [] and clean.cells[0].execution_count is None
    assert SCRIPT.limit_seconds(clean) == 60
