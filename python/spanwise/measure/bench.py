# SPDX-License-Identifier: Apache-2.0
"""Fit tables to programs, and run programs under several allocators (docs/design/programs.md).

A table is fitted to the first input of each program. The runs of a round follow each other, so
other load on the machine affects all of them alike. Their order changes from round to round. A run
fails if its stdout differs from that of the plain run.
"""

from __future__ import annotations

import os
import platform
import random
import signal
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spanwise import _format, errors
from spanwise.builds.build import build
from spanwise.builds.steps import BuildError
from spanwise.measure.bench_cases import (
    EVERYBODY,
    FITTED,
    PLAIN,
    SEEDS,
    SPANWISE,
    BenchCase,
    Server,
    Usage,
    built_server,
    check_cases,
    dropped_output,
    find_servers,
    launch,
    variables_of,
)
from spanwise.measure.bench_result import BENCH, VALUE_FIELDS, BenchResult, measured_on
from spanwise.measure.running import PRELOAD_TABLE, ProcessLedger, read_process_ledger
from spanwise.optimizer.search import optimize
from spanwise.recordings.programs import (
    PIPE_CLOSED,
    Use,
    examine,
    own_allocator,
    python_variables,
    seen_from,
    with_pipefail,
)
from spanwise.recordings.recorder import RecordOptions, run_recorded
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import Progress, Signals, progress_bar
from spanwise.results.rows import Result
from spanwise.sweeps.row_file import RowStore, header_of
from spanwise.sweeps.tasks import describe, worker_name
from spanwise.tables.table import SizeClassTable


@dataclass(frozen=True)
class BenchFit(Result):
    """The table fitted to the first input of a program.

    Attributes:
        program: its name.
        table: the fitted table; the stock table if the first input failed.
        holds: whether it beats the stock table; if not, nothing is built.
        verdict: of the optimizer, or how the first input failed.
        folder: of the build; None: there is none.
        why_not: why there is no build; "" if there is one.
        predicted: peak resident bytes of a simulated heap under the stock table and under this one,
            by hash of the case; without failed cases.
    """

    program: str
    table: SizeClassTable
    holds: bool
    verdict: str
    folder: Path | None
    why_not: str = ""
    predicted: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "program": self.program,
            "table": self.table.to_dict(),
            "holds": self.holds,
            "verdict": self.verdict,
            "folder": None if self.folder is None else str(self.folder),
            "why_not": self.why_not,
            "predicted": {case: list(pair) for case, pair in self.predicted.items()},
        }


def fit_cases(
    cases: Iterable[BenchCase],
    folder: str | os.PathLike[str],
    *,
    progress: Progress = None,
    **rules: Any,
) -> dict[str, BenchFit]:
    """Record each case, fit a table to the first input of each program, and build it.

    The other inputs do not influence the table. Nothing is fitted to a run that fails; the result
    has the reason.

    Args:
        cases: programs with their inputs; the table is fitted to a program's first input.
        folder: for recordings (`PROGRAM/N.swt`) and builds (`PROGRAM/build`); it is created.
        progress: as in `Recording.ledger`; the steps are programs.
        rules: arguments of `optimize`.

    Returns:
        The fit of each program.

    Raises:
        SpanwiseError: a program cannot be recorded, or no table can be fitted.
        OSError: the system refused to write.
    """
    wanted = list(cases)
    check_cases(wanted)
    programs: dict[str, list[BenchCase]] = {}
    for case in wanted:
        programs.setdefault(case.program, []).append(case)
    found = {}
    with progress_bar(progress, len(programs), "fits", "programs") as step:
        for name, own in programs.items():
            found[name] = _fit(name, own, Path(folder), rules)
            step(1)
    return found


def recording_path(folder: Path, program: str, number: int) -> Path:
    """Return the path of the recording of a program's input, counted from 0."""
    name = "".join(one if one.isalnum() or one in "+-._" else "-" for one in program)
    return folder / name / f"{number}.swt"


