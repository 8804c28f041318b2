# SPDX-License-Identifier: Apache-2.0
"""spanwise replay: a recording's operations with real memory, under one allocator or several."""

from __future__ import annotations

import argparse

from spanwise import errors, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    new_command,
    print_json,
    warn_gaps,
)
from spanwise.measure.replay_result import describe
from spanwise.measure.replayer import TOUCHES, Allocator, allocator_named
from spanwise.measure.replays import DRAIN_SECONDS, check_ledger, replay_many
from spanwise.recordings.recording import Recording
from spanwise.tables.table import SizeClassTable


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "replay",
        "do a recording's operations with real memory and measure them",
        "spanwise replay json.swt --allocator spanwise --allocator jemalloc --repeat 5",
        run,
    )
    parser.add_argument("file", metavar="FILE.swt", help="the recording")
    parser.add_argument(
        "--allocator",
        action="append",
        metavar="A",
        help="spanwise, glibc, jemalloc, mimalloc, tcmalloc or the path of a library that defines"
        " malloc; give it again for each (default spanwise)",
    )
    _options.add_tables_option(parser, "also our heap with this table, made at run time: {}")
    parser.add_argument(
        "--lib",
        action="append",
        metavar="DIR",
        help="also the preloaded malloc of a folder that `spanwise build` made",
    )
    parser.add_argument(
        "--touch",
        default="pages",
        choices=TOUCHES,
        help="what is written of each new object (default pages: a byte every 4 KiB and the ends)",
    )
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="replays of each, in fresh processes"
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=256,
        metavar="N",
        help="read resident memory about so often (default 256)",
    )
    parser.add_argument(
        "--drain",
        default=",".join(f"{at:g}" for at in DRAIN_SECONDS),
        metavar="S,S,...",
        help="read memory again so many seconds after all was freed (default 0.1,1,5)",
    )
    parser.add_argument(
        "--ledger",
        action="store_true",
        help="instead: one thread, a tracked heap with real memory, its ledger beside the"
        " simulator's; exit 1 when they differ (--table, default c16)",
    )
    _options.add_valid_prefix_option(parser)
    _options.add_plot_option(parser, "also draw resident memory")


def run(options: argparse.Namespace) -> int:
    """Prints what was measured; 1 when an allocation was refused or ledgers differ."""
    if options.plot:
        plots.check_place(options.plot)
    recording = Recording.open(options.file, options.valid_prefix)
    if len(recording) == 0:
        return int(warn_gaps([recording]))
    if options.ledger:
        return _run_ledger(options, recording) | warn_gaps([recording])
    allocators = _allocators(options)
    replays = replay_many(
        recording,
        allocators,
        touch=options.touch,
        repeat=options.repeat,
        samples=options.samples,
        drain=_seconds(options.drain),
    )
    if options.plot:
        plots.save(plots.replays(replays), options.plot)
    if options.json:
        print_json([one.to_dict() for one in replays])
    else:
        print(describe(replays))
    return int(warn_gaps([recording]) or any(one.failed for one in replays))


def _run_ledger(options: argparse.Namespace, recording: Recording) -> int:
    if options.allocator or options.lib:
        raise errors.InvalidError("--ledger is of a heap of ours: give --table only")
    tables = [SizeClassTable.named(name) for name in options.table or ("c16",)]
    checks = [check_ledger(recording, table) for table in tables]
    if options.json:
        print_json([one.to_dict() for one in checks])
    else:
        print("\n\n".join(str(one) for one in checks))
    return int(any(one.different for one in checks))


def _allocators(options: argparse.Namespace) -> list[Allocator]:
    tables = [SizeClassTable.named(name) for name in options.table or ()]
    libs = options.lib or ()
    names = options.allocator or (() if tables or libs else ("spanwise",))
    return [
        *(allocator_named(name) for name in names),
        *(allocator_named("spanwise", table=table) for table in tables),
        *(allocator_named("spanwise", lib=lib) for lib in libs),
    ]


def _seconds(words: str) -> list[float]:
    try:
        return [float(word) for word in words.split(",") if word]
    except ValueError:
        raise errors.InvalidError(f"--drain {words!r}: give seconds such as 0.1,1,5") from None
