# SPDX-License-Identifier: Apache-2.0
"""One round of a benchmark: a case runs once under each of its allocators.

Runs of a round follow each other, so other load on the machine affects all alike. Their order
changes from round to round. A run fails if its stdout differs from that of the plain run.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spanwise import errors
from spanwise.measure.bench_cases import PLAIN, BenchCase, Server
from spanwise.measure.launching import Usage, launch
from spanwise.measure.running import ProcessLedger, heap_variables, read_process_ledger
from spanwise.recordings.launch import python_variables, seen_from
from spanwise.recordings.programs import Use, examine
from spanwise.sweeps.row_file import COUNT, OBJECT, TEXT, RowKind, optional
from spanwise.sweeps.tasks import describe, worker_name

SEEDS = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
"""Variables that make programs allocate the same way each time."""

VALUE_FIELDS = (
    *("rss_bytes", "anonymous_bytes", "held_bytes", "outside_bytes", "predicted_bytes"),
    *("cpu_ns", "elapsed_ns", "page_faults"),
)
"""Figures of a run. None in a failed run, or under another malloc if only spanwise's knows it."""

ROW_FIELDS = (
    *("program", "input", "case_hash", "allocator", "library_sha256", "round"),
    *VALUE_FIELDS,
    *("output_sha256", "worker", "error"),
)

_TYPES = {
    **dict.fromkeys(ROW_FIELDS, TEXT),
    **{"round": COUNT, "output_sha256": optional(TEXT), "error": optional(TEXT)},
    **dict.fromkeys(VALUE_FIELDS, optional(COUNT)),
}
BENCH = RowKind("bench", ("machine",), {"machine": TEXT, "allocators": OBJECT}, _TYPES)
"""Rows of one file are from one kind of machine."""

_USE = Use("benchmarked", "an allocator")


@dataclass(frozen=True)
class Round:
    """A case and the allocators that run it once each.

    Attributes:
        case: what runs.
        number: of the round, from 0.
        servers: the allocators.
        timeout_s: time limit of a run.
        ignore_output: allow stdout to differ from that of the plain run.
        plain_sha256: hash of the plain run's stdout, if an earlier session did it.
    """

    case: BenchCase
    number: int
    servers: tuple[Server, ...]
    timeout_s: float
    ignore_output: bool = False
    plain_sha256: str | None = None

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

    def without(self, done: set[tuple[str, str, str, int]]) -> Round:
        """Return the round without the runs that are done."""
        return replace(self, servers=tuple(s for s in self.servers if self.key(s) not in done))

    def key(self, server: Server) -> tuple[str, str, str, int]:
        """Return the identity of a run: case, allocator, library, round."""
        return (self.case.hash, server.name, server.sha256, self.number)


def run_round(round_: Round) -> list[dict[str, Any]]:
    """Do a round; return a row per run, failed ones with `error`."""
    order = list(round_.servers)
    random.Random(f"{round_.case.hash} {round_.number}").shuffle(order)
    rows = {server: _row(round_, server) for server in order}
    return _compared(round_, [rows[server] for server in round_.servers])


def _compared(round_: Round, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turn rows whose stdout differs from that of the plain run into failed rows."""
    plain = next((row["output_sha256"] for row in rows if row["allocator"] == PLAIN), None)
    wanted = plain or round_.plain_sha256
    if round_.ignore_output or wanted is None:
        return rows
    error = (
        f"{round_.case.argv[0]}: stdout differs from that of the plain run; find out why, or ignore"
        " it with --ignore-output (ignore_output=True) if it has times or addresses in it"
    )
    return [
        row if row["output_sha256"] in (None, wanted) else round_.row(server, error)
        for server, row in zip(round_.servers, rows, strict=True)
    ]


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
        own = heap_variables(server.options, tracked=False)
        own["SPANWISE_LEDGER"] = str(Path(folder, "%p.json"))
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


def variables_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment in which a case is recorded, as in its runs."""
    return {**os.environ, **SEEDS, **environment}
