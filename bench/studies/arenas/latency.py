# SPDX-License-Identifier: Apache-2.0
"""Latencies of the message server at a fixed rate, by strategy, beside Go's heap and its arenas.

The rate is 70 % of what the slowest of all can serve, measured first in closed loops. Each run has
a million messages, whose latencies count from the time at which they should have arrived; eleven
runs of each, by turns. `static` uses the same four blocks for each message, so its latencies above
a fraction of a microsecond are caused by the machine. Without a Go toolchain its lines are missing.
The expected length is printed before the first run.

    ./dev study arena-latency -o docs/measurements/FILE.md               four to five minutes, quiet
    ./dev study arena-latency --only batch --only 'Go, heap' --rounds 41    the pair that is judged
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runner import children
from runner.errors import BenchError, NoPeerError
from runner.stats import Interval, interval
from runner.text import ratio_cell
from scoreboard.arena_speed import go_program
from spanwise.lessons.service import ServiceRun, serve

from studies.arenas.program import command_of, parser_of, table, tell, where_and_when

OURS = ("static", "heap", "collected", "pool", "batch", "slab", "arena_pool")
PERCENTS = (50.0, 99.0, 99.9, 99.99)
SHARE = 0.7
ASKED = {99.0: 0.5, 99.99: 1.0}
"""The most that a percentile of `batch` may be, over that of Go's heap."""
Told = dict[str, float | str]
"""Latencies in ns by percentage, `per_second`, and `checksum`."""


def ours(strategy: str, rate: float | None, messages: int) -> Told:
    """One run of the server in C."""
    run: ServiceRun = serve(strategy, messages=messages, rate=rate, latencies=rate is not None)
    told: Told = {"per_second": run.messages_per_second, "checksum": str(run.checksum)}
    if rate is not None:
        told |= {f"{percent:g}": run.latency_ns(percent) for percent in PERCENTS}
    return told


def go(side: str, rate: float | None, messages: int) -> Told:
    """One run of the server in Go.

    Raises:
        BenchError: it failed.
        NoPeerError: there is no toolchain.
    """
    words = [str(go_program()), "open", repr(rate or 0.0), str(messages), side]
    done = children.run(words)
    if done.returncode:
        raise BenchError(f"{' '.join(words)}: exit {done.returncode}")
    told: Told = json.loads(done.stdout)
    return told


def servers() -> dict[str, Callable[[float | None, int], Told]]:
    """All that can serve here, by name."""
    found: dict[str, Callable[[float | None, int], Told]] = {
        name: functools.partial(ours, name) for name in OURS
    }
    try:
        go_program()
    except NoPeerError as error:
        print(f"{error}: no lines of Go")
        return found
    for side in ("heap", "arena"):
        found[f"Go, {side}"] = functools.partial(go, side)
    return found


def of(runs: Sequence[Told], percent: float) -> list[float]:
    """A latency of each run, in microseconds; at least a nanosecond, so that it divides."""
    return [max(float(told[f"{percent:g}"]), 1.0) / 1000 for told in runs]


def stolen_ticks() -> int:
    """Steal time of this virtual machine, in hundredths of a second over all processors."""
    try:
        return int(Path("/proc/stat").read_text(encoding="ascii").split()[8])
    except (OSError, IndexError, ValueError):
        return 0


def verdict_of(percent: float, ratio: Interval) -> str:
    """Whether what is asked of a percentile is met, by the median and its interval."""
    asked = ASKED[percent]
    told = (
        f"P{percent:g}: {ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}], asked {asked:g}: "
    )
    if ratio.high <= asked:
        return told + "met with its whole interval"
    if ratio.low > asked:
        return told + "missed"
    return told + ("met by the median" if ratio.median <= asked else "missed by the median")


def page(found: Mapping[str, Sequence[Told]], rate: float, messages: int, how: str) -> str:
    """Latencies with their intervals, and over those of Go's heap."""
    rows, ratios = [], []
    peer = found.get("Go, heap")
    for name, runs in found.items():
        cells = [interval(of(runs, percent)) for percent in PERCENTS]
        rows.append([name, *(f"{one.median:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in cells)])
        if peer is not None and not name.startswith("Go"):
            over = [ratio_cell(of(runs, percent), of(peer, percent)) for percent in PERCENTS]
            ratios.append([name, *over])
    header = ["µs", *(f"P{percent:g}" for percent in PERCENTS)]
    parts = [
        "# Latencies of the message server at a fixed rate",
        how,
        f"{messages:,} messages a run at {rate:,.0f} a second, {SHARE:.0%} of what the slowest can"
        " serve; 1,000 connections, payloads of 128 B in the mean, batches of 32 messages.",
        table(header, rows),
    ]
    if ratios:
        parts.append("Over Go's heap, run by run:")
        parts.append(table(["", *header[1:]], ratios))
    if peer is not None and "batch" in found:
        pairs = {
            percent: [
                mine / theirs
                for mine, theirs in zip(of(found["batch"], percent), of(peer, percent), strict=True)
            ]
            for percent in ASKED
        }
        told = [verdict_of(percent, interval(values)) for percent, values in pairs.items()]
        parts.append(f"`batch` over Go's heap, run by run. {'; '.join(told)}.")
    return "\n\n".join(parts) + "\n"


def rate_for(every: Mapping[str, Callable[[float | None, int], Told]], messages: int) -> float:
    """Messages a second: SHARE of what the slowest can serve in a closed loop.

    Raises:
        BenchError: their replies differ.
    """
    closed = [serve_it(None, messages) for serve_it in every.values()]
    if len({told["checksum"] for told in closed}) != 1:
        raise BenchError("the servers do not give the same replies")
    return SHARE * min(float(told["per_second"]) for told in closed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints the page, and writes what was asked for."""
    parser = parser_of("arena-latency", __doc__, "-o build/arena-latency.md")
    parser.set_defaults(rounds=11)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of a run (1000000)")
    parser.add_argument("--only", action="append", metavar="NAME", help="this one (repeatable)")
    options = parser.parse_args(arguments)
    if options.plot is not None:
        parser.error("this study draws nothing: notebook 08 has its picture")
    rounds, messages = (2, 2_000) if options.quick else (options.rounds, options.messages)
    every = servers()
    rate = rate_for(every, max(messages // 5, 20_000))
    chosen = {name: each for name, each in every.items() if name in (options.only or every)}
    if not chosen:
        parser.error(f"--only {options.only}: there are {', '.join(every)}")
    seconds = messages / rate * rounds * len(chosen)
    print(f"{rounds} runs of {len(chosen)} servers: about {seconds / 60:.1f} minutes", flush=True)
    stolen, before = stolen_ticks(), time.monotonic()
    found: dict[str, list[Told]] = {name: [] for name in chosen}
    for _ in range(rounds):
        for name, serve_it in chosen.items():
            found[name].append(serve_it(rate, messages))
    processors = (time.monotonic() - before) * 100 * (os.cpu_count() or 1)
    only = "".join(f" --only '{name}'" for name in options.only or ())
    how = where_and_when(command_of("arena-latency", options) + only, rounds)
    how += f" The host took {(stolen_ticks() - stolen) / processors:.2%} of the processors."
    tell(page(found, rate, messages, how), options.output)
    return 0
