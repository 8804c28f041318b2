#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what `spanwise record --pid` does to a running server.

The server (tests/recorder/server.c) has a thread that sleeps for 0.2 ms again and again: the
longest time between two of its steps is how long the process stood still. A burst of calls is timed
before, in and after each recording.

Example: python bench/programs/attached.py --rounds 20
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BURST = 1_000_000
SECONDS = 2.0


class Server:
    """The server, compiled and running."""

    def __init__(self, folder: Path, threads: int) -> None:
        program = folder / "server"
        source = ROOT / "tests/recorder/server.c"
        words = ["cc", "-O2", "-std=gnu11", "-fno-builtin", str(source), "-o", str(program)]
        subprocess.run([*words, "-lpthread", "-ldl"], check=True)
        self.process = subprocess.Popen(
            [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> str:
        """Sends a request; returns the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def stall_ms(self) -> float:
        """Return the longest pause since the last question."""
        return int(self.ask("stall").split()[1]) / 1000

    def burst_ns(self) -> float:
        """Return the time of a step of the burst: malloc, free, and half a realloc."""
        start = time.perf_counter_ns()
        self.ask(f"burst {BURST}")
        return (time.perf_counter_ns() - start) / BURST


def measured(server: Server, output: Path, options: list[str]) -> tuple[float, ...]:
    """Return the longest pauses without and with a recording; a step before, in and after it."""
    server.stall_ms()
    time.sleep(SECONDS)
    alone, before = server.stall_ms(), server.burst_ns()
    words = [sys.executable, "-m", "spanwise", "record", "--force", "-o", str(output), *options]
    server.stall_ms()
    with subprocess.Popen(
        [*words, "--pid", str(server.process.pid)], stderr=subprocess.DEVNULL
    ) as command:
        time.sleep(SECONDS)
        attached, during = server.stall_ms(), server.burst_ns()
        command.send_signal(signal.SIGINT)
        if command.wait() != 0:
            raise SystemExit("spanwise record failed")
    return alone, attached, before, during, server.burst_ns()


def main() -> None:
    """Prints medians and largest values."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="of the server that always work")
    parser.add_argument("options", nargs="*", help="of spanwise record, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name), options.threads)
        rows = [
            measured(server, Path(name) / "a.swt", options.options) for _ in range(options.rounds)
        ]
        server.process.kill()
    columns = np.array(rows).T
    heads = ("pause, ms", "pause, attached", "step before, ns", "step in it", "step after")
    for head, values in zip(heads, columns, strict=True):
        low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
        print(f"{head:18} {middle:8.1f} [{low:.1f}, {high:.1f}], largest {values.max():.1f}")


if __name__ == "__main__":
    main()
