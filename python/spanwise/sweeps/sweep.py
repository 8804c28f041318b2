# SPDX-License-Identifier: Apache-2.0
"""Compute ledgers of many recordings under many tables, on any executor (docs/design/sweep.md).

Recordings and tables that cannot be opened are part of the plan and become failed rows.
"""

from __future__ import annotations

import glob
import os
import signal
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spanwise import _format, _lib, errors
from spanwise.heap.options import HeapOptions, as_options
from spanwise.recordings import sources
from spanwise.recordings.recording import Recording
from spanwise.recordings.sources import ArraySource, FileSource
from spanwise.results.jobs import Progress, Signals, progress_bar
from spanwise.sweeps.result import Sweep
from spanwise.sweeps.row_file import Row, RowStore, header_of
from spanwise.sweeps.tasks import (
    SWEEP,
    Dispatcher,
    Engine,
    Task,
    describe,
    file_sha256,
    make_engine,
    ops_sha256,
    table_spec,
)
from spanwise.tables.table import SizeClassTable, as_table


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
    executor: Executor | None = None,
    workers: int | None = None,
    output: str | os.PathLike[str] | None = None,
    at: str | float = "peak",
    valid_prefix: bool = False,
    options: HeapOptions | None = None,
    progress: Progress = None,
) -> Sweep:
    """Compute the ledgers of recordings under tables, many at a time.

    Several passes over recordings run at once. A failure (a damaged recording, a dead worker)
    becomes a failed row; the rest goes on.

    Args:
        recordings: a `Recording`, a path, or an iterable of them.
        tables: a `SizeClassTable`, a name, or an iterable of them.
        executor: any `concurrent.futures.Executor`, e.g. `client.get_executor()` of a Dask cluster;
            None: threads, since the work releases the GIL. Other processes get recordings by path
            and check the hash of the file.
        workers: number of threads; None: one per processor.
        output: JSON lines file for the rows, written as they finish; an earlier one is replaced.
        at: moment of the ledgers, as in `Recording.ledger`.
        valid_prefix: for recordings given by path, as in `Recording.open`.
        options: of the heaps, as in `Recording.ledger`.
        progress: as in `Recording.ledger`; the steps are rows.

    Returns:
        The rows, by recording and table in the order given.

    Raises:
        InvalidError: an argument is not allowed, a table is unknown, or the output is a file of
            another kind.
        SweepInterrupted: Ctrl-C; it and the file have the finished rows.
        SpanwiseError, OSError: no recording, or no table, could be opened; or the system refused
            to write.
    """
    plan = make_plan(recordings, tables, at, valid_prefix, options)
    failed = plan.failed_rows()
    total = len(plan.recordings) * len(plan.tables) + len(failed)
    with Signals([signal.SIGINT]) as signals:
        engine = make_engine(executor, workers, plan.opened)
        with ExitStack() as cleanup:
            cleanup.callback(engine.close)
            store = RowStore(output, SWEEP, plan.header(engine.name))
            cleanup.callback(store.close)
            try:
                with (
                    signals.heard(),
                    _as_files(plan, engine),
                    progress_bar(progress, total, "sweep", "rows") as step,
                ):
                    if failed:
                        store.add(failed, step)
                    Dispatcher(engine, plan.tasks(), lambda rows: store.add(rows, step)).run()
            except KeyboardInterrupt:
                raise SweepInterrupted(_result(plan, store)) from None
    return _result(plan, store)


def _result(plan: Plan, store: RowStore) -> Sweep:
    """Return the rows in the order of the plan."""
    order = {name: i for i, name in enumerate(_names(plan.recordings, plan.bad["recordings"]))}
    inner = {name: i for i, name in enumerate(_names(plan.tables, plan.bad["tables"]))}
    rows = sorted(store.rows, key=lambda row: (order[row["recording"]], inner[row["table"]]))
    return Sweep(rows, plan.tables, path=store.path, notes=plan.notes)


def _names(opened: list[dict[str, Any]], bad: dict[str, str]) -> list[str]:
    return [*(one["name"] for one in opened), *bad]


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


# --- the plan -------------------------------------------------------------------------------------


