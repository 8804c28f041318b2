# SPDX-License-Identifier: Apache-2.0
"""How far predicted resident bytes are from measured ones, and where resident bytes are.

Each program is recorded, simulated, and run under the preloaded malloc, by itself and recorded at
the same time; then under the other allocators of this machine. The page that it writes says what
each figure is.

What is judged of the heap's own pages is of runs, and of simulations, in which no page goes back by
the clock (docs/decisions/0075-still-pages.md): whether a tick comes before a program ends depends
on how loaded the machine is. The same with the clock, which is the default, has a table of its own.

    ./dev study resident [--only NAME] [--quick] [--repeat 5] [--keep DIR] [-o FILE.md]

With --keep a run that was stopped is taken up where it was.
"""

from __future__ import annotations

import argparse
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from real.launch import build_launcher
from runner.provenance import provenance
from spanwise.results.files import write_whole

from studies.resident.figures import Figures
from studies.resident.look import look
from studies.resident.page import page
from studies.resident.programs import PROGRAMS

QUICK = ("perl-hash", "sort")
_ROOT = Path(__file__).resolve().parents[3]


def _kept_folder(parent: Path, repeat: int) -> Path:
    """Where cases are kept that were seen by this commit, with so many runs of each."""
    commit = provenance(_ROOT, Path("build/bench"))["commit"]
    folder = parent / f"{commit}-{repeat}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kept(folder: Path | None, name: str, see: Callable[[], Figures]) -> Figures:
    """The figures of a case from an earlier run, or else made now and kept in the folder."""
    if folder is None:
        return see()
    place = folder / f"{name}.pickle"
    if place.exists():
        return cast("Figures", pickle.loads(place.read_bytes()))
    figures = see()
    write_whole(place, pickle.dumps(figures))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study."""
    parser = argparse.ArgumentParser(
        prog="./dev study resident",
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="example: ./dev study resident --only sort -o resident.md",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="only this program")
    parser.add_argument("--quick", action="store_true", help="two programs, small inputs")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each kind (3)")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep what is seen of each case there, and take what is there of this commit and"
        " --repeat instead of looking again",
    )
    parser.add_argument("-o", "--output", metavar="FILE.md", help="the page")
    options = parser.parse_args(arguments)
    names = options.only or (QUICK if options.quick else [one.name for one in PROGRAMS])
    chosen = [one for one in PROGRAMS if one.name in names]
    missing = [one.name for one in chosen if shutil.which(one.argv[0]) is None]
    if not chosen or len(chosen) == len(missing):
        print(f"no program to run: {', '.join(names)}", file=sys.stderr)
        return 2
    found = []
    keep = None if options.keep is None else _kept_folder(options.keep, options.repeat)
    with tempfile.TemporaryDirectory() as folder:
        launcher = build_launcher(Path(folder))
        for program in (one for one in chosen if one.name not in missing):
            for size in program.inputs[: 1 if options.quick else 2]:
                print(f"{program.name}, {size:,}", file=sys.stderr)
                see = partial(look, program, size, options.repeat, Path(folder), launcher)
                found.append(kept(keep, f"{program.name}-{size}", see))
    text = page(found, missing, options.repeat)
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
    print(text, end="")
    return 0
