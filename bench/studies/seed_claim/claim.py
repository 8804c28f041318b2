# SPDX-License-Identifier: Apache-2.0
"""The seed claim, class by class: what specialised paths save, ours beside Go's own.

Three kinds of rows: `seed/...`, Go's four cases; `kept/BYTES`, objects of one class, zeroed and
kept, which Go runs too; `class_TABLE/BYTES`, a pair of ours. Each has a generic contender, and
others that are divided by it, repetition by repetition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.runs import Run
from runner.stats import Interval, interval, median, ratio
from runner.text import number, ratio_cell

from studies.pages import Table, provenance_line, write_figures

CUTOFF = 512  # bytes; above it neither c16, go nor Go 1.26 has specialised paths
GO_27 = 80  # bytes; Go 1.27's cut-off
# ns of the article that this library set out from: generic, specialised.
ARTICLE = {
    "seed/Alloc16": (7.24, 5.08),
    "seed/Alloc32": (9.17, 6.03),
    "seed/Alloc64": (10.08, 7.66),
    "seed/AllocWithPtr": (9.77, 5.77),
}
Series = dict[str, list[float]]


@dataclass(frozen=True)
class Family:
    """Rows of one kind, and who is compared in them.

    Attributes:
        rows: what their names begin with.
        title: of its table and of its part of the picture.
        generic: label of the contender that is divided by.
        special: labels of the others, and what they are called.
    """

    rows: str
    title: str
    generic: str
    special: Mapping[str, str]


FAMILIES = (
    Family(
        "class_c16",
        "spanwise, table c16: allocate and free",
        "generic",
        {"inline": "inline", "special": "specialised"},
    ),
    Family(
        "class_go", "spanwise, table go: allocate and free", "generic", {"special": "specialised"}
    ),
    Family(
        "kept",
        "spanwise, table c16: allocate zeroed, keep",
        "generic",
        {"inline": "inline", "special": "specialised"},
    ),
    Family("kept", "Go's own: allocate zeroed, keep", "go", {"go-special": "specialised"}),
)


def series_of(run: Run) -> dict[str, Series]:
    """Times by row and contender's label: ns an operation, one value a repetition."""
    found: dict[str, Series] = {}
    for job in run.jobs:
        values = run.values(job.bench, job.contender, "op")
        if values:
            found.setdefault(job.bench, {})[job.contender.label] = values
    return found


def classes_of(family: Family, found: Mapping[str, Series]) -> dict[int, Series]:
    """The family's rows by class, bytes; those that its generic contender ran."""
    rows = {
        int(name.split("/")[1]): series
        for name, series in found.items()
        if name.split("/")[0] == family.rows and family.generic in series
    }
    return dict(sorted(rows.items()))


def overall(classes: Mapping[int, Series], label: str, generic: str) -> Interval | None:
    """Geometric mean over classes of special over generic, formed in each repetition.

    Args:
        classes: rows by class.
        label: of the specialised contender.
        generic: of the other.

    Returns:
        None when no class has both in every repetition.
    """
    pairs = [(s[label], s[generic]) for s in classes.values() if label in s and generic in s]
    rounds = {len(values) for pair in pairs for values in pair}
    if len(rounds) != 1:
        return None
    logs = [sum(math.log(a[i] / b[i]) for a, b in pairs) / len(pairs) for i in range(rounds.pop())]
    return interval([math.exp(value) for value in logs])


# --- tables ---------------------------------------------------------------------------------------


def _cell(found: Interval | None) -> str:
    return "-" if found is None else f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _time(series: Series, label: str) -> str:
    return number(median(series[label])) if label in series else "-"


def _ratio(series: Series, label: str, generic: str) -> str:
    return ratio_cell(series.get(label, []), series.get(generic, []))


