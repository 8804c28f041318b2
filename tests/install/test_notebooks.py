# SPDX-License-Identifier: Apache-2.0
"""Notebooks: sources without outputs, executed from a fresh kernel, each within its time.

Kernels are forks of one process here (kernel_server.py); `./dev notebooks --short` starts each.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from spanwise.lessons.articles import claims

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
WIDGET = "application/vnd.jupyter.widget-view+json"


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT: Any = _script("notebooks")
ANSWERS: Any = _script("notebook_answers")
SOURCES: list[Path] = SCRIPT.sources()


@pytest.fixture(scope="module", autouse=True)
def kernel_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Register forks of a process with all imports as Jupyter's kernel python3."""
    folder = tmp_path_factory.mktemp("kernels")
    program, place = str(ROOT / "tests/install/kernel_server.py"), str(folder / "socket")
    spec = folder / "kernels/python3/kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-I", "-S", program, place, "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "forked", "language": "python"}))
    pipe = subprocess.PIPE
    with (
        subprocess.Popen([sys.executable, program, place], stdin=pipe, stdout=pipe) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        assert server.stdin is not None and server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        patch.setenv("JUPYTER_PATH", str(folder))
        yield server.pid
        server.stdin.close()


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_source_has_no_outputs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == SCRIPT.text_of(SCRIPT.stripped(SCRIPT.read(path))), "run ./dev notebooks --strip"


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_source_has_one_question_and_an_answer(path: Path) -> None:
    """The question is in the first cell; after the answer there are only the articles' figures."""
    cells = SCRIPT.read(path).cells
    assert cells[0].source.count("**Question.**") == 1 and len(cells[0].source.split()) < 130
    titles = re.findall(r"^## (.*)", "\n".join(cell.source for cell in cells), re.MULTILINE)
    shows = re.search(r'\bverdicts\(\s*"(\d+)"', cells[-1].source)
    assert titles[0] == "The answer" and len(titles) == 1 + (shows is not None)
    assert all(title.startswith("Appendix: the article") for title in titles[1:])
    of_articles = {claim.notebook for claim in claims()}
    assert [shows[1]] == [path.stem[:2]] if shows else path.stem[:2] not in of_articles


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_notebook_runs_from_a_fresh_kernel(path: Path, tmp_path: Path) -> None:
    """One that leaves files also runs again in the same folder, with the files of the first run."""
    check_run(SCRIPT.execute(path, folder=tmp_path))
    if list(tmp_path.iterdir()):
        check_run(SCRIPT.execute(path, folder=tmp_path))


@pytest.mark.skipif("SPANWISE_FULL_TESTS" not in os.environ, reason="takes minutes")
@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_notebook_runs_in_full_twice(path: Path, tmp_path: Path) -> None:
    for _ in range(2):
        check_run(SCRIPT.execute(path, full=True, folder=tmp_path))


def check_run(book: Any) -> None:
    """All cells ran without a message; there are at most two pictures and one widget."""
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.get("name") == "stderr" for output in outputs)
    shown = [output.data for output in outputs if "data" in output and "image/png" in output.data]
    widgets = importlib.util.find_spec("anywidget") is not None
    assert sum(WIDGET in data for data in shown) == widgets
    assert len(shown) <= 3


