# SPDX-License-Identifier: Apache-2.0
"""Figures in a real kernel, with the inline backend that notebooks have."""

from __future__ import annotations

from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

SETUP = "import spanwise as sw; go = sw.SizeClassTable.go()"


def run_cells(*sources: str) -> list[Any]:
    """The cells of a notebook after it ran; their outputs are in `.outputs`."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in sources])
    client = nbclient.NotebookClient(book, kernel_name="python3", timeout=600, startup_timeout=600)
    # pytest's own choice of a backend is not for the kernel.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MPLBACKEND", raising=False)
        client.execute()
    cells: list[Any] = book.cells
    return cells


def images(cell: Any) -> int:
    """Pictures that a cell shows."""
    return sum("image/png" in output.get("data", {}) for output in cell.outputs)


def test_every_cell_shows_its_figure() -> None:
    cells = run_cells(
        SETUP,
        "go.plot_waste();",
        "sw.SizeClassTable.c16().plot_waste();",
        "import matplotlib; print(matplotlib.is_interactive(), matplotlib.get_backend())",
        "import matplotlib.pyplot as plt; plt.plot([1, 2]);",
    )
    assert [images(cell) for cell in cells] == [0, 1, 1, 0, 1]
    assert cells[3].outputs[0]["text"].startswith("True ")