def summary_table(found: Mapping[str, Series]) -> Table | None:
    """Specialised over generic, geometric means over classes; None without classes."""
    groups = [
        (f"8 .. {GO_27} B", 0, GO_27),
        (f"8 .. {CUTOFF} B", 0, CUTOFF),
        (f"above {CUTOFF} B", CUTOFF + 1, 1 << 30),
    ]
    rows = []
    for family in FAMILIES:
        classes = classes_of(family, found)
        for label, name in family.special.items():
            cells = [
                _cell(
                    overall(
                        {size: s for size, s in classes.items() if low <= size <= high},
                        label,
                        family.generic,
                    )
                )
                for _, low, high in groups
            ]
            if set(cells) != {"-"}:
                rows.append([f"{family.title}: {name}", *cells])
    header = ["over generic, geometric mean", *(name for name, _, _ in groups)]
    return Table("In short", header, rows) if rows else None


def seed_table(found: Mapping[str, Series]) -> Table | None:
    """Go's four cases: the article's figures, Go's and ours here; None when none ran."""
    rows = []
    for bench, (generic, special) in ARTICLE.items():
        series = found.get(bench)
        if series is None:
            continue
        rows.append(
            [
                bench.removeprefix("seed/"),
                f"{generic} -> {special}: {special / generic:.2f}",
                f"{_time(series, 'go')} -> {_time(series, 'go-special')}",
                _ratio(series, "go-special", "go"),
                " -> ".join(_time(series, name) for name in ("generic", "exported", "inline")),
                _ratio(series, "exported", "generic"),
                _ratio(series, "inline", "generic"),
            ]
        )
    header = [
        "case, ns",
        "article",
        "Go here",
        "Go's ratio",
        "ours: generic -> specialised -> inline",
        "specialised / generic",
        "inline / generic",
    ]
    return Table("Go's four cases", header, rows) if rows else None


def class_table(family: Family, found: Mapping[str, Series], most: int = 1 << 30) -> Table | None:
    """A family's classes up to `most` bytes; None when none ran."""
    rows = []
    for size, series in classes_of(family, found).items():
        if size > most:
            continue
        rows.append(
            [
                f"{size} B",
                _time(series, family.generic),
                *(_time(series, label) for label in family.special),
                *(_ratio(series, label, family.generic) for label in family.special),
            ]
        )
    names = list(family.special.values())
    header = ["class, ns", "generic", *names, *(f"{name} / generic" for name in names)]
    return Table(family.title, header, rows) if rows else None


def tables(run: Run, most: int = 1 << 30) -> list[Table]:
    """All tables that the run has rows for; classes up to `most` bytes."""
    found = series_of(run)
    made = [summary_table(found), seed_table(found)]
    made += [class_table(family, found, most) for family in FAMILIES]
    return [table for table in made if table is not None]


# --- the page -------------------------------------------------------------------------------------


def provenance(run: Run, about: Mapping[str, Any]) -> str:
    """Where, when and how often the figures were measured."""
    go = next((job.contender.version for job in run.jobs if job.contender.basis == "go"), "no Go")
    return provenance_line(about, len(run.repetitions), go)


def write_page(path: Path, run: Run, about: Mapping[str, Any]) -> None:
    """Puts the tables of classes to 1 KiB between the page's markers.

    Raises:
        BenchError: the page is not there, has no markers, or cannot be written.
    """
    parts = [provenance(run, about), *(table.as_markdown() for table in tables(run, 1024))]
    write_figures(path, parts)


def ratios(classes: Mapping[int, Series], label: str, generic: str) -> dict[int, Interval]:
    """Label over generic with its interval, by class."""
    return {
        size: ratio(series[label], series[generic])
        for size, series in classes.items()
        if len(series.get(label, ())) == len(series[generic])
    }


def times(classes: Mapping[int, Series], label: str) -> dict[int, Interval]:
    """Times with their intervals by class, ns an operation."""
    return {size: interval(series[label]) for size, series in classes.items() if label in series}


def spread(points: Mapping[int, Interval]) -> tuple[Sequence[float], list[list[float]]]:
    """Medians and the lengths below and above them, as error bars want them."""
    return (
        [found.median for found in points.values()],
        [
            [found.median - found.low for found in points.values()],
            [found.high - found.median for found in points.values()],
        ],
    )
