#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares outcomes of boundary cases under the C library's malloc and under ours.

The programs (`cases.c`, `operators.cpp`) print one line a case. Lines must be equal, but for the
differences that docs/design/preload.md lists; each of those is checked for what it is allowed
to be. Ours runs plain and tracked. Exit status 0: as documented; 1: not.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CASES_MIN = 10000
SHOWN_MAX = 20

# The differences, by name, as in docs/design/preload.md.
SMALL_ALIGNMENT = "alignment of up to 8 bytes"
POSIX_ERRNO = "errno of posix_memalign"
VAST = "more than the machine's memory"
DIFFERENCES = (SMALL_ALIGNMENT, POSIX_ERRNO, VAST)

# A word of an outcome that is a defect under any allocator.
BAD = re.compile(r"UNALIGNED|(?<!null)=NO")
# From this version on glibc's aligned_alloc refuses what is no power of two.
STRICT_ALIGNED_ALLOC = (2, 38)


def run(program: Path, variables: Mapping[str, str], timeout_s: float) -> list[str]:
    """The lines of one program.

    Args:
        program: prints one case a line.
        variables: of the environment: none for the C library's malloc.
        timeout_s: seconds after which the run has failed.

    Raises:
        SystemExit: the program failed or did not end; the message has its last case.
    """
    hidden = ("LD_PRELOAD", "MALLOC_", "GLIBC_TUNABLES", "SPANWISE_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    try:
        result = subprocess.run(
            [program],
            env={**clean, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{program.name}: did not end within {timeout_s:.0f} s")
    lines = result.stdout.splitlines()
    if result.returncode != 0:
        last = lines[-1] if lines else "none"
        sys.exit(f"{program.name}: exit status {result.returncode}; last case written: {last}")
    return lines


def strict_aligned_alloc() -> bool:
    """Whether this glibc's aligned_alloc checks its alignment."""
    version = os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0.0"
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2]) >= STRICT_ALIGNED_ALLOC


def odd_aligned_alloc(line: str) -> bool:
    """Whether the case asks aligned_alloc for an alignment that is no power of two."""
    match = re.match(r"(?:vast-)?aligned_alloc\((\d+),", line)
    return match is not None and int(match[1]).bit_count() != 1


def judge(theirs: str, ours: str) -> str | None:
    """Which documented difference two outcomes of one case show.

    Returns:
        "" when they are equal, the difference's name, or None when they differ otherwise.
    """
    if BAD.search(ours):
        return None
    if theirs == ours:
        return ""
    if theirs.startswith("vast-"):
        refused = "null=yes" in ours and re.search(r"ENOMEM|thrown=bad_alloc", ours)
        return VAST if refused or "null=NO" in ours else None
    if theirs == ours.replace("aligned-to-8", "aligned"):
        return SMALL_ALIGNMENT
    kept = theirs.replace("errno=ENOMEM", "errno=kept")
    if ours.startswith("posix_memalign(") and "code=ENOMEM" in ours and kept == ours:
        return POSIX_ERRNO
    return None


def compare(theirs: list[str], ours: list[str], seen: Counter[str]) -> list[str]:
    """Counts the outcomes of one program into `seen`; returns what is not documented."""
    wrong = []
    if len(theirs) != len(ours):
        wrong.append(f"{len(theirs)} cases under the C library, {len(ours)} under ours")
    skip_odd = strict_aligned_alloc()
    for line, our_line in zip(theirs, ours, strict=False):
        if skip_odd and odd_aligned_alloc(line):
            seen["skipped"] += 1
            continue
        if BAD.search(line):
            wrong.append(f"the C library itself: {line}")
        verdict = judge(line, our_line)
        if verdict is None:
            wrong.append(f"C library: {line}\n     ours: {our_line}")
        else:
            seen[verdict or "equal"] += 1
    return wrong


def main() -> int:
    """Compares every program given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preload", type=Path, required=True, help="libspanwise-malloc.so")
    parser.add_argument("--timeout", type=float, default=1000, help="seconds for one run of one")
    parser.add_argument("programs", type=Path, nargs="+", help="the programs of the cases")
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    plain = {"LD_PRELOAD": str(options.preload.resolve())}
    settings: tuple[dict[str, str], ...] = ({}, plain, {**plain, "SPANWISE_TRACKED": "1"})
    with ThreadPoolExecutor(3) as pool:  # each sleeps for some of its time
        for program in options.programs:
            theirs, *ours = pool.map(run, [program] * 3, settings, [options.timeout] * 3)
            for lines in ours:
                wrong += compare(theirs, lines, seen)
    total = sum(seen.values()) + len(wrong)
    print(f"{total} cases: {seen['equal']} equal, {len(wrong)} not as documented")
    for name in DIFFERENCES:
        print(f"{seen[name]:6} differ as documented: {name}")
    if seen["skipped"]:
        print(f"{seen['skipped']:6} not compared: aligned_alloc of this glibc checks alignments")
    for text in wrong[:SHOWN_MAX]:
        print(text, file=sys.stderr)
    if total < CASES_MIN:
        print(f"only {total} cases ran, at least {CASES_MIN} must", file=sys.stderr)
    return 1 if wrong or total < CASES_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