def _fit(program: str, cases: Sequence[BenchCase], folder: Path, rules: dict[str, Any]) -> BenchFit:
    place = recording_path(folder, program, 0).parent
    place.mkdir(parents=True, exist_ok=True)
    stock = SizeClassTable.named(PRELOAD_TABLE)
    try:
        first = record_case(cases[0], place / "0.swt")
    except errors.ProgramError as error:
        why = f"not fitted: {error}"
        return BenchFit(program, stock, False, why, None, why)
    recordings = {cases[0].hash: first, **_others(cases[1:], place)}
    found = optimize(first, progress=False, **rules)
    built, why_not = None, "" if found.holds else "no table beats the stock table"
    if found.holds:
        try:
            built = build(found.table, place / "build", progress=False).folder
        except BuildError as error:
            why_not = str(error)
    predicted = {
        case: (_highest(recording, stock), _highest(recording, found.table))
        for case, recording in recordings.items()
    }
    return BenchFit(program, found.table, found.holds, found.verdict(), built, why_not, predicted)


def _others(cases: Sequence[BenchCase], place: Path) -> dict[str, Recording]:
    """Return the recordings of the inputs after the first by hash, without failed ones."""
    found = {}
    for number, case in enumerate(cases, 1):
        with suppress(errors.ProgramError):
            found[case.hash] = record_case(case, place / f"{number}.swt")
    return found


def _highest(recording: Recording, table: SizeClassTable) -> int:
    return recording.ledger(table, "peak-resident", progress=False).resident_bytes or 0


def record_case(case: BenchCase, path: Path) -> Recording:
    """Record a case; of several processes keep the largest."""
    path.unlink(missing_ok=True)  # a failed case leaves no recording
    with (
        tempfile.TemporaryDirectory(prefix="spanwise-bench-", dir=path.parent) as scratch,
        dropped_output() as stdout,
    ):
        env = variables_of(case.environment)
        words = with_pipefail(case.argv, env.get("PATH"), case.folder)
        outcome = run_recorded(
            words,
            Path(scratch, "run.swt"),
            RecordOptions(children=True, stacks=0, env=env, cwd=case.folder, stdout=stdout),
        )
        if outcome.status not in ((0, PIPE_CLOSED) if words != list(case.argv) else (0,)):
            raise errors.ProgramError(
                f"{case.argv[0]}: {_how(outcome.status)} while it was recorded"
            )
        highest = outcome.recordings().highest()
        if highest.path is None:
            name = ", ".join(filter(None, (case.program, case.input)))
            raise errors.StateError(f"{name}: nothing was recorded")
        Path(highest.path).replace(path)
    return Recording.open(path)


def _how(status: int) -> str:
    return f"signal {-status} ended it" if status < 0 else f"ended with {status}"


# --- runs -----------------------------------------------------------------------------------------

_USE = Use("benchmarked", "an allocator")


class BenchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a benchmark.

    Attributes:
        result: the finished rows.
    """

    def __init__(self, result: BenchResult) -> None:
        super().__init__(f"interrupted after {_format.plural(len(result), 'run')}")
        self.result = result


def bench(
    cases: Iterable[BenchCase],
    allocators: Iterable[str] = EVERYBODY,
    *,
    fits: Mapping[str, BenchFit] | None = None,
    rounds: int = 5,
    timeout_s: float = 120.0,
    ignore_output: bool = False,
    output: str | os.PathLike[str] | None = None,
    progress: Progress = None,
) -> BenchResult:
    """Run programs under several allocators, interleaved; measure CPU time and peak RSS.

    In a round each case runs once under each allocator, one after the other, the preloaded malloc
    at full speed (not tracked). All runs share the case's folder as working directory.

    Args:
        cases: programs with their inputs.
        allocators: "plain" (the program without spanwise), "spanwise", "glibc", "jemalloc",
            "mimalloc", "tcmalloc", "one-arena" (plain with MALLOC_ARENA_MAX=1), "hardened",
            "paranoid" (spanwise with these protections), or paths of libraries that define malloc;
            missing ones are omitted with a note. Where a library is preloaded, CPython runs with
            PYTHONMALLOC=malloc.
        fits: result of `fit_cases`; built tables take part as "fitted".
        rounds: runs of each case under each allocator.
        timeout_s: a longer run is ended and becomes a failed row; seconds.
        ignore_output: accept a stdout that differs from that of the plain run of the same round,
            for programs that print times or addresses. By default such a run is a failed row, and
            if each run of a round is one, the case has no further rounds.
        output: JSON lines file for the rows, written as they finish; an earlier one is replaced.
        progress: as in `Recording.ledger`; the steps are runs.

    Returns:
        The runs, by case, allocator and round.

    Raises:
        InvalidError: an argument that is not allowed, or an output file of something else.
        BenchInterrupted: Ctrl-C; it and the file have the finished rows.
        OSError: the system refused to write.
    """
    wanted = list(cases)
    check_cases(wanted)
    if rounds < 1:
        raise errors.InvalidError(f"rounds {rounds}: must be at least 1")
    if not timeout_s > 0:
        raise errors.InvalidError(f"timeout_s {timeout_s:g}: must be more than 0")
    servers, missing = find_servers(allocators)
    notes = [f"{name} is not installed: {advice}" for name, advice in missing.items()]
    notes += _own_allocators(wanted)
    served = [_servers_of(case, servers, (fits or {}).get(case.program)) for case in wanted]
    # Rounds are the outermost loop, so an interrupted benchmark has run all cases equally often.
    plan = [
        Round(case, number, own, timeout_s, ignore_output)
        for number in range(rounds)
        for case, own in zip(wanted, served, strict=True)
    ]
    store = RowStore(output, BENCH, _header(plan))
    total = sum(len(one.servers) for one in plan)
    ended: set[str] = set()  # cases whose next rounds would fail as the first one did
    try:
        with (
            progress_bar(progress, total, "bench", "runs") as step,
            Signals([signal.SIGTERM, signal.SIGHUP]) as signals,
            signals.heard(),
        ):
            for round_ in plan:
                if round_.case.hash in ended:
                    step(len(round_.servers))
                    continue
                rows = run_round(round_)
                store.add(rows, step)
                if _all_differ(rows):
                    ended.add(round_.case.hash)
    except KeyboardInterrupt:
        raise BenchInterrupted(_result(plan, store, notes)) from None
    finally:
        store.close()
    return _result(plan, store, notes)


def _own_allocators(cases: Sequence[BenchCase]) -> list[str]:
    """Say which programs bring their own allocator, which the plain runs use."""
    found = {case.program: own_allocator(case.argv[0]) for case in cases}
    return [f"{program} in plain runs: {own}" for program, own in found.items() if own]


def _servers_of(
    case: BenchCase, servers: Sequence[Server], fit: BenchFit | None
) -> tuple[Server, ...]:
    if fit is None:
        return tuple(servers)
    stock, fitted = fit.predicted.get(case.hash, (None, None))
    own = [replace(one, predicted_bytes=stock) if one.name == SPANWISE else one for one in servers]
    if fit.folder is not None:
        own.append(built_server(FITTED, fit.folder, fitted))
    return tuple(own)


def _result(plan: Sequence[Round], store: RowStore, notes: Sequence[str]) -> BenchResult:
    """Return the rows by case, allocator and round."""
    cases = list(dict.fromkeys(round_.case.hash for round_ in plan))
    servers = list(dict.fromkeys(server.name for round_ in plan for server in round_.servers))
    rows = sorted(
        store.rows,
        key=lambda row: (
            cases.index(row["case_hash"]),
            servers.index(row["allocator"]),
            row["round"],
        ),
    )
    return BenchResult(rows, path=store.path, notes=notes, measured=measured_on(_header(plan)))


def _header(plan: Sequence[Round]) -> dict[str, Any]:
    servers = {server.name: server for round_ in plan for server in round_.servers}
    return header_of(
        machine=f"{platform.system()} {platform.machine()}, {processor()}",
        allocators={name: [one.library, one.sha256] for name, one in servers.items()},
    )


def processor() -> str:
    """Return the name of the processor."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            lines = [line.partition(":") for line in file]
    except OSError:
        return platform.processor() or "unknown"
    return next((value.strip() for name, _, value in lines if name.strip() == "model name"), "")


_DIFFERS = "stdout differs from that of the plain run"
_VARIES = "so does a second plain run's: compare with --ignore-output (ignore_output=True)"

# --- one round ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """A case and the allocators that run it once each."""

    case: BenchCase  # what runs
    number: int  # of the round, from 0
    servers: tuple[Server, ...]  # the allocators
    timeout_s: float  # time limit of a run
    ignore_output: bool = False  # allow stdout to differ from that of the plain run

    def row(self, server: Server, error: str | None, **values: int | str | None) -> dict[str, Any]:
        """Return the row of a run; without values, of a failed run."""
        return {
            "program": self.case.program,
            "input": self.case.input,
            "case_hash": self.case.hash,
            "allocator": server.name,
            "library_sha256": server.sha256,
            "round": self.number,
            **dict.fromkeys((*VALUE_FIELDS, "output_sha256")),
            **values,
            "worker": worker_name(),
            "error": error,
        }


