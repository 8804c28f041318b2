# SPDX-License-Identifier: Apache-2.0
"""What fitted tables gain on inputs that they were not fitted to.

Records real programs twice with different inputs, fits tables of 16, 24, 32 and 67 classes to the
first recording, and prints the waste of both under them and under go, c16, jemalloc, tcmalloc and
mimalloc: by arithmetic over the requests of at most 32 KiB, and simulated at the peak.

Example:
    ./dev study held-out --write docs/measurements/2026-11-21-held-out.md
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import spanwise as sw
from spanwise.optimizer.frontier import peak_ledger
from spanwise.optimizer.profile import profile_of

from studies.held_out.programs import PROGRAMS, ROOT, Program

BASELINES = ("go", "c16", "jemalloc", "tcmalloc", "mimalloc")
COUNTS = (16, 24, 32, 67)
LARGEST = 32768
HELD_COUNTS = (24, 32, 67)
QUICK_COUNTS = (24,)
COMMAND = "./dev study held-out --write docs/measurements/2026-11-21-held-out.md"


@dataclass(frozen=True)
class Pair:
    """A program's two recordings: one to fit tables to, one to judge them on."""

    program: Program
    fitted: sw.Recording
    judged: sw.Recording


def record_all(folder: Path, only: Sequence[str]) -> list[Pair]:
    """Records every program that is there; says which is not."""
    pairs = []
    for program in PROGRAMS:
        if only and program.name not in only:
            continue
        if not program.available():
            print(f"{program.name}: {program.needs} is not installed", file=sys.stderr)
            continue
        place = folder / program.name.replace(" ", "-").replace(",", "")
        place.mkdir(parents=True, exist_ok=True)
        first, second = (program.run(number, place) for number in (0, 1))
        pairs.append(Pair(program, first, second))
    return pairs


# --- tables ---------------------------------------------------------------------------------------


def arithmetic(
    pairs: Sequence[Pair], objective: str, align: int, counts: Sequence[int]
) -> list[str]:
    """Waste over requested, %, on the held-out recording; in brackets on the fitted one."""
    head = ["program", *BASELINES, *(f"best {count}" for count in counts), "24 saves of c16's"]
    lines = _head(head)
    for pair in pairs:
        seen = profile_of(pair.fitted, objective).up_to(LARGEST)
        unseen = profile_of(pair.judged, objective).up_to(LARGEST)
        cells = [f"{100 * unseen.waste(sw.SizeClassTable.named(n)).share:.1f}" for n in BASELINES]
        gains = ""
        for count in counts:
            best = sw.optimize(
                pair.fitted, count, objective, align=align, partial=0, waste_percent=100
            ).proposal
            inside, outside = seen.waste(best).share, unseen.waste(best).share
            cells.append(f"{100 * outside:.1f} ({100 * inside:.1f})")
            if count == 24:
                plain = sw.SizeClassTable.c16()
                before = unseen.waste(plain).total, seen.waste(plain).total
                saved = [
                    1 - p.waste(best).total / b for p, b in zip((unseen, seen), before, strict=True)
                ]
                gains = f"{100 * saved[0]:.0f} ({100 * saved[1]:.0f})"
        lines.append(_line([pair.program.name, *cells, gains]))
    return lines


def simulated(pairs: Sequence[Pair], counts: Sequence[int]) -> list[str]:
    """Held beyond requested over requested, %, at the peak of what was held out."""
    head = ["program", *BASELINES, *(f"held {count}" for count in counts)]
    lines = _head([*head, "32 with a prior of 1 %"])
    for pair in pairs:
        tables = [sw.SizeClassTable.named(name) for name in BASELINES]
        tables += [
            sw.optimize(pair.fitted, count, "held", waste_percent=100).proposal for count in counts
        ]
        tables.append(sw.optimize(pair.fitted, 32, "held", prior=0.01, waste_percent=100).proposal)
        ledgers = [peak_ledger([pair.judged], table) for table in tables]
        cells = [f"{100 * one.waste_bytes / one.requested_bytes:.1f}" for one in ledgers]
        lines.append(_line([pair.program.name, *cells]))
    return lines


def recordings(pairs: Sequence[Pair]) -> list[str]:
    """What was recorded."""
    lines = _head(["program", "fitted to", "held out", "events", "peak, KiB"])
    for pair in pairs:
        both = [one.summary for one in (pair.fitted, pair.judged)]
        events = " / ".join(f"{one.ops:,}" for one in both)
        peaks = " / ".join(f"{one.peak_requested_bytes >> 10:,}" for one in both)
        lines.append(_line([pair.program.name, *pair.program.inputs, events, peaks]))
    return lines


def _head(cells: Sequence[str]) -> list[str]:
    return [_line(cells), "|---|" + "---:|" * (len(cells) - 1)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# --- the page -------------------------------------------------------------------------------------


def _commit() -> str:
    if shutil.which("git") is None:
        return "unknown"
    command = ["git", "rev-parse", "--short", "HEAD"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def page(pairs: Sequence[Pair], *, quick: bool) -> str:
    """The study as a page of documentation."""
    parts = [
        "<!-- Made by ./dev study held-out; do not edit. -->",
        "# Held-out gain of fitted tables",
        "",
        f"Commit `{_commit()}`, command `{COMMAND}`.",
        "",
        f"{len(pairs)} programs, each recorded twice with different inputs: tables are fitted to",
        "the first recording and judged on the second. Percent of requested bytes; in brackets the",
        "same for the recording that the table was fitted to. Ledgers are exact; other versions of",
        "the programs, and for node and redis other runs, allocate differently.",
        "",
        *recordings(pairs),
    ]
    for objective, align, what in (
        ("peak", 16, "At the peak of live bytes, aligned to 16"),
        ("allocs", 16, "Over all allocations, aligned to 16"),
        ("peak", 8, "At the peak of live bytes, aligned to 8"),
    ):
        parts += ["", f"## {what}", ""]
        parts += [
            "Round-up and tail of requests of at most 32 KiB, every span full (`partial=0`).",
            "",
        ]
        parts += arithmetic(pairs, objective, align, QUICK_COUNTS if quick else COUNTS)
    parts += [
        "",
        "## Held at the peak, simulated",
        "",
        "Everything that a heap holds beyond what is requested, with partly empty spans, caches,",
        "metadata and free pages, at the peak of the recording that was held out. The fitted",
        "tables are of objective `held`, aligned to 16; the last column is fitted to the recording",
        "mixed with 1 % of requests of every size. Idle pages go back by the recording's clock, so",
        "this table moves by some percent with the speed of the machine that recorded.",
        "",
        *simulated(pairs, QUICK_COUNTS if quick else HELD_COUNTS),
    ]
    return "\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Records, fits, judges, prints."""
    parser = argparse.ArgumentParser(
        prog="./dev study held-out",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--write", metavar="FILE.md", help="also write the page")
    parser.add_argument("--keep", metavar="DIR", help="keep inputs and recordings there")
    parser.add_argument("--only", action="append", default=[], metavar="PROGRAM")
    parser.add_argument("--quick", action="store_true", help="tables of 24 classes alone")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="spanwise-study-") as scratch:
        pairs = record_all(Path(options.keep or scratch).absolute(), options.only)
        if not pairs:
            print("held-out: no program to record; see --help", file=sys.stderr)
            return 2
        text = page(pairs, quick=options.quick)
    print(text, end="")
    if options.write:
        Path(options.write).write_text(text, encoding="utf-8")
    return 0