@dataclass
class Plan:
    """The recordings and tables of a sweep.

    Attributes:
        recordings: name, path, sha256, valid_prefix, events of each; path None: in memory.
        bad: names and errors of recordings and tables that could not be opened.
    """

    at: str | float  # moment of the ledgers
    options: dict[str, Any]  # of the heaps: fields of `HeapOptions`
    recordings: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)  # specs as tasks have them
    opened: dict[str, Recording] = field(default_factory=dict)  # the recordings by sha256
    bad: dict[str, dict[str, str]] = field(default_factory=lambda: {"recordings": {}, "tables": {}})
    notes: list[str] = field(default_factory=list)  # what was omitted and why

    def header(self, engine: str) -> dict[str, Any]:
        """Return the header of the file."""
        return header_of(
            executor=engine,
            at=self.at,
            options=self.options,
            recordings=[dict(one) for one in self.recordings],
            tables=self.tables,
        )

    def failed_rows(self) -> list[Row]:
        """Return failed rows for the recordings and tables that could not be opened."""
        bad, none = self.bad["tables"], {"hash": None, "classes": ()}
        return [
            self._task({"name": name, "sha256": None}, table).row(error=error)
            for name, error in self.bad["recordings"].items()
            for table in self.tables
        ] + [
            self._task(recording, {**none, "name": name}).row(error=error)
            for recording in self.recordings
            for name, error in bad.items()
        ]

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks."""
        for recording in self.recordings:
            for table in self.tables:
                yield self._task(recording, table)

    def _task(self, recording: dict[str, Any], table: dict[str, Any]) -> Task:
        return Task(_lib.version(), recording, self.at, self.options, table)


def make_plan(
    recordings: Any, tables: Any, at: str | float, valid_prefix: bool, options: HeapOptions | None
) -> Plan:
    """Open and hash all recordings and tables."""
    plan = Plan(_moment(at), as_options(options).to_dict())
    first_error: Exception | None = None
    for one in _each(tables, (str, SizeClassTable)):
        error = _add_table(plan, one)
        first_error = first_error or error
    if not plan.tables:
        raise first_error or errors.InvalidError("no table to sweep; give at least one")
    for one in _each(recordings, (str, os.PathLike, Recording)):
        error = _add_recording(plan, one, valid_prefix, at)
        first_error = first_error or error
    if not plan.recordings:
        raise first_error or errors.InvalidError("no recording to sweep; give at least one")
    return plan


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _moment(at: str | float) -> str | float:
    """Check a moment and return it for JSON."""
    at = _plain(at)
    Recording.from_ops(np.empty(0, _lib.OPS_DTYPE))._moment(at)
    return at


def _each(value: Any, kinds: tuple[type, ...]) -> Iterable[Any]:
    return [value] if isinstance(value, kinds) else value


def _add_table(plan: Plan, given: SizeClassTable | str) -> Exception | None:
    """Add a table. A missing or wrong file is part of the plan; an unknown name raises."""
    try:
        table = as_table(given)
    except (errors.InvalidError, OSError) as error:
        if not str(given).endswith(".json"):
            raise
        plan.bad["tables"][str(given)] = describe(error)
        return error
    spec = table_spec(table)
    same = next((one for one in plan.tables if one["hash"] == spec["hash"]), None)
    if same is not None:
        if spec["name"] != same["name"]:
            plan.notes.append(f"{spec['name']} is the same table as {same['name']}: omitted")
        return None
    plan.tables.append(spec)
    return None


def _add_recording(plan: Plan, given: Any, valid_prefix: bool, at: str | float) -> Exception | None:
    """Add a recording. A missing, damaged or too short file is part of the plan."""
    try:
        known = _describe_recording(given, valid_prefix)
        known[0]._check_moment(at)
    except (errors.SpanwiseError, OSError) as error:
        name = given.name if isinstance(given, Recording) else os.fspath(given)
        plan.bad["recordings"][name] = describe(error)
        return error
    recording, entry = known
    same = next((one for one in plan.recordings if one["sha256"] == entry["sha256"]), None)
    if same is not None:
        if entry["path"] != same["path"]:
            plan.notes.append(f"{entry['name']} is the same recording as {same['name']}: omitted")
        return None
    if any(one["name"] == entry["name"] for one in plan.recordings):
        entry["name"] = entry["path"] or f"{entry['name']} {len(plan.recordings) + 1}"
    plan.recordings.append(entry)
    plan.opened[entry["sha256"]] = recording
    return None


def _describe_recording(given: Any, valid_prefix: bool) -> tuple[Recording, dict[str, Any]]:
    if isinstance(given, Recording):
        recording = given
    elif isinstance(given, str | os.PathLike):
        recording = Recording.open(given, valid_prefix)
    else:
        raise TypeError(f"a recording must be a Recording or a path, not {type(given).__name__}")
    entry: dict[str, Any] = {"name": recording.name, "path": None, "valid_prefix": False}
    source = recording.source
    if isinstance(source, FileSource):
        entry["path"] = str(Path(source.path).absolute())
        entry["valid_prefix"] = source.valid_prefix
        entry["sha256"] = file_sha256(entry["path"])
    else:
        assert isinstance(source, ArraySource)
        entry["sha256"] = ops_sha256(source.ops)
    entry["events"] = recording.info["ops"] if entry["path"] else len(recording)
    return recording, entry


def expand(words: Iterable[str]) -> list[str]:
    """Expand glob patterns such as `tables/*.json` in a list of names."""
    names: list[str] = []
    for word in words:
        if glob.has_magic(word) and not Path(word).exists():
            found = sorted(glob.glob(word))  # noqa: PTH207  the pattern may be absolute
            if not found:
                raise errors.InvalidError(f"{word}: no file matches")
            names += found
        else:
            names.append(word)
    return names
