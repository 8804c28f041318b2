# SPDX-License-Identifier: Apache-2.0
"""Measured tables within pages of the documentation: a run replaces what stands between markers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import BenchError
from runner.stats import order_rank
from runner.text import text_table, write_whole

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True)
class Table:
    """A heading, a header and rows; text or markdown."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def as_text(self) -> str:
        """For a terminal."""
        return f"{self.title}\n{text_table(self.header, self.rows)}"

    def as_markdown(self) -> str:
        """For a page: the first column flush left."""
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        lines = [" | ".join(cells) for cells in (self.header, rule, *self.rows)]
        return f"### {self.title}\n\n" + "\n".join(f"| {line} |" for line in lines)


def provenance_line(about: Mapping[str, Any], count: int, *more: str) -> str:
    """Where, when and how often figures were measured.

    Args:
        about: as report.provenance has it.
        count: repetitions.
        more: what else was used, behind the compiler.
    """
    _, coverage = order_rank(count)
    machine = about["machine"]
    used = ", ".join([about["compiler"], *more])
    moments = " in calm moments (--calm)" if "calm_runs" in about else ""
    return (
        f"{str(about['date'])[:10]}, commit {about['commit']}, {machine['cpu']}, {machine['cpus']} "
        f"processors, {used}, load {machine['load']:.1f}; {count} interleaved "
        f"repetitions{moments}, medians, intervals that hold the median with {coverage:.0%}."
    )


def _with_figures(text: str, figures: str, path: Path) -> str:
    """The page's text with other figures between the markers.

    Raises:
        BenchError: it does not have each marker once, in order.
    """
    match = re.fullmatch(rf"(.*{BEGIN}\n).*(\n{END}\n.*)", text, re.DOTALL)
    if match is None or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise BenchError(f"{path}: needs the lines '{BEGIN}' and '{END}' once each, in this order")
    return match[1] + figures + match[2]


def check_page(path: Path) -> None:
    """Raises BenchError when figures could not be written into the page."""
    try:
        _with_figures(path.read_text(encoding="utf-8"), "", path)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}; --write needs a page with markers") from error


def write_figures(path: Path, parts: Sequence[str]) -> None:
    """Puts paragraphs and tables between the page's markers.

    Raises:
        BenchError: the page is not there, has no markers, or cannot be written.
    """
    check_page(path)
    text = path.read_text(encoding="utf-8")
    write_whole(path, _with_figures(text, "\n" + "\n\n".join(parts) + "\n", path))
