# SPDX-License-Identifier: Apache-2.0
"""Damaged files for every reader of files: no traceback, 512 MiB and 5 s of processor time each.

File N of a seed is always the same. Batches of files are read in forks of this process. A file
that needs more than its time is ended by the system's timer of processor time, which no other load
of the machine moves; a fork that needs more than its memory gets a MemoryError. What fails is kept.

Example:
    python -m tests.fuzz.fuzz_files --files 20000
    python -m tests.fuzz.fuzz_files --only 1234          the file of that number, with its traceback
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutations import mutated
from tests.fuzz.readers import READERS
from tests.fuzz.seeds import seeds

SECONDS = 5
MEMORY_BYTES = 512 << 20
BATCH = 200
_QUIET_SECONDS = 600
"""A fork that says nothing for so long waits for something that does not come."""

KEEP = Path("build/report/fuzz_files")
_SEEDS = seeds()


@dataclass
class Sums:
    """What became of the files.

    Attributes:
        read: how many files of each reader could be read, and how many were refused.
        failures: number of a file, and what happened.
        seconds: of processor time, of the slowest file; slowest is its number.
        bytes: most that was resident of any fork.
    """

    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0
    slowest: int = 0
    bytes: int = 0

    @property
    def files(self) -> int:
        """How many were read or refused, or failed."""
        return self.read.total() + self.refused.total() + len(self.failures)

    def __str__(self) -> str:
        lines = [f"{'reader':24}{'files':>8}{'read':>8}{'refused':>9}"]
        for one in READERS:
            fine, bad = self.read[one.name], self.refused[one.name]
            lines.append(f"{one.name:24}{fine + bad:8}{fine:8}{bad:9}")
        lines += [f"file {number}: {what}" for number, what in self.failures]
        lines.append(
            f"{self.files} files: {len(self.failures)} failures; at most {self.bytes >> 20} MiB"
            f" and {self.seconds:.2f} s of processor time (file {self.slowest})"
        )
        return "\n".join(lines)


def reader_of(number: int) -> int:
    """The place of a file's reader in READERS."""
    return number % len(READERS)


def file_of(seed: int, number: int) -> tuple[bytes, random.Random]:
    """A damaged file, and what its reader chooses by."""
    one, rng = READERS[reader_of(number)], random.Random(f"{seed} {number}")
    return mutated(rng, _SEEDS[one.name], one.packs), rng


def read(seed: int, number: int, folder: Path) -> bool:
    """Makes and reads a file. Raises whatever its reader must not."""
    one = READERS[reader_of(number)]
    content, rng = file_of(seed, number)
    path = folder / f"file{one.suffix}"
    path.write_bytes(content)
    return one.reads(path, rng)


# --- forks ----------------------------------------------------------------------------------------