def test_an_answer_that_the_data_refutes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number, a number or a comparison that nothing supports, and a sentence too many."""
    monkeypatch.setitem(ANSWERS.ANSWERS, "00", lambda n: iter([[f"{max(n.data)} is the most"]]))
    names: dict[str, Any] = {"data": [3, 7], "answer": "Of these 7 is the most."}
    ANSWERS.check("00", names)
    for answer in (
        "Of these 3 is the most.",
        "Of 2 values 7 is the most.",
        "Of these 7 is the most, 3 is less.",
        "Of these 7 is the most. That is a fact.",
    ):
        with pytest.raises(AssertionError):
            ANSWERS.check("00", {**names, "answer": answer})


def test_a_notebook_with_a_wrong_answer_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SOURCES[0].read_text(encoding="utf-8")
    assert text.count("wasted.") == 1
    path = tmp_path / SOURCES[0].name
    path.write_text(text.replace("wasted.", "wasted, 3 more."), encoding="utf-8")
    monkeypatch.setattr(SCRIPT, "FOLDER", tmp_path)
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="nothing supports"):
        SCRIPT.execute(path)


def _book(tmp_path: Path, source: str, limit: int = 60) -> Path:
    cell = nbformat.v4.new_code_cell(source)
    book = nbformat.v4.new_notebook(cells=[cell], metadata={"spanwise": {"limit_seconds": limit}})
    path = tmp_path / "99-made-up.ipynb"
    path.write_text(SCRIPT.text_of(book), encoding="utf-8")
    return path


def test_kernels_share_nothing(kernel_server: int, tmp_path: Path) -> None:
    """Neither names nor modules nor folders nor settings of what all have imported."""
    source = (
        "import sys, os, matplotlib as mpl\n"
        "print(os.getppid(), 'mine' in dir(), 'wave' in sys.modules, os.listdir(),"
        " mpl.rcParams['lines.linewidth'])\n"
        "import wave\nmine = mpl.rcParams['lines.linewidth'] = 7; open('left', 'w').close()"
    )
    for _ in range(2):
        book = SCRIPT.execute(_book(tmp_path, source))
        assert book.cells[0].outputs[0]["text"] == f"{kernel_server} False False [] 1.5\n"


def test_what_is_kept_of_a_run(tmp_path: Path) -> None:
    """Pictures for widgets, and a cell of date and machine, which goes with the outputs."""
    book = SCRIPT.read(_book(tmp_path, "x"))
    shown: list[dict[str, Any]] = [{WIDGET: {}, "image/png": "iVBORw0="}, {WIDGET: {}}]
    for data in shown:
        book.cells[0].outputs.append(nbformat.v4.new_output("display_data", data))
    book.metadata["widgets"] = {}
    kept = SCRIPT.dated(SCRIPT.still(book), full=True)
    assert [list(one.data) for one in kept.cells[0].outputs] == [["image/png"], [WIDGET]]
    assert "widgets" not in kept.metadata and nbformat.validate(kept) is None
    when = rf"\*Run in full: \d{{4}}-\d\d-\d\d, commit \S+, .+, {os.cpu_count()} processors\. .*\*"
    assert re.fullmatch(when, kept.cells[1].source)
    clean = SCRIPT.stripped(SCRIPT.read(tmp_path / "99-made-up.ipynb"))
    assert SCRIPT.text_of(SCRIPT.stripped(kept)) == SCRIPT.text_of(clean)


def test_a_cell_that_fails_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        SCRIPT.execute(_book(tmp_path, "1 / 0"))


def test_a_notebook_has_a_time_limit(tmp_path: Path) -> None:
    with pytest.raises(nbclient.exceptions.CellTimeoutError):
        SCRIPT.execute(_book(tmp_path, "import time\ntime.sleep(600)", limit=2))


def test_a_notebook_knows_whether_it_is_to_run_in_full(tmp_path: Path) -> None:
    """By a variable, which the environment of this process does not keep."""
    path = _book(tmp_path, "import os\nprint(os.environ.get('SPANWISE_NOTEBOOKS'))")
    for full, seen in ((True, "None\n"), (False, "small\n")):
        assert SCRIPT.execute(path, full=full).cells[0].outputs[0]["text"] == seen
        assert SCRIPT.SMALL not in os.environ


def test_outputs_are_stripped(tmp_path: Path) -> None:
    path = _book(tmp_path, "print(6 * 7)")
    book = SCRIPT.execute(path)
    assert book.cells[0].outputs[0]["text"] == "42\n"
    clean = SCRIPT.stripped(book)
    assert clean.cells[0].outputs == [] and clean.cells[0].execution_count is None
    assert SCRIPT.limit_seconds(clean) == 60
