# SPDX-License-Identifier: Apache-2.0
"""How fast ledgers are: events a second, all parts at 100 moments, and named call sites.

Two recordings: operations made at random (on 20,000 objects of 8 to 4,000 bytes, in blocks, so that
memory stays bounded whatever their number), and a recorded CPython that makes and reads JSON, with
8 return addresses a call. Times are of processor, in one thread, the least of the rounds; what
other work does to the caches of the machine is in them.

    ./dev study ledger-speed [--ops 100000000] [--rounds 3] [--only random|json]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import spanwise as sw
from numpy.typing import NDArray
from spanwise._lib import lib
from spanwise.recordings.recorder import run_recorded
from spanwise.recordings.simulate import Simulation, account
from spanwise.recordings.sources import write_ops
from spanwise.tables.table import as_table

OBJECTS, BLOCK, MOMENTS = 20_000, 1 << 20, 100
_JSON = """import json
rows = [{"id": i, "name": "n%d" % i, "tags": ["a", "b", str(i)], "v": i * 1.5} for i in range(3000)]
for _ in range(LOOPS):
    json.loads(json.dumps(rows))
"""
_EVENTS_A_LOOP = 178_000


def json_words(ops: int) -> list[str]:
    """The command of a CPython that makes and reads JSON with about so many operations."""
    loops = max(1, -(-ops // _EVENTS_A_LOOP))
    return [sys.executable, "-c", _JSON.replace("LOOPS", str(loops))]


def random_blocks(ops: int, seed: int = 1) -> Iterator[NDArray[np.void]]:
    """Operations in blocks: a random object is allocated if it is not live, else freed."""
    draw = np.random.default_rng(seed)
    live = np.zeros(OBJECTS, bool)
    for first in range(0, ops, BLOCK):
        count = min(BLOCK, ops - first)
        rows = np.zeros(count, sw.OPS_DTYPE)
        ids = draw.integers(0, OBJECTS, count, dtype=np.uint32)
        order = np.argsort(ids, kind="stable")
        sorted_ids = ids[order]
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count) - np.searchsorted(sorted_ids, sorted_ids)
        free = live[ids] ^ (rank % 2 == 1)
        live ^= np.bincount(ids, minlength=OBJECTS) % 2 == 1
        rows["object"] = ids
        rows["kind"] = np.where(free, lib.SW_OP_FREE, lib.SW_OP_ALLOC)
        rows["size"] = np.where(free, 0, draw.integers(8, 4001, count, dtype=np.uint64))
        rows["time_ns"] = (first + np.arange(count)) * 50
        yield rows


def processor_seconds(work: Callable[[], object]) -> float:
    """Of one call, in this thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def all_processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run_alone(recording: sw.Recording, *, resident: bool) -> None:
    """One pass of a ledger, with a map of writes or without."""
    simulation = Simulation(as_table("c16"), resident=resident)
    try:
        account(recording._source, simulation, at="end", name="")
    finally:
        simulation.close()


def least(rounds: int, works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least seconds of each, in turns."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(processor_seconds(work))
    return {name: min(times) for name, times in found.items()}


def ledgers(recording: sw.Recording, rounds: int) -> list[str]:
    """Lines of the speed of a ledger, and of time lines beside it."""

    def timeline(detail: str) -> Callable[[], object]:
        return lambda: recording.timeline(samples=MOMENTS, detail=detail, progress=False)

    told = least(
        rounds,
        {
            "held": lambda: run_alone(recording, resident=False),
            "resident": lambda: run_alone(recording, resident=True),
            "parts": timeline("parts"),
            "classes": timeline("classes"),
        },
    )
    million, one = recording.summary.ops / 1e6, told["resident"]
    return [
        f"  ledger of held bytes       {million / told['held']:6.1f} M events/s",
        f"  with the map of writes     {million / one:6.1f} M events/s",
        f"  all parts, {MOMENTS} moments     {told['parts'] / one:6.2f} x one ledger",
        f"  classes, {MOMENTS} moments       {told['classes'] / one:6.2f} x one ledger",
    ]


def sites(recording: sw.Recording) -> list[str]:
    """Lines of the time until the call sites of what lives at the peak have names."""
    start = time.perf_counter(), all_processor_seconds()
    found = recording.live_sites(progress=False)
    middle = time.perf_counter(), all_processor_seconds()
    named = found.named()
    end = time.perf_counter(), all_processor_seconds()
    named_sites = sum(any(name for name in site.names) for site in named)
    whole = sum(s.requested_bytes + s.roundup_bytes + s.kept_free_bytes for s in named)
    whole += sum(named.no_site.values())
    equal = "to the byte" if whole == named.ledger.held_bytes else "NOT"
    return [
        f"  {len(named)} call sites at the peak, {named_sites} with names:"
        f" {middle[0] - start[0]:.2f} s, and {end[0] - middle[0]:.2f} s for the names;"
        f" of processors {middle[1] - start[1]:.2f} and {end[1] - middle[1]:.2f} s",
        f"  sites and what is of none are the ledger: {equal}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(
        prog="./dev study ledger-speed",
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="example: ./dev study ledger-speed --ops 100000000 --rounds 1 --only random",
    )
    parser.add_argument("--ops", type=int, default=10_000_000, help="of each recording, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("random", "json"))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        if options.only != "json":
            write_ops(path / "random.swt", random_blocks(options.ops))
            recording = sw.Recording.open(path / "random.swt")
            print(f"{recording.summary.ops:,} random operations", flush=True)
            print("\n".join(ledgers(recording, options.rounds)), flush=True)
        if options.only != "random":
            run_recorded(json_words(options.ops), path / "json.swt", stacks=8)
            recording = sw.Recording.open(path / "json.swt")
            print(f"a CPython's JSON loop, {recording.summary.ops:,} operations", flush=True)
            print("\n".join(ledgers(recording, options.rounds)), flush=True)
            print("\n".join(sites(recording)), flush=True)
    return 0
