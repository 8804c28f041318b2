# SPDX-License-Identifier: Apache-2.0
"""Run programs under several allocators, interleaved (docs/design/programs.md)."""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanwise import _format, errors
from spanwise.heap.options import HeapOptions
from spanwise.measure.bench_cases import (
    EVERYBODY,
    FITTED,
    PLAIN,
    SPANWISE,
    BenchCase,
    Server,
    built_server,
    check_cases,
    find_servers,
    policy_servers,
)
from spanwise.measure.bench_fits import BenchFit
from spanwise.measure.bench_result import BenchResult, BenchRow, latest, measured_on
from spanwise.measure.bench_rounds import BENCH, Round, run_round
from spanwise.recordings.programs import own_allocator
from spanwise.results.jobs import Progress, Signals, Step, progress_bar
from spanwise.sweeps.plans import session_header
from spanwise.sweeps.row_file import RowStore


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
    policies: Iterable[HeapOptions] = (),
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
            "mimalloc", "tcmalloc", "one-arena" (plain with MALLOC_ARENA_MAX=1), or paths of
            libraries that define malloc; missing ones are omitted with a note. Where a library is
            preloaded, CPython runs with PYTHONMALLOC=malloc.
        fits: result of `fit_cases`; built tables take part as "fitted".
        policies: further options of "spanwise", each an allocator named by its changes, such as
            "placement fullest, decay_ms 0".
        rounds: runs of each case under each allocator.
        timeout_s: a longer run is ended and becomes a failed row; seconds.
        ignore_output: accept a stdout that differs from that of the plain run of the same round,
            for programs that print times or addresses. By default such a run is a failed row.
        output: JSON lines file for the rows. Runs of an existing file are not repeated, except
            those that failed or have no plain run to compare with.
        progress: as of `Recording.ledger`; the steps are runs.

    Returns:
        The runs, by case, allocator and round.

    Raises:
        InvalidError: an argument that is not allowed, or an output file of something else.
        StateError: another benchmark writes to the output file.
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
    servers += policy_servers(policies)
    notes = [f"{name} is not installed: {advice}" for name, advice in missing.items()]
    notes += _own_allocators(wanted)
    served = [_servers_of(case, servers, (fits or {}).get(case.program)) for case in wanted]
    # Rounds are the outermost loop, so an interrupted benchmark has run all cases equally often.
    plan = [
        Round(case, number, own, timeout_s, ignore_output)
        for number in range(rounds)
        for case, own in zip(wanted, served, strict=True)
    ]
    session = _Session(plan, notes, output)
    try:
        with progress_bar(progress, session.total, "bench", "runs") as step:
            session.run(step)
    except KeyboardInterrupt:
        raise BenchInterrupted(session.result()) from None
    finally:
        session.close()
    return session.result()


def _own_allocators(cases: Sequence[BenchCase]) -> list[str]:
    """Say which programs bring an allocator of their own, which the plain runs use."""
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


class _Session:
    """A session: the rows of earlier sessions, and those that it adds."""

    def __init__(
        self, plan: Sequence[Round], notes: Sequence[str], output: str | os.PathLike[str] | None
    ) -> None:
        self._notes = list(notes)
        header = _header(plan)
        self._measured = measured_on(header)
        self._store = RowStore(output, header, BENCH, _key)
        kept, plain = _kept(plan, latest(self._store.before).values())
        self._store.keep(kept)
        done = set(map(_key, kept))
        self._order = [round_.key(server) for round_ in plan for server in round_.servers]
        self._cases = {round_.case.hash: round_.case for round_ in plan}
        self._plan = [
            replace(left, plain_sha256=plain.get((one.case.hash, one.number)))
            for one in plan
            if (left := one.without(done)).servers
        ]
        self.total = sum(len(one.servers) for one in self._plan)
        if kept:
            self._notes.append(f"{_format.plural(len(kept), 'run')} reused")

    def run(self, progress: Step) -> None:
        """Do the remaining rounds."""
        with Signals([signal.SIGTERM, signal.SIGHUP]) as signals, signals.heard():
            for round_ in self._plan:
                self._store.add(run_round(round_), progress)

    def result(self) -> BenchResult:
        """Return the rows by case, allocator and round, with the current names of cases."""
        names = {key: (case.program, case.input) for key, case in self._cases.items()}
        cases = list(names)
        servers = list(dict.fromkeys((name, library) for _, name, library, _ in self._order))
        rows = []
        for row in self._store.rows.values():
            program, input_ = names[row["case_hash"]]
            rows.append({**row, "program": program, "input": input_})
        rows.sort(
            key=lambda row: (
                cases.index(row["case_hash"]),
                servers.index((row["allocator"], row["library_sha256"])),
                row["round"],
            )
        )
        return BenchResult(
            rows,
            path=self._store.path,
            notes=[*self._store.notes, *self._notes],
            measured=self._measured,
        )

    def close(self) -> None:
        """Close the file."""
        self._store.close()


def _kept(
    plan: Sequence[Round], old: Iterable[BenchRow]
) -> tuple[list[BenchRow], dict[tuple[str, int], str]]:
    """Return the rows of earlier sessions that need not be repeated.

    If stdout is compared, a row is kept only if it agrees with the plain run of its round.
    """
    rounds = {round_.key(server): round_ for round_ in plan for server in round_.servers}
    good = [row for row in old if row["error"] is None and _key(row) in rounds]
    plain = {
        (row["case_hash"], row["round"]): row["output_sha256"]
        for row in good
        if row["allocator"] == PLAIN
    }

    def agrees(row: BenchRow) -> bool:
        round_ = rounds[_key(row)]
        if round_.ignore_output or all(one.name != PLAIN for one in round_.servers):
            return True
        return bool(plain.get((row["case_hash"], row["round"])) == row["output_sha256"])

    return [row for row in good if agrees(row)], plain


def _key(row: BenchRow) -> tuple[str, str, str, int]:
    return (row["case_hash"], row["allocator"], row["library_sha256"], row["round"])


def _header(plan: Sequence[Round]) -> dict[str, Any]:
    servers = {server.name: server for round_ in plan for server in round_.servers}
    return session_header(
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
