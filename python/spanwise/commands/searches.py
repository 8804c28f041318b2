# SPDX-License-Identifier: Apache-2.0
"""Commands that run on many processors: optimize, sweep, fleet."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from spanwise import _format, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    add_description,
    add_session_options,
    check_session,
    new_command,
    print_json,
    print_session,
    show,
    suggestion,
    warn_gaps,
)
from spanwise.commands._options import add_option, add_plot_option, add_tables_option
from spanwise.errors import InvalidError, SpanwiseError, UnsupportedError
from spanwise.optimizer.pareto import ParetoFront
from spanwise.optimizer.profile import OBJECTIVES, RESIDENT
from spanwise.optimizer.result import LEAST_PERCENT, OptimizeResult
from spanwise.optimizer.search import optimize
from spanwise.optimizer.solver import WASTE_PERCENT
from spanwise.recordings.fleet import FLEET_GROUPS, fleet
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.recordings.timeline import parse_moment
from spanwise.results.files import check_output
from spanwise.sweeps.result import Sweep
from spanwise.sweeps.sweep import SweepInterrupted, expand, sweep
from spanwise.tables.table import SizeClassTable

# --- optimize -------------------------------------------------------------------------------------


def add_optimize(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "optimize",
        "spanwise optimize json.swt --classes 32 --holdout other.swt -o best.json",
        run_optimize,
    )
    add_description(
        parser,
        "Tables are compared by the peak resident bytes of a simulated run. The row 'limit' is what"
        " perfect packing would need, the highest requested bytes; no table can go below it."
        " The saving is split by cause. What remains is partial spans, kept by a few objects that"
        " outlived their neighbours, and memory outside the heap (see 'spanwise bench').",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE.swt", help="recordings to fit the table to"
    )
    add_option(
        parser, "-o --output TABLE.json", "write the table if it saves at least --least-percent"
    )
    _options.add_force_option(parser, "replace TABLE.json even if it is not JSON")
    add_option(parser, "--anyway", "write it even if it does not; the exit status is still 1")
    add_option(parser, "--classes N", "maximum number of classes (32)", type=int, default=32)
    add_option(
        parser,
        "--align 8|16",
        "16 (default): classes of 16 bytes and more are multiples of 16, as malloc requires",
        type=int,
        default=16,
    )
    add_option(
        parser,
        "--objective",
        "resident (default): least peak resident bytes, by simulation; held: least bytes held"
        " at the peak, among a few tables; peak: by a formula alone",
        choices=OBJECTIVES,
        default=RESIDENT,
    )
    add_option(
        parser,
        "--candidates N",
        "tables to simulate in the search (default 48 to 160, by length of the recordings)",
        type=int,
    )
    add_option(parser, "--mixed", "allow recordings of different programs")
    add_option(
        parser,
        "--holdout OTHER.swt",
        "also evaluate the table on this recording; repeatable",
        action="append",
        default=[],
    )
    add_option(
        parser,
        "--folds N",
        "cross-validate: hold out each FILE.swt in turn, or each of N parts of a single one,"
        " with a full search each. 0: never. With several recordings, 5-fold cross-validation"
        " with short searches is the default",
        type=int,
    )
    add_tables_option(parser, "also evaluate this table: {}; repeatable")
    add_option(
        parser,
        "--weight W",
        "weight of a recording, one per FILE.swt (default: bytes are summed)",
        action="append",
        type=float,
    )
    rules = parser.add_argument_group("rules")
    add_option(
        rules, "--largest N", "largest class, bytes (32768)", type=_options.size, default=32768
    )
    add_option(
        rules, "--page-bytes N", "page size of the table (8192)", type=_options.size, default=8192
    )
    add_option(rules, "--pages N", "maximum pages of a span (10)", type=int, default=10)
    add_option(
        rules, "--partial F", "partial spans charged per class (0.5)", type=float, default=0.5
    )
    add_option(
        rules,
        "--waste-percent P",
        "bound on the waste of a slot for unseen sizes, unless alignment forces more"
        f" (default {WASTE_PERCENT}; 100: no bound)",
        type=int,
        default=WASTE_PERCENT,
    )
    add_option(
        rules,
        "--prior F",
        "share of the weight spread over all sizes (default 0.02 for resident, else 0)",
        type=float,
    )
    add_option(
        rules,
        "--least-percent P",
        "minimum saving, of the peak resident under the stock table"
        f" (default {LEAST_PERCENT:g}; 0: any saving)",
        type=float,
        default=LEAST_PERCENT,
    )
    add_option(rules, "--name NAME", "name of the table (best-N-OBJECTIVE)")
    add_option(parser, "--pareto", "simulate waste versus number of classes")
    add_plot_option(parser, "draw the Pareto front")
    _options.add_valid_prefix_option(parser)


def run_optimize(options: argparse.Namespace) -> int:
    """Find, evaluate, write and print the table; return 1 if none beats the stock table."""
    if options.output:
        _check_table_file(options.output, options.force)
    if options.plot:
        plots.check_place(options.plot)
    fitted = RecordingSet.open(options.files, options.valid_prefix)
    held_out = RecordingSet.open(options.holdout, options.valid_prefix) if options.holdout else None
    if fitted.events == 0:
        return int(warn_gaps(fitted))
    best = _optimum(options, fitted, held_out)
    pareto = best.make_pareto() if options.pareto or options.plot else None
    if options.plot and pareto is not None:
        plots.save(pareto.plot(), options.plot)
    written = options.output if options.output and (best.holds or options.anyway) else None
    if written:
        best.table.to_json(written)
    if options.json:
        value = _as_json(best, pareto if options.pareto else None)
        print_json({**value, "written": written})
    else:
        _print(best, pareto if options.pareto else None)
        if options.output:
            print(_file_line(best, options.output, written is not None))
    return int(warn_gaps([*fitted, *(held_out or ())]) or not best.holds)


def _check_table_file(path: str, force: bool) -> None:
    """Check before the search that the output can be written and ends in .json."""
    check_output(path, json=not force)
    if not path.endswith(".json"):
        raise InvalidError(f"{path}: a table file ends in .json; give another name")


def _optimum(
    options: argparse.Namespace, fitted: RecordingSet, held_out: RecordingSet | None
) -> OptimizeResult:
    return optimize(
        fitted,
        options.classes,
        options.objective,
        align=options.align,
        holdout=held_out,
        tables=[SizeClassTable.named(name) for name in options.table or ()],
        largest_bytes=options.largest,
        page_bytes=options.page_bytes,
        pages=options.pages,
        partial=options.partial,
        waste_percent=options.waste_percent,
        prior=options.prior,
        least_percent=options.least_percent,
        weights=options.weight,
        candidates=options.candidates,
        mixed=options.mixed,
        folds=options.folds,
        name=options.name,
    )


def _print(best: OptimizeResult, pareto: ParetoFront | None) -> None:
    if pareto is not None:
        show(f"bytes at the peak of requested bytes, simulated\n{pareto}", "")
    show(best)


def _file_line(best: OptimizeResult, place: str, written: bool) -> str:
    if not written:
        return f"{place} was not written; --anyway writes {best.table.name} all the same"
    return f"wrote {place} ({best.table.name}, {_format.plural(len(best.table), 'class')})"


def _as_json(best: OptimizeResult, pareto: ParetoFront | None) -> dict[str, object]:
    value: dict[str, object] = best.to_dict()
    if pareto is not None:
        value["pareto"] = pareto.to_dict()
    return value


# --- sweep ----------------------------------------------------------------------------------------


def add_sweep(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "sweep",
        "spanwise sweep json.swt --table go --table 'mine/*.json' -o sweep.jsonl",
        run_sweep,
    )
    moments = "peak (of requested bytes; the default, the same for all tables), peak-resident"
    _options.add_recording_options(parser, "peak", moments)
    _options.add_tables_option(parser, "{}, or a glob pattern; repeatable (default: go and c16)")
    add_session_options(parser, "row", "also draw the best tables")
    _add_executor_option(parser)
    add_option(
        parser,
        "--by FIELD",
        "field to rank by (default peak_resident_bytes, the column 'peak resident')",
    )


def run_sweep(options: argparse.Namespace) -> int:
    """Prints the ranking; returns 1 if a row failed."""
    _check_executor(options.executor)
    check_session(options)
    tables = expand(options.table or ("go", "c16"))
    at = parse_moment(options.at)
    Sweep((), ()).ranking(options.by)  # reject an unknown field before the work
    try:
        with _executor(options.executor, options.workers) as executor:
            found = sweep(
                expand(options.files),
                tables,
                executor=executor,
                workers=options.workers,
                output=options.output,
                at=at,
                valid_prefix=options.valid_prefix,
                options=_options.heap_options_of(options),
            )
    except SweepInterrupted as stop:
        print_session(stop.result, "row")
        raise
    print_session(found, "row")
    if options.plot and found.ranking():
        plots.save(found.plot(), options.plot)
    if options.json:
        print_json(found.to_dict())
    else:
        show(found)
        by = options.by or found.judged_by
        ranking = found.ranking(by)
        if ranking:
            name, value = ranking[0]
            show(f"{name} has the least {by.replace('_', ' ')}: {_shown(by, value)}")
    return int(_warn_gaps(options) or bool(found.failures))


def _warn_gaps(options: argparse.Namespace) -> bool:
    recordings = []
    for path in expand(options.files):
        with suppress(SpanwiseError):  # a recording that cannot be read becomes a failed row
            recordings.append(Recording.open(path, options.valid_prefix))
    return warn_gaps(recordings)


def _shown(field: str, value: float) -> str:
    if field.endswith("_bytes"):
        return _format.size(value)
    return f"{value:g}"


# --- fleet ----------------------------------------------------------------------------------------


def add_fleet(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "fleet", "spanwise fleet recordings/ --by version", run_fleet)
    add_description(
        parser,
        "Estimates and their 95 % intervals are sums over all processes, each at its own moment."
        " A recording that cannot be read is reported, and the others count.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="DIR",
        help="folders that are searched for *.swt, or files, made by spanwise record --sample",
    )
    add_option(
        parser,
        "--by",
        "how objects are grouped (default site); a version is the --label of spanwise record, or"
        " the build id of the program",
        choices=FLEET_GROUPS,
        default="site",
    )
    add_option(
        parser,
        "--at WHEN",
        "peak of each process (of requested bytes, the default), end, or a time since its start",
        default="peak",
    )
    _options.add_table_option(parser)
    _add_executor_option(parser)


def run_fleet(options: argparse.Namespace) -> int:
    """Prints the estimates; returns 1 if a recording could not be read, or has gaps."""
    _check_executor(options.executor)
    with _executor(options.executor, options.workers) as executor:
        found = fleet(
            options.files,
            by=options.by,
            at=options.at,
            table=options.table,
            executor=executor,
            workers=options.workers,
        )
    if options.json:
        print_json(found.to_dict())
    else:
        show(found)
    for path, why in (*found.failed, *found.gaps):
        print(f"spanwise: {path}: {why.removeprefix(f'{path}: ')}", file=sys.stderr)
    return int(bool(found.failed or found.gaps))


# --- executors ------------------------------------------------------------------------------------


def _add_executor_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--executor` and `--workers`."""
    add_option(
        parser,
        "--executor E",
        "threads, dask (a cluster on this machine) or dask:tcp://HOST:PORT (its"
        " scheduler) [threads]",
        default="threads",
    )
    add_option(parser, "--workers N", "threads or Dask's processes [one per processor]", type=int)


def _check_executor(name: str) -> None:
    """Raise InvalidError if the name of the executor is unknown."""
    known = ("threads", "dask")
    kind, _, address = name.partition(":")
    if kind in known and (kind == "dask" or not address):
        return
    raise InvalidError(
        f"--executor {name}: give threads, dask or dask:tcp://HOST:PORT{suggestion(kind, known)}"
    )


@contextmanager
def _executor(name: str, workers: int | None) -> Iterator[Any]:
    """Yield None for threads, or a Dask executor; its client is closed at the end of the block."""
    if not name.startswith("dask"):
        yield None
        return
    address = name.partition(":")[2]
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise UnsupportedError(
            "executor dask: Dask is not installed; pip install 'spanwise[cluster]'"
        ) from None
    try:
        client = (
            distributed.Client(address, timeout=10)
            if address
            else distributed.Client(
                n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
            )
        )
    except (OSError, ValueError) as error:
        raise InvalidError(f"executor {name}: no scheduler answers ({error})") from None
    with client:
        yield client.get_executor()
