# SPDX-License-Identifier: Apache-2.0
"""How fast a recording is accounted: events a second of `Recording.ledger`, and resident memory.

Makes a recording of steady replacement (a fixed number of live objects, one dies, one is born) on
disk and accounts it under a table. Resident memory must follow the live objects, not the length.

Example:
    python3 bench/ledger_speed.py --events 100000000 --live 10000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import spanwise as sw
from numpy.typing import NDArray
from spanwise._trace import write_ops

# Bytes that small programs ask for: a few common sizes and a tail.
SIZES = (16, 24, 32, 32, 40, 48, 48, 56, 64, 64, 72, 80, 96, 120, 200, 344, 512, 33, 90, 1200)


def resident_bytes() -> int:
    """Resident set of this process, bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def main() -> int:
    """Makes, accounts, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument("--live", type=int, default=10_000, help="objects alive at once")
    parser.add_argument("--table", default="go")
    parser.add_argument("recording", nargs="?", help="account this one instead of making one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.recording:
            recording = sw.Recording.open(options.recording)
        else:
            recording = make(Path(folder) / "steady.swt", options.events, options.live)
        before = resident_bytes()
        for _ in range(2):
            start, cpu = time.perf_counter(), time.process_time()
            ledger = recording.ledger(options.table, at="end")
            wall, cpu = time.perf_counter() - start, time.process_time() - cpu
            print(
                f"{ledger.events:,} events in {wall:.2f} s: {ledger.events / wall / 1e6:.1f} M/s"
                f" ({ledger.events / cpu / 1e6:.1f} by CPU time), resident {before >> 20} ->"
                f" {resident_bytes() >> 20} MiB"
            )
    return 0


def blocks(events: int, live: int) -> Iterator[NDArray[np.void]]:
    """Steady replacement, a million operations at a time."""
    rng = np.random.default_rng(1)
    first = np.zeros(live, dtype=sw.OPS_DTYPE)
    first["object"] = np.arange(live)
    first["size"] = rng.choice(SIZES, live)
    yield first
    done = live
    while done < events:
        pairs = min(500_000, (events - done + 1) // 2)
        ops = np.zeros(2 * pairs, dtype=sw.OPS_DTYPE)
        ops["object"] = np.repeat(rng.integers(0, live, pairs), 2)
        ops["kind"][0::2] = 1
        ops["size"][1::2] = rng.choice(SIZES, pairs)
        ops["time_ns"] = (done + np.arange(2 * pairs)) * 50
        yield ops
        done += 2 * pairs


def make(path: Path, events: int, live: int) -> sw.Recording:
    """That recording on disk."""
    start = time.perf_counter()
    write_ops(path, blocks(events, live))
    bytes_an_event = path.stat().st_size / events
    print(f"made in {time.perf_counter() - start:.1f} s, {bytes_an_event:.2f} bytes an event")
    return sw.Recording.open(path)


if __name__ == "__main__":
    sys.exit(main())
