# SPDX-License-Identifier: Apache-2.0
"""The command line of ./dev study anatomy."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runner import children
from runner.command import check_options, run_command
from runner.errors import BenchError
from runner.provenance import provenance
from runner.stats import median, order_rank
from runner.text import write_whole

from studies.anatomy import parts, profile, report
from studies.anatomy.report import Anatomy

BENCH = Path(__file__).resolve().parents[2]
OPERATIONS = 1 << 16  # whole words and spans of every class
TIMED_OPERATIONS, TIMED_ROUNDS = 1 << 20, 5
REPETITIONS = 10
OTHER_MOST = 0.1
INLINE_MOST = 1024  # bytes; as in fast.h
LEAST, MOST = 8, 32768
LIVE_MOST = 1 << 16
EXAMPLE = """examples:
  ./dev study anatomy
  ./dev study anatomy --size 64 --plot anatomy.png
  ./dev study anatomy --live 4096 --repetitions 0 --folded anatomy.txt"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev study anatomy",
        description="One allocation taken apart: the instructions of stackIt (an int by value) "
        "beside those of stackIt2 (a pointer to an int that escapes), by part, from callgrind and "
        "debug information.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--build", type=Path, default=BENCH.parent / "build/bench", help="where the program is")
    size = made.add_mutually_exclusive_group()
    size.add_argument("--size", type=int, metavar="BYTES", help="of the object; default 8, an int")
    size.add_argument(
        "--class", type=int, dest="cls", metavar="N", help="the size of c16's class N"
    )
    add("--live", type=int, default=1, metavar="N", help="objects held, then freed (default 1)")
    add("--repetitions", type=int, default=REPETITIONS, metavar="N", help="of timing; 0: no ns")
    add("--json", action="store_true", help="machine-readable output")
    add("--plot", type=Path, metavar="FILE.png", help="also draws the flame graphs")
    add("--folded", type=Path, metavar="FILE", help="also writes stacks for flame graph tools")
    return made


def _lines(program: Path, option: str) -> list[str]:
    try:
        done = subprocess.run([program, option], capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(
            f"{program}: {error.strerror}; build with -DSPANWISE_BENCH=ON, or run ./dev bench"
        ) from error
    if done.returncode != 0:
        raise BenchError(f"{program} {option} ended with {done.returncode}")
    return done.stdout.splitlines()


def object_size(size: int | None, cls: int | None, classes: Sequence[int]) -> int:
    """The bytes asked for.

    Args:
        size: of --size.
        cls: of --class.
        classes: bytes of class 1 and on.

    Raises:
        BenchError: a size or class out of range.
    """
    if cls is not None:
        if not 1 <= cls <= len(classes):
            raise BenchError(f"--class is {cls}; c16 has classes 1 .. {len(classes)}")
        size = classes[cls - 1]
    if size is None:
        size = LEAST
    if not LEAST <= size <= MOST:
        raise BenchError(f"--size is {size}; use {LEAST} (an int) .. {MOST}, the largest class")
    return size


def _time(program: Path, case: str, size: int, live: int) -> float:
    """The median round of one process, ns an operation."""
    count = TIMED_OPERATIONS // live * live
    words = [str(program), case, str(size), str(live), str(count), str(TIMED_ROUNDS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"{program.name} {case} ended with {done.returncode}: {last}")
    return median([float(line) for line in done.stdout.split()])


def measure(program: Path, size: int, live: int, repetitions: int) -> tuple[list[Anatomy], int]:
    """Every case that has the size, and the operations that were counted.

    Raises:
        BenchError: a tool or the program is missing, or does not run.
    """
    slots = [int(line) for line in _lines(program, "--classes")]
    slot = min(bytes_ for bytes_ in slots if bytes_ >= size)
    objects = {name: int(n) for name, n in (line.split() for line in _lines(program, "--list"))}
    cases = [name for name in objects if name != "inline" or size <= INLINE_MOST]
    operations = -(-OPERATIONS // live) * live

    def take_apart(case: str) -> dict[profile.Stack, float]:
        words = [case, str(size), str(live), str(operations)]
        counts = profile.stacks(profile.collect(program, words), program)
        return {stack: count / operations for stack, count in counts.items()}

    stacks = children.each(take_apart, cases, os.cpu_count() or 1)
    # One process at a time, so that none of ours disturbs the timing of another.
    ns: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(repetitions):
        for case in cases:
            ns[case].append(_time(program, case, size, live))
    found = [
        Anatomy(case, objects[case], objects[case] * slot, each, ns[case])
        for case, each in zip(cases, stacks, strict=True)
    ]
    return found, operations


def _say(found: Sequence[Anatomy], about: str, repetitions: int) -> None:
    print(report.table(found))
    print(f"\n{parts.COLLECTOR}: 0, {parts.NO_COLLECTOR}")
    print("pointer bits: objects with pointers have classes of their own; there is no bitmap")
    print("stackIt2 pointer: specialised, scan class; stackIt2 tracked: generic, sizes remembered")
    if repetitions > 0:
        _, coverage = order_rank(repetitions)
        print(f"ns: medians of {repetitions} processes; intervals hold them with {coverage:.0%}")
    print(about)


def complaints(found: Sequence[Anatomy]) -> list[str]:
    """One line for each case whose instructions no part names."""
    lines = []
    for each in found:
        if each.other_share >= OTHER_MOST:
            worst = ", ".join(f"{name} {count:.1f}" for name, count in each.unknown().items())
            lines.append(
                f"{each.title}: {each.other_share:.0%} of the instructions belong to no part; name "
                f"these functions in bench/studies/anatomy/parts.py: {worst}"
            )
    return lines


def run(options: argparse.Namespace) -> int:
    """Counts, prints, draws; returns the exit status."""
    program = options.build.absolute() / "bench_anatomy"
    key = _lines(program, "--key")[0]
    slots = [int(line) for line in _lines(program, "--classes")]
    size = object_size(options.size, options.cls, slots)
    for problem in parts.missing(BENCH.parent):
        print(f"anatomy: {problem}; mend bench/studies/anatomy/parts.py", file=sys.stderr)
    found, operations = measure(program, size, options.live, options.repetitions)
    about = f"objects of {size} B, {options.live} live; {key}; {operations} operations"
    if options.json:
        whole = {
            "size": size,
            "live": options.live,
            "operations": operations,
            "key": key,
            "collector": parts.NO_COLLECTOR,
            "cases": [each.as_json() for each in found],
        }
        print(json.dumps(whole, indent=1))
    else:
        _say(found, about, options.repetitions)
    if options.folded is not None:
        write_whole(options.folded, report.folded(found, operations))
    if options.plot is not None:
        made = provenance(BENCH.parent, options.build)
        where = f"{str(made['date'])[:10]}, commit {made['commit']}, {made['machine']['cpu']}"
        heading = f"objects of {size} B, {options.live} live; {key}; {where}"
        report.plot(found, heading, options.plot)
    problems = complaints(found)
    for problem in problems:
        print(f"anatomy: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 when a tenth of a case belongs to no part, 2 for bad input or a missing tool."""
    options = parser().parse_args(arguments)

    def work() -> int:
        if not 1 <= options.live <= LIVE_MOST:
            raise BenchError(f"--live is {options.live}; use 1 .. {LIVE_MOST}")
        if not 0 <= options.repetitions <= 1000:
            raise BenchError(f"--repetitions is {options.repetitions}; use 0 .. 1000")
        check_options(None, options.plot)
        return run(options)

    return run_command("anatomy", work)
