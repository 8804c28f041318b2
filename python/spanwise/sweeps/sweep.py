# SPDX-License-Identifier: Apache-2.0
"""Compute ledgers of many recordings under many tables, on any executor (docs/design/sweep.md)."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from spanwise import _format
from spanwise.heap.options import HeapOptions
from spanwise.recordings import sources
from spanwise.results.jobs import Progress, Signals, Step, progress_bar
from spanwise.sweeps.engines import Dispatcher, Engine, make_engine
from spanwise.sweeps.plans import Plan, make_plan
from spanwise.sweeps.result import Sweep, content, key, latest
from spanwise.sweeps.row_file import Row, RowStore
from spanwise.sweeps.tasks import SWEEP, file_sha256


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C in a sweep.

    Attributes:
        result: the finished rows.
    """

    def __init__(self, result: Sweep) -> None:
        super().__init__(f"interrupted after {_format.plural(len(result), 'row')}")
        self.result = result


def sweep(
    recordings: Any,
    tables: Any,
    *,
    executor: Executor | str | None = None,
    workers: int | None = None,
    output: str | os.PathLike[str] | None = None,
    at: str | float = "peak",
    valid_prefix: bool = False,
    options: HeapOptions | None = None,
    progress: Progress = None,
) -> Sweep:
    """Compute the ledgers of recordings under tables, many at a time.

    Each recording is decoded once for several tables, and several such passes run at once. A
    failure (a damaged recording, a dead worker) becomes a failed row; the rest goes on.

    Args:
        recordings: a `Recording`, a path, or an iterable of them.
        tables: a `SizeClassTable`, a name, or an iterable of them.
        executor: "threads" (also None; the work releases the GIL), "processes", or any
            `concurrent.futures.Executor`, e.g. `client.get_executor()` of a Dask cluster. Other
            processes get recordings by path and check the hash of the file.
        workers: number of threads or processes; None: one per processor.
        output: JSON lines file for the rows. Rows of an existing file are not computed again,
            except failed ones.
        at: moment of the ledgers, as of `Recording.ledger`.
        valid_prefix: for recordings given by path, as of `Recording.open`.
        options: of the heaps, as of `Recording.ledger`.
        progress: as of `Recording.ledger`; the steps are rows.

    Returns:
        The rows, by recording and table in the order given.

    Raises:
        InvalidError: an argument is not allowed, a table is unknown, or the output file is
            another sweep's.
        StateError: another sweep writes to the output file.
        SweepInterrupted: Ctrl-C; it and the file have the finished rows.
        SpanwiseError, OSError: no recording, or no table, could be opened; or the system refused
            to write.
    """
    plan = make_plan(recordings, tables, at, valid_prefix, options)
    with Signals([signal.SIGINT]) as signals:
        engine = make_engine(executor, workers, plan.opened)
        session = _Session(plan, engine, output)
        try:
            with (
                signals.heard(),
                _as_files(plan, engine),
                progress_bar(progress, session.total, "sweep", "rows") as step,
            ):
                session.run(step)
        except KeyboardInterrupt:
            raise SweepInterrupted(session.result()) from None
        finally:
            try:
                engine.close()
            finally:
                session.close()
    return session.result()


class _Session:
    """A session: the rows of earlier sessions, and those that it adds."""

    def __init__(self, plan: Plan, engine: Engine, output: str | os.PathLike[str] | None) -> None:
        self._plan = plan
        self._engine = engine
        try:
            self._store = RowStore(output, plan.header(engine.name), SWEEP, key)
        except BaseException:
            engine.close()
            raise
        old = latest(self._store.before)
        wanted = {(r["sha256"], t["hash"]) for r in plan.recordings for t in plan.tables}
        kept = [r for r in old if r["error"] is None and content(r) in wanted]
        self._store.keep(map(self._named, kept))
        self._done = {content(row) for row in kept}
        self._failed = plan.failed_rows()
        self.total = len(wanted) - len(self._done) + len(self._failed)

    def _named(self, row: Row) -> Row:
        """Return an old row with the current names of recording and table."""
        recordings = {one["sha256"]: one["name"] for one in self._plan.recordings}
        tables = {one["hash"]: one["name"] for one in self._plan.tables}
        sha256, table = content(row)
        return {**row, "recording": recordings[sha256], "table": tables[table]}

    def run(self, progress: Step) -> None:
        """Run the remaining tasks."""

        def deliver(rows: Sequence[Row]) -> None:
            self._store.add(rows, progress)

        if self._failed:
            deliver(self._failed)
        tasks = self._plan.tasks(self._done, self._engine.width)
        Dispatcher(self._engine, tasks, deliver).run()

    def result(self) -> Sweep:
        """Return the rows in the order of the plan."""
        notes = [*self._plan.notes, *self._store.notes]
        if self._done:
            count = _format.plural(len(self._done), "row")
            notes.append(f"{count} reused")
        names = [one["name"] for one in self._plan.recordings]
        tables = [one["name"] for one in self._plan.tables]
        order = {name: i for i, name in enumerate([*names, *self._plan.bad["recordings"]])}
        inner = {name: i for i, name in enumerate([*tables, *self._plan.bad["tables"]])}
        rows = sorted(
            self._store.rows.values(),
            key=lambda row: (order[row["recording"]], inner[row["table"]]),
        )
        return Sweep(rows, self._plan.tables, path=self._store.path, notes=notes)

    def close(self) -> None:
        """Close the file."""
        self._store.close()


@contextmanager
def _as_files(plan: Plan, engine: Engine) -> Iterator[None]:
    """Write recordings in memory to files, for workers in other processes."""
    inside = [one for one in plan.recordings if one["path"] is None]
    if not engine.remote or not inside:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="spanwise-sweep-") as folder:
        for number, entry in enumerate(inside):
            path = Path(folder) / f"{number}.swt"
            sources.write_ops(path, iter([np.asarray(plan.opened[entry["sha256"]].ops)]))
            entry["path"], entry["file_sha256"] = str(path), file_sha256(str(path))
        yield
