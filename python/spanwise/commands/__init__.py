# SPDX-License-Identifier: Apache-2.0
"""The commands by subject: `add_NAME(subparsers)` declares one, `run_NAME(options)` runs it.

All commands have `--help` with an example and `--json`. Exit status: 0 for success, 1 if a check
fails or finds something, 2 for wrong usage or bad input, 130 after Ctrl-C. An error is one line on
stderr.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command: `add_NAME` is in spanwise.commands.MODULE."""

    module: str
    help: str


COMMANDS = {
    "classes": Command("tables", "show the classes of a table: sizes, spans, waste"),
    "explain": Command("tables", "show how a request is served: class, span, waste, page rounding"),
    "record": Command(
        "record", "run a dynamically linked program and record all its calls of the malloc family"
    ),
    "top": Command("top", "run a program and show its live memory by call site, while it runs"),
    "convert": Command("exports", "convert another tool's heap profile or trace to a recording"),
    "run": Command(
        "run", "run a dynamically linked program with spanwise as its malloc, then print its ledger"
    ),
    "advise": Command(
        "measures", "report how much memory a program wastes and what to change, ranked by savings"
    ),
    "ledger": Command("ledgers", "account for every byte of a recording under a table"),
    "estimate": Command(
        "ledgers", "estimate live and allocated bytes by call site from a sampled recording"
    ),
    "fleet": Command(
        "searches", "estimate live and allocated bytes of many processes by site, host or version"
    ),
    "compare": Command("ledgers", "compare the ledgers of a recording under several tables"),
    "optimize": Command(
        "searches",
        "find a table that saves resident bytes on recordings, and evaluate it on others",
    ),
    "build": Command(
        "tables",
        "generate the C code of a table, and build the library and preloaded malloc with it",
    ),
    "replay": Command(
        "measures", "replay a recording with real memory and measure CPU time and RSS"
    ),
    "sweep": Command(
        "searches", "evaluate many tables on recordings, on all processors or a cluster"
    ),
    "bench": Command(
        "measures", "run a program under several allocators and compare CPU time and peak RSS"
    ),
    "report": Command(
        "exports", "write an HTML page that shows how much a recording wasted, and where"
    ),
    "flame": Command("exports", "draw a flame graph of waste or resident bytes by call stack"),
    "export": Command("exports", "convert a recording to another tool's format"),
    "check": Command(
        "ledgers", "exit with status 1 if a recording wastes or holds more than a limit"
    ),
    "diff": Command(
        "ledgers", "show what grew between two recordings, by part, class and call site"
    ),
    "gctrace": Command(
        "tables", "summarize gctrace lines of spanwise or Go: pauses, marking, heap"
    ),
    "demo": Command(
        "demo", "record programs on this machine, build the best table for python3, and measure it"
    ),
}
"""Commands in the order of the help. `spanwise --help` loads no module of a command."""
