# SPDX-License-Identifier: Apache-2.0
"""spanwise run: run a program with spanwise as its malloc, and print its ledger."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from spanwise import _format, errors
from spanwise.commands import _options
from spanwise.commands._common import SubParsers, new_command, show
from spanwise.commands._options import add_option, parse_size
from spanwise.commands.ledgers import describe
from spanwise.ledger.ledger import add_ledgers
from spanwise.measure.running import (
    ProcessLedger,
    RunResult,
    find_preload,
    heap_variables,
    run_under,
)
from spanwise.results.files import check_output, write_whole

_MORE = """\
The exit status is the program's; 128 + N after signal N; 1 if it succeeded but
no ledger was written; 2 if it could not be started. Its standard output is
unchanged. The first Ctrl-C goes to the program, the second ends it. The peak
ledger is taken when live bytes are at most 1/32 below their maximum.

Without this command, use LD_PRELOAD=libspanwise-malloc.so PROGRAM and these
variables:
  SPANWISE_LIMIT=BYTES       limit of the heap, e.g. 512M, 512MiB or 512MB
  SPANWISE_DECAY_MS=MS       return idle pages after this, or never
  SPANWISE_PLACEMENT=NAME    lifo, address or fullest
  SPANWISE_BATCH=N           empty spans that a thread keeps per class
  SPANWISE_THP=advise        ask for transparent huge pages, or off
  SPANWISE_TRACKED=1         keep requested sizes and the ledger of the peak
  SPANWISE_PROTECT=hardened  find overflows and uses after free; or paranoid
  SPANWISE_LEDGER=PATH       write the ledger as JSON at exit; %p: process id;
                             a number: file descriptor
  SPANWISE_VERBOSE=1         print a line to stderr at the start and at exit
"""


def add_run(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands, "run", "spanwise run -o json.txt -- python3 -c 'import json'", run_run
    )
    parser.usage = "%(prog)s [options] -- PROGRAM [ARGS...]"
    parser.epilog = f"{_MORE}\n{parser.epilog}"
    add_option(parser, "-o --output FILE", "write the ledger to FILE instead")
    _options.add_force_option(parser, "with --json, replace FILE even if it is not JSON")
    add_option(parser, "--plain", "run at full speed: no requested sizes, no ledger at the peak")
    add_option(
        parser,
        "--at",
        "ledger at the peak of live bytes, at the end, or both (default)",
        default="both",
        choices=("peak", "end", "both"),
    )
    add_option(parser, "--lib DIR", "output directory of `spanwise build` with a preloaded malloc")
    add_option(
        parser, "--table T", "fail unless the preloaded malloc has this table (installed: c16)"
    )
    add_option(parser, "--children", "also print ledgers of its child processes")
    _options.add_classes_option(parser)
    _options.add_program_options(parser)
    _add_heap_options(parser)


def _add_heap_options(parser: argparse.ArgumentParser) -> None:
    heap = parser.add_argument_group("heap")
    add_option(heap, "--limit BYTES", "limit of held bytes, e.g. 512M or 512MiB", default="0")
    _options.add_placement_options(heap)
    add_option(
        heap,
        "--protect NAMES",
        "find overflows and uses after free: hardened, paranoid, or some of canary, zero,"
        " hold, empty, match, sample, random and pages",
    )
    add_option(
        heap, "--thp", "ask for transparent huge pages", default="off", choices=("off", "advise")
    )


def run_run(options: argparse.Namespace) -> int:
    """Runs the program; returns its exit status, or 128 + N after signal N as a shell does."""
    command = _options.program_of(options, "run")
    given = _options.heap_options_of(options, _limit(options.limit))
    variables = heap_variables(given, tracked=not options.plain, huge_pages=options.thp == "advise")
    if options.protect:
        variables["SPANWISE_PROTECT"] = options.protect
    preload = find_preload(options.lib, options.table)
    if options.output:
        check_output(options.output, json=options.json and not options.force)
    result = run_under(
        command, preload, variables, keep_pymalloc=options.keep_pymalloc, patient=True
    )
    status = result.returncode if result.returncode >= 0 else 128 - result.returncode
    if result.main is None:
        print(f"spanwise: {result.why_no_ledger()}", file=sys.stderr)
        return status or 1
    text = json.dumps(_as_dict(result), indent=1) if options.json else _as_text(result, options)
    if options.output:
        write_whole(options.output, text + "\n")
    elif options.json:
        print(text, file=sys.stderr)
    else:
        show(text, file=sys.stderr)
    return status


def _limit(text: str) -> int | None:
    limit = parse_size(text, "--limit")
    if limit < 0:
        raise errors.InvalidError(f"--limit {text} is negative; give 0 (no limit) or more")
    return limit or None


# --- output ---------------------------------------------------------------------------------------


def _as_dict(result: RunResult) -> dict[str, Any]:
    assert result.main is not None
    return {
        "argv": list(result.argv),
        "status": result.returncode,
        **result.main.to_dict(),
        "children": [one.to_dict() for one in result.others],
    }


def _as_text(result: RunResult, options: argparse.Namespace) -> str:
    main = result.main
    assert main is not None
    shown = []
    if main.peak is not None and options.at != "end":
        shown.append(describe(main.peak, max(options.classes, 0)))
    if main.peak is None or options.at != "peak":
        shown.append(describe(main.ledger, max(options.classes, 0) if not shown else 0))
    if options.children and result.others:
        shown.append(_children(result))
    return "\n\n".join([*shown, "\n".join(_closing_lines(result, main, options))])


def _children(result: RunResult) -> str:
    """Return the sum of the ledgers of all processes at their peaks, or ends if untracked."""
    ledgers = [one for one in (result.main, *result.others) if one is not None]
    total = add_ledgers([one.peak or one.ledger for one in ledgers], f"{len(ledgers)} processes")
    return describe(total, 0)


def _closing_lines(
    result: RunResult, main: ProcessLedger, options: argparse.Namespace
) -> list[str]:
    resident, held = _format.size(main.peak_rss_bytes), _format.size(main.peak_held_bytes)
    lines = [f"peak RSS {resident}, of the whole process; peak held {held}"]
    if main.stats is not None:
        lines[0] += f", peak requested {_format.size(main.stats.peak_requested_bytes)}"
    if main.ledger.resident is None:
        lines.append(
            "resident bytes of the heap are unknown: the system refuses the call mincore"
            " (a container's filter may)"
        )
    if not main.tracked:
        lines.append("requested counts whole slots: --plain keeps no requested sizes")
    if result.others and not options.children:
        count = _format.plural(len(result.others), "child")
        lines.append(f"{count} with their own ledgers (--children shows them)")
    if result.returncode < 0:
        lines.append(f"the program was ended by signal {-result.returncode}")
    elif result.returncode > 0:
        lines.append(f"the program exited with {result.returncode}")
    return lines
