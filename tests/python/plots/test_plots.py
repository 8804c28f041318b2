# SPDX-License-Identifier: Apache-2.0
"""Pictures: functions draw on the given Axes in the shipped style, and change no settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import spanwise as sw
from matplotlib.axes import Axes
from spanwise import plots

from tests.python.helpers import python, random_ops

RECORDING = sw.Recording.from_ops(random_ops(9, 4000), name="mine")
GO = sw.SizeClassTable.go()

PICTURES: dict[str, Callable[[Axes | None], Axes]] = {
    "waste": GO.plot_waste,
    "ledger": lambda ax: RECORDING.ledger(GO).plot(ax),
    "comparison": lambda ax: RECORDING.compare(["go", "c16"]).plot(ax),
    "live": lambda ax: RECORDING.plot_timeline(GO, ax),
    "histogram": RECORDING.plot_histogram,
}


@pytest.mark.parametrize("name", PICTURES)
def test_draws_on_a_figure_of_its_own(name: str, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    ax = PICTURES[name](None)
    assert isinstance(ax, Axes)
    assert ax.get_title() or ax.get_title(loc="left")
    assert ax.get_xlabel()
    assert dict(mpl.rcParams) == before
    plots.save(ax, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert not plt.get_fignums()


def test_settings_that_a_backend_turns_on_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the inline backend does, which matplotlib loads at the first figure."""
    subplots = plt.subplots

    def first(**settings: object) -> object:
        mpl.rcParams["interactive"] = True
        return subplots(**settings)  # type: ignore[call-overload]

    monkeypatch.setitem(mpl.rcParams, "interactive", False)
    monkeypatch.setattr(plt, "subplots", first)
    before = mpl.rcParams["axes.grid"]
    GO.plot_waste()
    assert mpl.rcParams["interactive"] is True
    assert mpl.rcParams["axes.grid"] == before


@pytest.mark.parametrize("name", PICTURES)
def test_draws_on_given_axes(name: str) -> None:
    _, ax = plt.subplots()
    assert PICTURES[name](ax) is ax
    assert len(plt.get_fignums()) == 1


def test_bars_add_up_to_held_bytes() -> None:
    ledger = RECORDING.ledger(GO)
    ax = ledger.plot()
    total = sum(patch.get_width() for patch in ax.patches)  # type: ignore[attr-defined]
    units = {"held, KiB": 1 << 10, "held, MiB": 1 << 20}
    assert total * units[ax.get_xlabel()] == pytest.approx(ledger.held_bytes)


def test_nothing_recorded_can_be_drawn() -> None:
    empty = sw.Recording.from_ops(random_ops(1, 1)[:0])
    line, histogram = empty.plot_timeline(), empty.plot_histogram()
    bar: Any = empty.ledger("go").plot()
    assert not histogram.collections[0].get_paths()
    assert line.get_xlabel() == "operations" and len(line.collections) == 4
    assert sum(patch.get_width() for patch in bar.patches) > 0  # metadata


def test_matplotlib_is_imported_late() -> None:
    code = (
        "import sys, spanwise as sw\n"
        "sw.SizeClassTable.go().explain(3)\n"
        "print('matplotlib' in sys.modules, 'IPython' in sys.modules)"
    )
    assert python("-c", code).stdout == "False False\n"


@pytest.mark.parametrize(
    ("draw", "named"),
    [
        (plots.bench, "found must be BenchResult"),
        (plots.pareto, "points must be ParetoFront"),
        (plots.heap_map, "tiles must be HeapMap"),
        (plots.occupancy, "one must be Ledger"),
        (plots.waste_by_class, "one must be Ledger"),
    ],
)
def test_a_wrong_model_is_named(draw: Callable[[Any], Axes], named: str) -> None:
    with pytest.raises(TypeError, match=f"^{named}, not int$"):
        draw(7)


# --- in a real kernel -----------------------------------------------------------------------------


def run_cells(*sources: str) -> list[Any]:
    """Run a notebook; return its cells, with the outputs in `.outputs`."""
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in sources])
    client = nbclient.NotebookClient(book, kernel_name="python3", timeout=600, startup_timeout=600)
    # pytest's own choice of a backend is not for the kernel.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MPLBACKEND", raising=False)
        client.execute()
    cells: list[Any] = book.cells
    return cells


def images(cell: Any) -> int:
    """Return the pictures that a cell shows."""
    return sum("image/png" in output.get("data", {}) for output in cell.outputs)


def test_every_cell_shows_its_figure() -> None:
    cells = run_cells(
        "import spanwise as sw; go = sw.SizeClassTable.go()",
        "go.plot_waste();",
        "sw.SizeClassTable.c16().plot_waste();",
        "import matplotlib; print(matplotlib.is_interactive(), matplotlib.get_backend())",
        "import matplotlib.pyplot as plt; plt.plot([1, 2]);",
    )
    assert [images(cell) for cell in cells] == [0, 1, 1, 0, 1]
    assert cells[3].outputs[0]["text"].startswith("True ")
