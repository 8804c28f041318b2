# SPDX-License-Identifier: Apache-2.0
"""How fast arenas are: ours over a loop that bumps and clears, and over Go's arenas and heap.

Rows of messages time whole messages, with decoding, routing and replying. Other rows tell the
memory part: the time of a message minus that of one which uses the same four blocks each time, on
both sides.

Ours and the loop run in one process of bench_arenas. Go's figures come from bench/arenas/go, which
is built with GOEXPERIMENT=arenas where there is a Go toolchain, and run right after ours; without
one its rows say `no peer`. A value is a ratio of CPU times of one repetition (Go's: wall time of
one goroutine), but for the pool's, which is in nanoseconds. Exit 1: a limit is missed.

Examples:
    ./dev bench --scoreboard --rows 'arena*'           all rows, nine minutes
    ./dev bench --scoreboard --rows 'arena*' --quick   short, once: that it runs, not how fast

It is a module, which `bench/scoreboard/scripted.py` starts as a process of its own:
    PYTHONPATH=bench .venv/bin/python -m scoreboard.arena_speed --json
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from runner.errors import BenchError, NoPeerError

from scoreboard import collector_speed
from scoreboard.beside_reference import Bench
from scoreboard.loop_speed import Row, Setting

BENCH = Bench("arena")
GO_SOURCE = Path(__file__).resolve().parents[1] / "arenas/go"
OBJECTS = {"new_16": 1024, "new_32": 1024, "slice_1k": 32, "pool_pair": 1, "service": 320_000}
"""Objects, or messages, in one iteration of a row of bench_arenas."""


@functools.cache
def go_program() -> Path:
    """Go's side, built.

    Raises:
        NoPeerError: there is no toolchain, or it has no arenas.
    """
    go = shutil.which("go")
    if go is None:
        raise NoPeerError("there is no Go toolchain")
    out = Path(tempfile.mkdtemp(prefix="spanwise-go-")) / "arenas"
    env = {**os.environ, "GOEXPERIMENT": "arenas", "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    words = [go, "build", "-o", str(out), "."]
    done = subprocess.run(words, cwd=GO_SOURCE, env=env, capture_output=True, check=False)
    if done.returncode != 0:
        raise NoPeerError("this Go toolchain does not build arenas")
    return out


def go_times(setting: Setting) -> dict[str, float]:
    """Nanoseconds an object by heap/ROW and arena/ROW.

    Raises:
        BenchError: it failed.
    """
    words = [str(go_program())] if setting.judged else [str(go_program()), "quick"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"Go's side ended with {done.returncode}")
    return {name: float(ns) for name, ns in json.loads(done.stdout).items()}


def ours_ns(row: str, setting: Setting, contender: str = "spanwise") -> float:
    """Nanoseconds an object of ours."""
    return BENCH.times(row, (contender,), setting)[0] / OBJECTS[row]


def over_go(row: str, side: str, setting: Setting, contender: str = "spanwise") -> float:
    """Ours over Go's `side`, as its program names it."""
    go_program()
    return ours_ns(row, setting, contender) / go_times(setting)[f"{side}/{row}"]


def memory_over_go(side: str, setting: Setting) -> float:
    """The memory part of a message in a batch's arena, over that of Go's `side`."""
    go_program()
    static, batch = BENCH.times("service", ("spanwise_static", "spanwise"), setting)
    theirs = go_times(setting)
    go_ns = theirs[f"{side}/service"] - theirs["static/service"]
    return (batch - static) / OBJECTS["service"] / go_ns


def memory_percent(setting: Setting) -> float:
    """The percentage of memory in the time of a message in a batch's arena."""
    static, batch = BENCH.times("service", ("spanwise_static", "spanwise"), setting)
    return 100 * (1 - static / batch)


MESSAGES = collector_speed.Case("messages", 2_000_000, 70_000)
IN_ARENAS = collector_speed.Case("messages_arena", MESSAGES.size, MESSAGES.quick)


def beside_live(setting: Setting, key: str, peer: str) -> float:
    """A figure of messages in arenas beside 12 MB of a collected heap, over that without arenas.

    Args:
        setting: of the run.
        key: collections, or pause_ns.
        peer: whose heap has the objects otherwise: Go's, or ours.
    """
    if peer == "Go":
        theirs = collector_speed.go(MESSAGES, setting)[0]
    else:
        theirs = collector_speed.ours(MESSAGES, setting)
    return collector_speed.ours(IN_ARENAS, setting)[key] / theirs[key]


ROWS = (
    BENCH.row("new 16 B, limit loop", "new_16", ("spanwise",), "limit"),
    BENCH.row("new 32 B, limit loop", "new_32", ("spanwise",), "limit"),
    Row("new 16 B, Go arena", "x", functools.partial(over_go, "new_16", "arena")),
    Row("new 16 B, Go heap", "x", functools.partial(over_go, "new_16", "heap")),
    Row("new 32 B, Go arena", "x", functools.partial(over_go, "new_32", "arena")),
    Row("new 32 B, Go heap", "x", functools.partial(over_go, "new_32", "heap")),
    Row("slice 1 KiB, Go arena", "x", functools.partial(over_go, "slice_1k", "arena")),
    Row("slice 1 KiB, Go heap", "x", functools.partial(over_go, "slice_1k", "heap")),
    Row("message, Go heap", "x", functools.partial(over_go, "service", "heap")),
    Row("message, Go arena", "x", functools.partial(over_go, "service", "arena")),
    Row("memory of a message", "%", memory_percent),
    Row("memory of a message, Go heap", "x", functools.partial(memory_over_go, "heap")),
    Row("memory of a message, Go arena", "x", functools.partial(memory_over_go, "arena")),
    Row(
        "message without memory, Go arena",
        "x",
        functools.partial(over_go, "service", "arena", contender="spanwise_static"),
    ),
    Row(
        "an arena a message, Go arena a message",
        "x",
        functools.partial(over_go, "service", "one", contender="spanwise_one"),
    ),
    Row(
        "message in safe mode, Go heap",
        "x",
        functools.partial(over_go, "service", "heap", contender="spanwise_safe"),
    ),
    Row(
        "an arena a message in safe mode, Go heap",
        "x",
        functools.partial(over_go, "service", "heap", contender="spanwise_safe_one"),
    ),
    Row("collections, Go heap", "x", functools.partial(beside_live, key="collections", peer="Go")),
    Row("pauses, Go heap", "x", functools.partial(beside_live, key="pause_ns", peer="Go")),
    Row("collections, same heap", "x", functools.partial(beside_live, key="collections", peer="")),
    Row("pauses, same heap", "x", functools.partial(beside_live, key="pause_ns", peer="")),
    Row("pool get and put", "ns", functools.partial(ours_ns, "pool_pair")),
    Row("pool get and put, sync.Pool", "x", functools.partial(over_go, "pool_pair", "pool")),
)


if __name__ == "__main__":
    sys.exit(BENCH.main(ROWS, Path(__file__).name, __doc__))
