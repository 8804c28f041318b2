# SPDX-License-Identifier: Apache-2.0
"""What the studies of the collector share: runs of bench_collectors, options, pages."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import spanwise as sw
from runner.provenance import provenance

from studies.command_line import picture_from, tell
from studies.pages import Table

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Outcome:
    """What a process told.

    Attributes:
        figures: cpu_ns, wall_ns, peak_kib.
        trace: its cycles.
    """

    figures: dict[str, float]
    trace: sw.GcTrace


def run(program: Path, row: str, size: int, **environment: str) -> Outcome:
    """One process.

    Raises:
        SystemExit: it failed.
    """
    env = {**os.environ, "SPANWISE_DEBUG": "gctrace=1", **environment}
    words = [str(program), row, str(size)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr[-300:]}")
    return Outcome(json.loads(done.stdout), sw.parse_gctrace(done.stderr.splitlines(), row))


def parser_of(name: str, doc: str | None, example: str) -> argparse.ArgumentParser:
    """A parser with --quick, --rounds, --build, -o and --plot."""
    parser = argparse.ArgumentParser(
        prog=f"./dev study {name}",
        description=(doc or "").split("\n", 1)[0],
        epilog=f"example: ./dev study {name} {example}",
    )
    parser.add_argument("--quick", action="store_true", help="small heaps, one round, as a test")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each (5)")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build/bench", help="where bench_collectors is"
    )
    parser.add_argument("-o", "--output", metavar="FILE.md", help="the page")
    parser.add_argument("--plot", metavar="FILE.png", help="the picture")
    return parser


def write_page(
    title: str,
    text: str,
    tables: Sequence[Table],
    options: argparse.Namespace,
    words: Sequence[str],
) -> None:
    """Tells a page: what was measured, where, by which command, and the tables.

    Args:
        title: of page and picture.
        text: what the figures are.
        tables: of the figures.
        options: of the command.
        words: of the command, the study's name first.
    """
    about = provenance(ROOT, options.build)
    machine = about["machine"]
    command = shlex.join(["./dev", "study", *words])
    picture = picture_from(options)
    rounds = "one round" if options.rounds == 1 else f"{options.rounds} rounds"
    parts = [
        f"# {title}",
        text,
        f"Measured by `{command}` on {str(about['date'])[:10]}, commit {about['commit']},"
        f" {machine['cpu']}, {machine['cpus']} processors, load {machine['load']:.1f} at the end;"
        f" {rounds}, interleaved.",
        *([f"![{title}]({picture})"] if picture else []),
        *(table.as_markdown() for table in tables),
    ]
    tell("\n\n".join(parts) + "\n", options)
