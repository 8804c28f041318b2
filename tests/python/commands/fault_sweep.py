# SPDX-License-Identifier: Apache-2.0
"""Runs commands while one of their calls of the C library fails, or all from one on.

Each run is a child process in an empty folder. It must end by an exit status, without a traceback
and with a line on standard error unless it succeeds; the output file must be absent or whole; and
no other file may be left.

`fault_sweep.py` runs the short form, with --full (`./dev stress command_faults`) every command and
up to 200 of each call, under faulty_calls.c as LD_PRELOAD. It prints a line per failure, then the
number of runs.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))

import spanwise as sw
from spanwise.__main__ import main as spanwise_main
from spanwise.commands import COMMANDS

from tests.python.helpers import random_ops

CALLS = ("open", "write", "rename", "mmap", "pthread_create")
"""In the order of faulty_calls.c."""
NEVER = len(CALLS)
SECONDS = 30
APPENDED = ".jsonl"
"""Its rows are written as they finish."""
CPYTHON_HANGS = "Exception ignored in thread started by"
"""A thread without memory ends before Thread.start, which waits for it, hears of it."""

TRACE = "gc 1 @0.1s 1%: 0.1+1+0.1 ms clock, 0.1+0/1/0+0.1 ms cpu, 4->5->2 MB, 5 MB goal, 2 P\n"
SHORT = ("export", "record", "gctrace")
LINES: dict[str, list[str]] = {
    "classes": ["classes"],
    "explain": ["explain", "33"],
    "ledger": ["ledger", "A"],
    "compare": ["compare", "A"],
    "check": ["check", "A", "--max-waste", "1%"],
    "diff": ["diff", "A", "B"],
    "gctrace": ["gctrace", "T"],
    "report": ["report", "A", "-o", "out.html"],
    "export": ["export", "A", "--to", "pprof", "-o", "out.pb.gz"],
    "convert": ["convert", "P", "-o", "out.swt"],
    "optimize": ["optimize", "A", "--candidates", "4", "-o", "out.json"],
    "sweep": ["sweep", "A", "--workers", "1", "-o", "out.jsonl"],
    "record": ["record", "-o", "out.swt", "--", "true"],
    "run": ["run", "-o", "out.txt", "--", "true"],
}
"""Commands by name. A, B: recordings; P: a pprof profile; T: gctrace lines."""


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit status (below 0: a signal), its output, its files, its calls."""

    status: int
    said: str
    files: dict[str, int]
    counts: list[int]


class Sweep:
    """Runs commands in children; the library that makes calls fail is loaded already."""

    def __init__(self, folder: Path) -> None:
        faulty = ctypes.CDLL(None)
        self._arm, self._count = faulty.faulty_arm, faulty.faulty_count
        self._arm.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_int)
        self._count.restype = ctypes.c_long
        self._folder = folder
        self.inputs = make_inputs(folder)

    def run(self, words: Sequence[str], call: int = NEVER, first: int = 1, later: int = 0) -> Ended:
        """Run a command in a child and an empty folder."""
        given = [self.inputs.get(word, word) for word in words]
        with tempfile.TemporaryDirectory(dir=self._folder) as control, _empty(self._folder) as work:
            said, counts = Path(control, "said"), Path(control, "counts")
            child = os.fork()
            if child == 0:
                self._run_child(given, work, said, counts, (call, first, later))
            status = _wait(child)
            files = {path.name: path.stat().st_size for path in work.iterdir()}
            numbers = counts.read_text().split() if counts.exists() else []
            text = said.read_text(errors="replace")
        return Ended(status, text, files, [int(number) for number in numbers])

    def _run_child(
        self,
        words: Sequence[str],
        work: Path,
        said: Path,
        counts: Path,
        fault: tuple[int, int, int],
    ) -> None:
        signal.alarm(SECONDS)
        os.chdir(work)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
        report = os.open(counts, os.O_WRONLY | os.O_CREAT)
        status = 70
        self._arm(*fault)
        try:
            status = spanwise_main(list(words))
            with contextlib.suppress(OSError):
                sys.stdout.flush()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 2
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            made = [self._count(call) for call in range(len(CALLS))]
            self._arm(NEVER, 1, 0)
            os.write(report, " ".join(map(str, made)).encode())
            os._exit(status)


