# SPDX-License-Identifier: Apache-2.0
"""Room that placements need beyond what is live, over sizes and lifetimes.

Every policy (first, best, next, worst fit, buddy) gets the same drawn objects. Printed: the room
without which a request would have been refused, over the most that was live at once; and Robson's
bound, which a worst program forces on every allocator that moves nothing. The back ends that have
the same placement must need the same room, to the last place.

Example: ./dev study fragmentation --plot out/fragmentation.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from runner.drawing import save
from runner.provenance import measured_here
from spanwise import plots
from spanwise.lessons import fragmentation

BUILD = Path(__file__).resolve().parents[2] / "build/bench"
BACKENDS = ("wide", "single")
SHARED = ("first", "next", "worst")
"""Placements that every tree has; `two` has best fit besides."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table; 1 if two back ends differ."""
    parser = argparse.ArgumentParser(
        prog="./dev study fragmentation",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=20_000, help="objects (default 20,000)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default 1)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draws all of it")
    asked = parser.parse_args(arguments)
    rows = fragmentation.study(asked.count, seed=asked.seed)
    print(as_text(rows))
    differ = [name for name in BACKENDS if not agrees(rows, name, asked.count, asked.seed)]
    print(f"back ends that need another room than `two`: {', '.join(differ) or 'none'}")
    if asked.plot:
        draw(rows, asked.count, asked.plot)
    return 1 if differ else 0


def agrees(rows: NDArray[np.void], backend: str, count: int, seed: int) -> bool:
    """Whether a back end needs the same room as the one of the rows, in every combination."""
    again = fragmentation.study(count, seed=seed, policies=SHARED, backend=backend)
    return bool((again["extent"] == rows[np.isin(rows["policy"], SHARED)]["extent"]).all())


def as_text(rows: NDArray[np.void]) -> str:
    """A line for each combination of sizes and lifetimes."""
    policies = list(dict.fromkeys(rows["policy"].tolist()))
    lines = [
        f"{'sizes':12}{'lifetimes':16}" + "".join(f"{name:>8}" for name in policies) + "   bound"
    ]
    for first in range(0, len(rows), len(policies)):
        group = rows[first : first + len(policies)]
        needed = "".join(f"{one:8.3f}" for one in group["needed"])
        name = f"{group['sizes'][0]:12}{group['lifetimes'][0]:16}"
        lines.append(f"{name}{needed}{group['bound'][0]:8.3f}")
    return "\n".join(lines)


def draw(rows: NDArray[np.void], count: int, path: Path) -> None:
    """A panel for each distribution of sizes."""
    figure: Any = plots.new_axes(width=10, height=7).figure
    figure.clear()
    panels = list(figure.subplots(2, 2).flat)
    for panel, sizes in zip(panels, fragmentation.SIZES, strict=True):
        plots.extents(rows, sizes, panel)
    panels[0].legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, 0.8))
    figure.suptitle(f"Room for {count:,} objects over the most that were live")
    save(figure, path, measured_here(BUILD))
