#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the share of memory that a recording covers with a count from outside of the process.

The count: strace -k says which mappings malloc made (a function of malloc is on the stack, or they
are the heap of brk), and pagemap which of their pages are resident when most is. So pages that
malloc maps and no object is in count here and not in the recorder. Prints percent of the private
memory; the recorder's moment is within 6 % of the peak.

Example: sudo python bench/programs/recorded_share.py --only 'perl,lua,node'
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import spanwise as sw

sys.path.append(str(Path(__file__).resolve().parents[1]))
from programs.run import lacking, load, prepared

PAGE = os.sysconf("SC_PAGE_SIZE")
PRESENT = np.uint64(1 << 63)
CALL = re.compile(r"^(\d+ +|)(\d+\.\d+) (mmap|mremap)\((.*)\) += 0x([0-9a-f]+)$")
BEGUN = re.compile(r"^(\d+ +)\S+ (?:mmap|mremap)\((.*) <unfinished \.\.\.>$")
ENDED = re.compile(r"^(\d+ +\S+) <\.\.\. (mmap|mremap) resumed>(.*)$")
ALLOCATES = re.compile(r"(?:\((?:malloc|calloc|realloc|(?:posix_)?memalign|aligned_alloc|valloc)\+)"
                       r"|jemalloc|tcmalloc|mimalloc")  # fmt: skip
MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (....) \S+ \S+ (\d+) *(.*)$")

Snapshot = list[tuple[int, str, Any]]
"""Private mappings: start, name, and which of their pages are resident."""


def traced(case: Mapping[str, Any], log: Path) -> tuple[float, Snapshot]:
    """Run a program under strace; return the moment of its largest RSS that was seen, and it."""
    words = ["strace", "-f", "-k", "-ttt", "-e", "trace=mmap,mremap", "-o", str(log)]
    environment = {**os.environ, **case["environment"], "PYTHONMALLOC": "malloc"}
    with subprocess.Popen(
        [*words, *case["argv"]], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        most, found = 0, (0.0, Snapshot())
        while process.poll() is None:
            for pid in children_of(process.pid):
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
                    if pages > most * 1.02:
                        found, most = (time.time(), snapshot(pid)), pages
                except (OSError, IndexError):
                    continue  # it ended meanwhile
            time.sleep(0.002)
    return found


def children_of(pid: int) -> list[int]:
    """Return the children of a process and theirs."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [one for child in map(int, text.split()) for one in (child, *children_of(child))]


def snapshot(pid: int) -> Snapshot:
    """Read which pages of a process's private writable mappings are resident."""
    found: Snapshot = []
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
            match = MAPPING.match(line)
            if match is None or match[3][3] != "p" or "[v" in match[5]:
                continue
            start, end = int(match[1], 16), int(match[2], 16)
            pagemap.seek(start // PAGE * 8)
            rows = np.frombuffer(pagemap.read((end - start) // PAGE * 8), np.uint64)
            # Bit 61: the page is of a file, or shared; a written private page is not.
            resident = (rows & PRESENT != 0) & (rows & np.uint64(1 << 61) == 0)
            found.append((start, match[5], resident))
    return found


def whole_lines(log: Path) -> Iterator[str]:
    """Yield the lines of strace, with calls joined that another thread's interrupted."""
    begun: dict[str, str] = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if match := BEGUN.match(line):
            begun[match[1].strip()] = match[2]
        elif match := ENDED.match(line):
            yield f"{match[1]} {match[2]}({begun.pop(match[1].split()[0], '')}{match[3]}"
        else:
            yield line


def calls_until(log: Path, moment: float) -> Iterator[tuple[str, str, int, bool]]:
    """Yield name, arguments, result of each call, and whether malloc made it."""
    entry: tuple[str, str, int] | None = None
    by_malloc = False
    for line in whole_lines(log):
        if line.startswith(" >"):
            by_malloc = by_malloc or ALLOCATES.search(line) is not None
            continue
        if entry is not None:
            yield (*entry, by_malloc)
        match = CALL.match(line)
        if match is not None and float(match[2]) > moment:
            return
        entry = (match[3], match[4], int(match[5], 16)) if match else None
        by_malloc = False
    if entry is not None:
        yield (*entry, by_malloc)


def counted_share(log: Path, moment: float, mappings: Snapshot) -> float:
    """Return malloc's share of the private resident pages."""
    kinds: dict[int, bool] = {}  # by page: whether malloc mapped it; the latest call counts

    def mark(start: int, length: int, by_malloc: bool) -> None:
        pages = range(start // PAGE, -(-(start + length) // PAGE))
        kinds.update(dict.fromkeys(pages, by_malloc))

    for name, text, result, by_malloc in calls_until(log, moment):
        words = [word.strip() for word in text.split(",")]
        if name == "mmap" and (int(words[1]) < 1 << 34):
            mark(result, int(words[1]), by_malloc and "MAP_ANONYMOUS" in text)
        elif name == "mremap":
            mark(result, int(words[2]), by_malloc)
    malloc = total = 0
    for start, path, resident in mappings:
        total += int(resident.sum())
        if path == "[heap]":
            malloc += int(resident.sum())
        elif not path:
            first = start // PAGE
            malloc += sum(kinds.get(first + int(i), False) for i in np.flatnonzero(resident))
    return malloc / max(total, 1)


def compare(case: Mapping[str, Any], folder: Path) -> tuple[float, float] | None:
    """Return the counted share and the recorder's; None: the recorder read no memory."""
    log = folder / "strace.log"
    share = counted_share(log, *traced(case, log))
    made = Path(tempfile.mkdtemp(dir=folder))
    words = [sys.executable, "-m", "spanwise", "record", "--children", "--stacks", "1"]
    words += ["-o", str(made / "a.swt"), "--"]
    environment = {**os.environ, **case["environment"]}
    subprocess.run(
        [*words, *case["argv"]], env=environment, stdin=subprocess.DEVNULL, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    each = [sw.Recording.open(path).memory for path in made.iterdir()]
    largest = max(filter(None, each), key=lambda one: one.peak_rss_bytes, default=None)
    return None if largest is None else (share, largest.recorded_share)


def cases(options: argparse.Namespace, folder: Path) -> Iterator[Mapping[str, Any]]:
    """The given command, or the chosen programs that are installed."""
    if options.command:
        yield {"program": options.command[0], "argv": options.command, "environment": {}}
        return
    for program in load():
        if any(fnmatchcase(program["name"], one) for one in options.only.split(",")):
            if lacking(program):
                print(f"{program['name']}: not installed")
            else:
                yield prepared(program, folder, options.quick)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a difference exceeds five points."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="*", metavar="NAME,...", help="programs by name [all]")
    parser.add_argument("--quick", action="store_true", help="small inputs")
    parser.add_argument("command", nargs="*", metavar="-- PROGRAM ARGS", help="another program")
    options = parser.parse_args(arguments)
    if shutil.which("strace") is None or os.geteuid() != 0:
        parser.error("needs strace, and root, who may read pagemap")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(options, Path(folder)):
            found = compare(case, Path(folder))
            if found is None:
                print(f"{case['program']}: no memory recorded")
                continue
            counted, recorded = (100 * one for one in found)
            worst = max(worst, abs(counted - recorded))
            print(f"{case['program']:16} counted {counted:5.1f}  recorded {recorded:5.1f}")
    print(f"largest difference: {worst:.1f} points")
    return int(worst > 5)


if __name__ == "__main__":
    sys.exit(main())