def run_round(round_: Round) -> list[dict[str, Any]]:
    """Do a round; return a row per run, failed ones with `error`."""
    order = list(round_.servers)
    random.Random(f"{round_.case.hash} {round_.number}").shuffle(order)
    if round_.number == 0:
        order.sort(key=lambda server: server.name != PLAIN)
    rows: dict[Server, dict[str, Any]] = {}
    for server in order:
        rows[server] = _row(round_, server)
        if round_.number == 0 and len(rows) > 1 and _varies(round_, order[0], rows, server):
            error = f"{round_.case.argv[0]}: {_DIFFERS}; {_VARIES}"
            return [rows[order[0]], *(round_.row(one, error) for one in order[1:])]
    return _compared(round_, [rows[server] for server in round_.servers])


def _varies(
    round_: Round, plain: Server, rows: Mapping[Server, dict[str, Any]], server: Server
) -> bool:
    """Whether the first output that differs shows that those of plain runs do, by another one."""
    wanted = rows[plain]["output_sha256"]
    if round_.ignore_output or plain.name != PLAIN or wanted is None:
        return False
    outputs = [row["output_sha256"] for row in rows.values()]
    if rows[server]["output_sha256"] in (None, wanted) or set(outputs[:-1]) - {None, wanted}:
        return False
    return _row(round_, plain)["output_sha256"] not in (None, wanted)


def _compared(round_: Round, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turn rows whose stdout differs from that of the plain run into failed rows."""
    wanted = next((row["output_sha256"] for row in rows if row["allocator"] == PLAIN), None)
    if round_.ignore_output or wanted is None:
        return rows
    why = "find out why, or ignore it with --ignore-output if it differs from run to run"
    if round_.number == 0:
        why = "but a second plain run has the same: find out why"
    error = f"{round_.case.argv[0]}: {_DIFFERS}; {why}"
    return [
        row if row["output_sha256"] in (None, wanted) else round_.row(server, error)
        for server, row in zip(round_.servers, rows, strict=True)
    ]


def _all_differ(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether no run under another allocator had the output of the plain run."""
    others = [row for row in rows if row["allocator"] != PLAIN]
    return bool(others) and all(_DIFFERS in (row["error"] or "") for row in others)


def _row(round_: Round, server: Server) -> dict[str, Any]:
    try:
        return _run(round_, server)
    except (errors.SpanwiseError, OSError) as error:
        return round_.row(server, describe(error))


def _run(round_: Round, server: Server) -> dict[str, Any]:
    case = round_.case
    base = {**os.environ, **SEEDS, **case.environment}
    plain = not server.library
    program = examine(seen_from(case.argv[0], case.folder), base.get("PATH"), _USE)
    with tempfile.TemporaryDirectory(prefix="spanwise-bench-") as folder:
        own = {"SPANWISE_TRACKED": "0", "SPANWISE_LEDGER": str(Path(folder, "%p.json"))}
        env = {**base, **python_variables(program, plain), **(own if server.own else {})}
        env.update(server.variables)
        usage = launch(
            case.argv,
            base.get("LD_PRELOAD", "") if plain else server.library,
            env=env,
            cwd=case.folder,
            timeout_s=round_.timeout_s,
        )
        if usage.error:
            return round_.row(server, f"{case.argv[0]}: {usage.error}")
        ledgers = [read_process_ledger(path) for path in sorted(Path(folder).glob("*.json"))]
    if server.own and not ledgers:
        return round_.row(server, f"{case.argv[0]}: no process of it wrote a ledger")
    values = _values(usage, server, ledgers)
    return round_.row(server, None, **values, output_sha256=usage.output_sha256)


def _values(usage: Usage, server: Server, ledgers: list[ProcessLedger]) -> dict[str, int | None]:
    values: dict[str, int | None] = {
        "rss_bytes": usage.rss_bytes,
        "anonymous_bytes": usage.anonymous_bytes,
        "predicted_bytes": server.predicted_bytes,
        "cpu_ns": usage.cpu_ns,
        "elapsed_ns": usage.elapsed_ns,
        "page_faults": usage.page_faults,
    }
    if ledgers:
        largest = max(ledgers, key=lambda one: one.peak_held_bytes)
        values["held_bytes"] = largest.peak_held_bytes
        now, heap = largest.ledger.rss_bytes, largest.ledger.resident_bytes
        if now is not None and heap is not None:
            values["outside_bytes"] = max(0, now - heap)
    return values