@contextlib.contextmanager
def _empty(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        yield Path(made)


def _wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def make_inputs(folder: Path) -> dict[str, str]:
    """Write the input files."""
    paths = {name: str(folder / f"{name}.swt") for name in ("A", "B")}
    for seed, path in enumerate(paths.values()):
        sw.Recording.from_ops(random_ops(seed, 2000), path)
    paths["T"] = str(folder / "T.txt")
    Path(paths["T"]).write_text(TRACE * 3)
    paths["P"] = str(folder / "P.pb.gz")
    status = spanwise_main(["export", paths["A"], "--to", "pprof", "-o", paths["P"]])
    assert status == 0
    return paths


# --- what is required -----------------------------------------------------------------------------


def wrong(ended: Ended, sound: Ended, call: str) -> str | None:
    """Return what is wrong with a run in which calls failed; None: nothing."""
    if ended.status == -signal.SIGALRM and CPYTHON_HANGS in ended.said:
        return None
    if ended.status < 0:
        return f"signal {-ended.status}"
    if "Traceback" in ended.said or "Error:" in ended.said.partition("spanwise: ")[0]:
        return f"traceback: {ended.said.strip().splitlines()[-1]}"
    if ended.status not in (sound.status, 0, 1, 2):
        return f"status {ended.status}"
    if ended.status == 2 and not re.search("^spanwise: .", ended.said, re.M):
        return f"no line on standard error: {ended.said!r}"
    for name, size in ended.files.items():
        if name not in sound.files:
            return f"left {name}"
        if not name.endswith(APPENDED) and size < sound.files[name] * 9 // 10:
            return f"{name} has {size} bytes instead of {sound.files[name]}"
    if ended.status == sound.status == 0 and ended.files.keys() != sound.files.keys():
        return "no output, but success"
    return None


def numbers_of(count: int, full: bool) -> list[int]:
    """Return which calls of `count` fail: about 200, or the first, a middle one and the last."""
    if full:
        return list(range(1, count + 1, max(1, count // 200)))
    return sorted({1, (count + 1) // 2, count} - {0})


def sweep(folder: Path, full: bool, only: Sequence[str]) -> tuple[int, list[str]]:
    """Run every case; return their number, and a line per failure."""
    for command in COMMANDS.values():
        importlib.import_module(f"spanwise.commands.{command.module}")
    runner, runs, failures = Sweep(folder), 0, []
    for name in only or (LINES if full else SHORT):
        words = LINES[name]
        sound = runner.run(words)
        assert sound.status in (0, 1) and len(sound.counts) == len(CALLS), (name, sound)
        for call, count in enumerate(sound.counts):
            for number in numbers_of(count, full):
                for later in (0, 1) if full or number == 1 else (0,):
                    ended = runner.run(words, call, number, later)
                    runs += 1
                    what = wrong(ended, sound, CALLS[call])
                    if what is not None:
                        since = "from" if later else "only"
                        failures.append(
                            f"{name}: {CALLS[call]} {since} {number} of {count}: {what}"
                        )
                        print(failures[-1], flush=True)
    return runs, failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep under the library; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="all commands")
    parser.add_argument("--only", nargs="+", default=[], choices=LINES, help="commands")
    options = parser.parse_args(arguments)
    if not hasattr(ctypes.CDLL(None), "faulty_arm"):
        return _run_preloaded()
    assert threading.active_count() == 1
    with tempfile.TemporaryDirectory(prefix="spanwise-faults-") as folder:
        runs, failures = sweep(Path(folder), options.full, options.only)
    print(f"{runs} runs, {len(failures)} failures")
    return 1 if failures else 0


def _run_preloaded() -> int:
    """Compile the library, and run this program again under it."""
    with tempfile.TemporaryDirectory(prefix="spanwise-faults-") as folder:
        library = Path(folder, "faulty_calls.so")
        compiler = [os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-shared", "-fPIC"]
        source = Path(__file__).with_name("faulty_calls.c")
        subprocess.run([*compiler, source, "-o", library, "-ldl"], check=True)
        settings = {"LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, *sys.argv]
        return subprocess.run(command, env={**os.environ, **settings}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
