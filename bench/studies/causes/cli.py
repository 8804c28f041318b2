# SPDX-License-Identifier: Apache-2.0
"""Where the resident bytes of programs go: by cause under our malloc, beside other allocators.

./dev study causes [--only NAME] [--quick] [--repeat 3] [-o FILE.md] [--plot FILE.png]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import spanwise as sw
from real.launch import build_launcher
from runner.errors import BenchError
from runner.provenance import measured_here

from studies import command_line
from studies.causes import page, plot
from studies.causes.look import Seen, look
from studies.causes.programs import Case, cases


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line.parser_of("causes", __doc__, "-o resident.md --plot resident.png")
    parser.add_argument("--full", action="store_true", help="sizes of a full ./dev real, not quick")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each (3)")
    return parser.parse_args(arguments)


def _look_at_all(
    chosen: Sequence[Case], folder: Path, repeat: int, skipped: dict[str, str]
) -> list[Seen]:
    """Looks at every program; the reasons of those that cannot be measured go to `skipped`."""
    launcher = build_launcher(folder)
    found = []
    for case in chosen:
        try:
            found.append(look(case, folder / "runs" / case.name, launcher, repeat))
        except (sw.SpanwiseError, OSError) as error:
            skipped[case.name] = str(error)
            print(f"{case.name}: {error}", file=sys.stderr)
            continue
        print(page.summary(found[-1]), file=sys.stderr)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study."""
    options = _options(arguments)
    only = options.only or (["mawk"] if options.quick else [])
    with tempfile.TemporaryDirectory() as name:
        try:
            chosen, skipped = cases(Path(name), only, quick=not options.full)
            repeat = 1 if options.quick else options.repeat
            found = _look_at_all(chosen, Path(name), repeat, skipped)
        except BenchError as error:
            print(f"causes: {error}", file=sys.stderr)
            return 1
    if not found:
        print(f"causes: no program to show: {', '.join(only) or 'none can run'}", file=sys.stderr)
        return 2
    if options.plot:
        plot.draw(found, Path(options.plot), measured_here(Path("build/bench")))
    command = command_line.command_of("causes", options, *(["--full"] if options.full else []))
    text = page.make(found, skipped, command, command_line.picture_from(options))
    command_line.tell(text, options)
    return 0
