# SPDX-License-Identifier: Apache-2.0
"""Runs notebooks, each in a fresh kernel and an empty folder; keeps the sources free of outputs.

Exit status: 0 all ran, 1 one failed or was not stripped, 2 bad usage.

Example:
    ./dev notebooks 01             run the notebooks that begin with 01, into build/notebooks
    ./dev notebooks --strip        remove outputs from the sources, before a commit
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

nbformat: Any = importlib.import_module("nbformat")

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
OUTPUT = ROOT / "build/notebooks"
LIMIT_SECONDS = 120
"""Time limit of a cell, unless the notebook's metadata `spanwise` has `limit_seconds`."""

SMALL = "SPANWISE_NOTEBOOKS"
"""The environment variable that selects a notebook's short form, with the value "small"."""

WHERE_AND_WHEN = "where-and-when"
"""The id of the cell with date and machine that a run inserts after the first one."""

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources(prefixes: Sequence[str] = ()) -> list[Path]:
    """Return the notebooks, or those that begin with a prefix."""
    found = sorted(FOLDER.glob("*.ipynb"))
    return [p for p in found if not prefixes or p.name.startswith(tuple(prefixes))]


def read(path: Path) -> Any:
    """Read a notebook.

    Raises:
        ValueError: the file is not a notebook of format 4.
    """
    book = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    if book.nbformat != 4:
        raise ValueError(f"{path.name}: format {book.nbformat}; save it in format 4")
    nbformat.validate(book)
    return book


def stripped(book: Any) -> Any:
    """Remove the traces of a run: outputs, execution counts, the machine's kernel."""
    book.cells = [cell for cell in book.cells if cell.get("id") != WHERE_AND_WHEN]
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cell.metadata = nbformat.NotebookNode()
    kept = {k: v for k, v in book.metadata.items() if k == "spanwise"}
    book.metadata = nbformat.from_dict({"kernelspec": KERNEL, **kept})
    return book


def still(book: Any) -> Any:
    """Replace widgets, which need a kernel, by pictures."""
    view = "application/vnd.jupyter.widget-view+json"
    for cell in book.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                data.pop(view, None)
    book.metadata.pop("widgets", None)
    return book


def dated(book: Any, *, full: bool) -> Any:
    """Insert a cell with date, commit and machine of the run."""
    from spanwise.measure.bench import processor  # noqa: PLC0415  stripping needs no package
    from spanwise.sweeps.row_file import commit  # noqa: PLC0415

    form = "in full" if full else "in the short form of the tests"
    line = (
        f"*Run {form}: {time.strftime('%Y-%m-%d', time.gmtime())}, commit {commit() or 'unknown'},"
        f" {processor() or 'unknown processor'}, {os.cpu_count()} processors. Measurements"
        " below are from this machine.*"
    )
    cell = nbformat.v4.new_markdown_cell(line)
    cell["id"] = WHERE_AND_WHEN
    book.cells.insert(1, cell)
    return book


def text_of(book: Any) -> str:
    """Return the content of the notebook's file."""
    return str(nbformat.writes(book, indent=1)) + "\n"


def limit_seconds(book: Any) -> int:
    """Return the time limit of each cell."""
    return int(book.metadata.get("spanwise", {}).get("limit_seconds", LIMIT_SECONDS))


def answer_check(path: Path) -> Any:
    """Return a cell that compares the answer with the notebook's data."""
    number, script = path.name[:2], str(ROOT / "scripts/notebook_answers.py")
    return nbformat.v4.new_code_cell(
        f"import runpy\n\nrunpy.run_path({script!r})['check']({number!r}, dict(globals()))"
    )


def execute(path: Path, *, full: bool = False, folder: Path | None = None) -> Any:
    """Run a notebook in a fresh kernel and check its answer; return it with its outputs.

    Args:
        path: of the notebook.
        full: as a user runs it; False: the short form of the tests.
        folder: the working folder; None: a new empty one.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed, or the answer says what the data
            does not (notebook_answers.py).
        nbclient.exceptions.CellTimeoutError: a cell exceeded the time limit.
    """
    from nbclient import NotebookClient  # noqa: PLC0415  stripping needs no kernel

    book = read(path)
    if path.parent == FOLDER:
        book.cells.append(answer_check(path))
    limit = limit_seconds(book)
    names = ("MPLBACKEND", SMALL)  # the kernel has its own backend
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    if not full:
        os.environ[SMALL] = "small"
    try:
        with tempfile.TemporaryDirectory(prefix="spanwise-notebook-") as empty:
            client = NotebookClient(
                book,
                timeout=limit,
                startup_timeout=600,
                kernel_name=KERNEL["name"],
                extra_arguments=["--IPKernelApp.log_level=ERROR"],  # no TCP warning
                resources={"metadata": {"path": str(folder or empty)}},
            )
            client.execute()
    finally:
        os.environ.pop(SMALL, None)
        os.environ.update(before)
    if path.parent == FOLDER:
        book.cells.pop()
    return book


def _run(path: Path, *, full: bool) -> bool:
    from nbclient.exceptions import CellExecutionError, CellTimeoutError  # noqa: PLC0415

    print(f"{path.name}: running, at most {limit_seconds(read(path))} s per cell", flush=True)
    started = time.monotonic()
    try:
        book = execute(path, full=full)
    except (CellExecutionError, CellTimeoutError) as error:
        print(f"{path.name}: {str(error).strip()}", file=sys.stderr)
        return False
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / path.name).write_text(text_of(dated(still(book), full=full)), encoding="utf-8")
    took = time.monotonic() - started
    place = OUTPUT.relative_to(ROOT) / path.name
    print(f"{path.name}: ran in {took:.1f} s; {place} has the outputs", flush=True)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or strip notebooks."""
    parser = argparse.ArgumentParser(
        prog="./dev notebooks",
        description="Runs notebooks, each in a fresh kernel and an empty folder.",
        epilog="example:\n  ./dev notebooks 01",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="the beginning of a file's name [all]"
    )
    parser.add_argument("--strip", action="store_true", help="only remove outputs from the sources")
    parser.add_argument("--short", action="store_true", help="the short form of the tests")
    options = parser.parse_args(arguments)
    found = sources(options.names)
    if not found:
        parser.error(f"no notebook begins with {', '.join(options.names) or 'anything'}")
    if options.strip:
        for path in found:
            path.write_text(text_of(stripped(read(path))), encoding="utf-8")
        return 0
    failed = [path for path in found if not _run(path, full=not options.short)]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