def _bound() -> None:
    """Bounds the memory that this process may write to; what it only reserves does not count."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (data_kib,) = re.findall(r"^VmData:\s+(\d+) kB", status, re.MULTILINE)
    limit = (int(data_kib) << 10) + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _seconds() -> float:
    """Processor time of this process and of the children that it waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def _work(seed: int, numbers: range, place: Path, out: int) -> None:
    """In a fork: reads files, and writes a line of each."""
    _bound()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for number in numbers:
        folder = place / str(number)
        folder.mkdir()
        before = _seconds()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            said = "read" if read(seed, number, folder) else "refused"
        except BaseException as error:  # also SystemExit
            said = f"{type(error).__name__}: {error}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        spent = _seconds() - before
        shutil.rmtree(folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        line = f"{number} {spent:.4f} {peak} {' '.join(said.split())[:300]}\n"
        os.write(out, line.encode("utf-8", "replace"))


def _forked(seed: int, numbers: range, place: Path) -> Iterator[tuple[int, float, int, str]]:
    """The lines of a fork, and at last that of the file that has ended it, if one did."""
    into, out = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(into)
            _work(seed, numbers, place, out)
            status = 0
        finally:
            os._exit(status)
    os.close(out)
    last, hung = numbers.start - 1, False
    with os.fdopen(into, encoding="utf-8") as lines:
        while True:
            hung = not select.select([lines], [], [], _QUIET_SECONDS)[0]
            line = "" if hung else lines.readline()
            if not line:
                break
            number, spent, peak, said = line.rstrip("\n").split(" ", 3)
            last = int(number)
            yield last, float(spent), int(peak), said
    if hung:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if last + 1 < numbers.stop:
        what = "waits for ever" if hung else f"ended its process with {_named(status)}"
        yield last + 1, 0.0, 0, what


def _named(status: int) -> str:
    if status == -signal.SIGPROF:
        return f"more than {SECONDS} s of processor time"
    return signal.Signals(-status).name if status < 0 else f"status {status}"


def fuzz(seed: int, numbers: range, keep: Path, progress: bool = False) -> Sums:
    """Reads damaged files.

    Args:
        seed: of all of them.
        numbers: of the files.
        keep: the folder for those that fail.
        progress: print how far it is.

    Returns:
        What became of them.
    """
    sums, at, begun = Sums(), numbers.start, time.monotonic()
    while at < numbers.stop:
        batch = range(at, min(at + BATCH, numbers.stop))
        with tempfile.TemporaryDirectory(prefix="spanwise-fuzz-") as place:
            for number, spent, peak, said in _forked(seed, batch, Path(place)):
                at = number + 1
                _add(sums, number, spent, peak, said)
        if progress:
            print(f"\r{at - numbers.start} files", end="", file=sys.stderr, flush=True)
    if progress:
        print(f"\r{time.monotonic() - begun:.0f} s", file=sys.stderr)
    for number, _ in sums.failures:
        keep.mkdir(parents=True, exist_ok=True)
        suffix = READERS[reader_of(number)].suffix
        (keep / f"{seed}-{number}{suffix}").write_bytes(file_of(seed, number)[0])
    return sums


def _add(sums: Sums, number: int, spent: float, peak: int, said: str) -> None:
    name = READERS[reader_of(number)].name
    if peak > MEMORY_BYTES:
        said = f"{peak >> 20} MiB were resident ({said})"
    if spent > SECONDS:
        said = f"{spent:.1f} s of processor time ({said})"
    if said in ("read", "refused"):
        (sums.read if said == "read" else sums.refused)[name] += 1
    else:
        sums.failures.append((number, f"{name}: {said}"))
    if spent > sums.seconds:
        sums.seconds, sums.slowest = spent, number
    sums.bytes = max(sums.bytes, peak)


def main(words: Sequence[str] | None = None) -> int:
    """The command: 1 if a file failed."""
    parser = argparse.ArgumentParser(prog="fuzz_files", description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--only", type=int, help="reads the file of this number, in this process")
    parser.add_argument("--keep", type=Path, default=KEEP, help="where files that fail go")
    options = parser.parse_args(words)
    if options.only is not None:
        return _read_one(options.seed, options.only, options.keep)
    if options.keep.is_dir():
        shutil.rmtree(options.keep)
    last = options.first + options.files
    sums = fuzz(options.seed, range(options.first, last), options.keep, progress=True)
    print(sums)
    if sums.failures:
        print(f"the files are in {options.keep}; --only NUMBER shows where one fails")
    return 1 if sums.failures else 0


def _read_one(seed: int, number: int, keep: Path) -> int:
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / f"{seed}-{number}{READERS[reader_of(number)].suffix}"
    path.write_bytes(file_of(seed, number)[0])
    print(f"{READERS[reader_of(number)].name}: {path}")
    with tempfile.TemporaryDirectory(prefix="spanwise-fuzz-") as folder:
        try:
            print("read" if read(seed, number, Path(folder)) else "refused")
        except Exception:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
