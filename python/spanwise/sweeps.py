# SPDX-License-Identifier: Apache-2.0
"""Sweeps: ledgers of many recordings under many tables, on any executor (docs/design/sweep.md)."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _sweep_file, _trace, errors, plots
from spanwise._parts import PARTS
from spanwise._sweep_plan import Plan, make_plan
from spanwise._sweep_pool import Dispatcher, Engine, make_engine
from spanwise._sweep_task import ROW_FIELDS, VALUE_FIELDS, Row, file_sha256, spec_table
from spanwise.sizeclass import SizeClassTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEXTS = ("recording", "recording_sha256", "table", "worker", "error")
_FLOATS = ("seconds", "mean_held_over_requested")
_SHOWN = 20


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C in a sweep.

    Attributes:
        result: the rows that were done.
    """

    def __init__(self, result: Sweep) -> None:
        super().__init__(f"interrupted after {_format.plural(len(result), 'row')}")
        self.result = result


class Sweep(Sequence[Row]):
    """Rows of a sweep: one for each recording and table, in the order given.

    A row is a dictionary: recording, recording_sha256, table, table_hash (hexadecimal), classes,
    at, the parts of the ledger in bytes (requested_bytes to free_page_bytes), held_bytes,
    waste_bytes, live_objects, spans, time_ns, and of the whole run events, failed, skipped,
    peak_requested_bytes, peak_held_bytes, held_at_peak, mean_held_over_requested; seconds of work,
    worker (host and process), error. In a failed row error is a line of text, the values are None.

    Attributes:
        path: the file with the rows; None: there is none.
        notes: what a person should know: a line that was cut, a worker that died, what was left
            out.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        specs: Iterable[dict[str, Any]],
        *,
        path: str | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        self._rows = list(rows)
        self._specs = {spec["hash"]: spec for spec in specs}
        self.path = path
        self.notes = tuple(notes)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Sweep:
        """The rows of a sweep's file, also of one that was interrupted.

        Raises:
            InvalidError: it is no such file; the line is named.
            OSError: it cannot be read.
        """
        found = _sweep_file.read(path)
        specs = [spec for header in found.headers for spec in header["tables"]]
        return cls(_latest(found.rows), specs, path=os.fspath(path), notes=found.notes)

    # --- rows ---

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def failures(self) -> list[Row]:
        """The failed rows."""
        return [row for row in self if row["error"] is not None]

    @property
    def array(self) -> NDArray[np.void]:
        """The rows as a structured array of shape (rows,).

        Its columns are the fields of a row, and `ok`: false in failed rows, where integers are 0
        and floats NaN. table_hash is a 64-bit integer, `at` text.
        """
        texts = {name: [str(row[name] or "") for row in self] for name in (*_TEXTS, "at")}
        types: list[tuple[str, Any]] = [("ok", "?")]
        for name in ROW_FIELDS:
            if name in texts:
                width = max((len(text) for text in texts[name]), default=1)
                types.append((name, f"U{max(width, 1)}"))
            else:
                kind = "f8" if name in _FLOATS else "u8" if name == "table_hash" else "i8"
                types.append((name, kind))
        rows = np.zeros(len(self), np.dtype(types))
        rows["ok"] = [row["error"] is None for row in self]
        for name in ROW_FIELDS:
            if name in texts:
                rows[name] = texts[name]
            elif name == "table_hash":
                rows[name] = [int(row[name] or "0", 16) for row in self]
            else:
                empty = np.nan if name in _FLOATS else 0
                rows[name] = [empty if row[name] is None else row[name] for row in self]
        return rows

    def to_pandas(self) -> Any:
        """The rows as a pandas.DataFrame.

        Raises:
            UnsupportedError: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise errors.UnsupportedError(
                "pandas is not installed; pip install pandas, or take .array"
            ) from None
        return pandas.DataFrame(self._rows, columns=list(ROW_FIELDS))

    # --- answers ---

    def ranking(
        self, by: str = "held_bytes", *, recording: str | None = None
    ) -> list[tuple[str, int | float]]:
        """Tables from least to most of a field, summed over recordings.

        Args:
            by: a field of numbers, e.g. held_bytes, waste_bytes, roundup_bytes, peak_held_bytes.
            recording: name of one; None: all of them that have a row without an error. A table
                that failed with one of these, or refused more allocations than another (with a
                limit), is left out.

        Returns:
            Name and value of each table.

        Raises:
            InvalidError: there is no such field or recording.
        """
        return [(self._specs_name(key), value) for key, value in self._totals(by, recording)]

    def best(self, by: str = "held_bytes", *, recording: str | None = None) -> SizeClassTable:
        """The table with the least of a field; of equal ones the first. Arguments as `ranking`.

        Raises:
            StateError: no table has a row for every recording.
        """
        totals = self._totals(by, recording)
        if not totals:
            raise errors.StateError("no table has a row without an error for every recording")
        return spec_table(self._specs[totals[0][0]])

    def _specs_name(self, key: str) -> str:
        return str(self._specs[key]["name"])

    def _totals(self, by: str, recording: str | None) -> list[tuple[str, int | float]]:
        if by not in VALUE_FIELDS and by != "seconds":
            known = ", ".join((*VALUE_FIELDS, "seconds"))
            raise errors.InvalidError(f"field {by!r} is unknown; use one of {known}")
        if recording is not None and all(row["recording"] != recording for row in self):
            raise errors.InvalidError(f"recording {recording!r} is not in this sweep")
        fine = [r for r in self if r["error"] is None and recording in (None, r["recording"])]
        least: dict[str, int] = {}  # refused allocations; who refuses more holds less, no merit
        for row in fine:
            sha256 = row["recording_sha256"]
            least[sha256] = min(row["failed"], least.get(sha256, row["failed"]))
        found: dict[str, dict[str, int | float]] = {}
        for row in fine:
            sha256 = row["recording_sha256"]
            if row["failed"] == least[sha256]:
                found.setdefault(row["table_hash"], {})[sha256] = row[by] or 0
        wanted = set(least)
        whole = [(key, sum(v.values())) for key, v in found.items() if len(v) == len(wanted)]
        return sorted(whole, key=lambda one: one[1])

    def plot(self, ax: Axes | None = None, *, recording: str | None = None) -> Axes:
        """Draws the best tables as stacked bars of their parts, at most 20.

        Args:
            ax: where to draw; None makes a new figure.
            recording: name of one; None: the sum over all.

        Returns:
            The matplotlib Axes.
        """
        bars = [self._bar(key, recording) for key, _ in self._totals("held_bytes", recording)]
        return plots.ledgers(cast("list[Any]", bars[:_SHOWN]), ax)

    def _bar(self, key: str, recording: str | None) -> SimpleNamespace:
        """As much of a ledger as `plots.ledgers` needs."""
        rows = [r for r in self if r["table_hash"] == key and r["error"] is None]
        rows = [r for r in rows if recording is None or r["recording"] == recording]
        names = (*PARTS, "held_bytes", "waste_bytes")
        sums = {name: sum(row[name] for row in rows) for name in names}
        source = rows[0]["recording"] if len(rows) == 1 else f"{len(rows)} recordings"
        return SimpleNamespace(
            **sums, table=self._specs_name(key), source=source, at=str(rows[0]["at"])
        )

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        totals = self._totals("held_bytes", None)
        return {
            "best": self._specs_name(totals[0][0]) if totals else None,
            "file": self.path,
            "notes": list(self.notes),
            "failures": len(self.failures),
            "rows": self._rows,
        }

    @property
    def head(self) -> tuple[str, ...]:
        """Titles of `rows`."""
        return ("table", "held", "round-up", "tail", "free slots", "cached", "waste", "of held")

    def rows(self) -> list[tuple[str, ...]]:
        """The tables as text, least held first, summed over recordings."""
        lines = []
        for key, _ in self._totals("held_bytes", None):
            bar = self._bar(key, None)
            names = ("held", "roundup", "tail", "free_slot", "cached", "waste")
            cells = [_format.number(getattr(bar, f"{name}_bytes")) for name in names]
            lines.append((bar.table, *cells, _format.share(bar.waste_bytes, bar.held_bytes)))
        return lines

    @property
    def title(self) -> str:
        """One line: what was swept."""
        recordings = {row["recording"] for row in self}
        tables = {row["table"] for row in self}
        when = {row["at"] for row in self}
        text = f"sweep of {_format.plural(len(recordings), 'recording')} under"
        text += f" {_format.plural(len(tables), 'table')}"
        text += f" at {when.pop()}" if len(when) == 1 else ""
        bad = len(self.failures)
        return text + (f", {_format.plural(bad, 'row')} failed" if bad else "")

    def __str__(self) -> str:
        rows = self.rows()
        lines = [f"{self.title}, bytes", _format.table(rows[:_SHOWN], self.head, indent="  ")]
        if len(rows) > _SHOWN:
            lines.append(f"  ... {_format.plural(len(rows) - _SHOWN, 'table')} more")
        for row in self.failures[:_SHOWN]:
            lines.append(f"  failed: {row['recording']} under {row['table']}: {row['error']}")
        if len(self.failures) > _SHOWN:
            lines.append(f"  ... {_format.plural(len(self.failures) - _SHOWN, 'failure')} more")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _format.html_table(self.rows(), self.head, f"{self.title}, bytes")


def sweep(
    recordings: Any,
    tables: Any,
    *,
    executor: Executor | str | None = None,
    workers: int | None = None,
    output: str | os.PathLike[str] | None = None,
    at: str | float = "peak",
    valid_prefix: bool = False,
    progress: bool | Callable[[int], object] | None = None,
    **knobs: Any,
) -> Sweep:
    """Ledgers of recordings under tables, many at a time.

    Each recording is decoded once for several tables, and several such passes run at once. What
    fails (a damaged recording, a worker that dies) is a failed row; the rest goes on.

    Args:
        recordings: a `Recording`, a path, or any number of them.
        tables: a `SizeClassTable`, a name, or any number of them.
        executor: "threads" (also None; the work is done outside of the GIL), "processes", or any
            `concurrent.futures.Executor`, e.g. `client.get_executor()` of a Dask cluster. Other
            processes get recordings by path and check the hash of what they find there.
        workers: how many threads or processes; None: as many as there are processors.
        output: JSON lines file to which rows go as they come. If it is there, its rows are not
            computed again; failed ones are.
        at: moment of the ledgers, as of `Recording.ledger`.
        valid_prefix: of recordings given by path, as of `Recording.open`.
        progress: called with the number of rows done since its last call; True: a bar; None: a
            bar on a terminal or in a notebook, if it takes more than a second.
        knobs: placement, decay_ms, batch, limit as of `Recording.ledger`.

    Returns:
        The rows, by recording and table in the order given.

    Raises:
        InvalidError: an argument that is not allowed, an unknown table, an output file that is
            another sweep's.
        StateError: another sweep writes to the output file.
        SweepInterrupted: Ctrl-C; it has the rows that were done, and so has the file.
        SpanwiseError, OSError: none of the recordings, or of the tables, could be had; or the
            system refused to write.
    """
    plan = make_plan(recordings, tables, at, valid_prefix, knobs)
    engine = make_engine(executor, workers, plan.opened)
    session = _Session(plan, engine, output)
    try:
        with _as_files(plan, engine), _bar(progress, session.total) as tell:
            session.run(tell)
    except KeyboardInterrupt:
        raise SweepInterrupted(session.result()) from None
    finally:
        try:
            engine.close()
        finally:
            session.close()
    return session.result()


class _Session:
    """One run of a sweep: the rows that are there, and those that come."""

    def __init__(self, plan: Plan, engine: Engine, output: str | os.PathLike[str] | None) -> None:
        self._plan = plan
        self._engine = engine
        self._file = None
        try:
            if output is not None:
                self._file = _sweep_file.RowFile(output, plan.header(engine.name))
        except BaseException:
            engine.close()
            raise
        old = _latest(self._file.before.rows) if self._file else []
        wanted = {(r["sha256"], t["hash"]) for r in plan.recordings for t in plan.tables}
        kept = [r for r in old if r["error"] is None and _content(r) in wanted]
        self._rows = {_key(row): self._named(row) for row in kept}
        self._done = {_content(row) for row in kept}
        self._failed = plan.failed_rows()
        self._lost = 0
        self.total = len(wanted) - len(self._done) + len(self._failed)

    def _named(self, row: Row) -> Row:
        """An old row, with the names that recording and table have now."""
        recordings = {one["sha256"]: one["name"] for one in self._plan.recordings}
        tables = {one["hash"]: one["name"] for one in self._plan.tables}
        sha256, table = _content(row)
        return {**row, "recording": recordings[sha256], "table": tables[table]}

    def run(self, tell: Callable[[int], object]) -> None:
        """All that is not done."""

        def deliver(rows: Sequence[Row]) -> None:
            if self._file is not None:
                self._file.append(rows)
            self._rows.update((_key(row), row) for row in rows)
            tell(len(rows))

        if self._failed:
            deliver(self._failed)
        tasks = self._plan.tasks(self._done, self._engine.width)
        dispatcher = Dispatcher(self._engine, tasks, deliver)
        try:
            dispatcher.run()
        finally:
            self._lost = dispatcher.lost

    def result(self) -> Sweep:
        """The rows in the order of the plan."""
        notes = [*self._plan.notes, *(self._file.before.notes if self._file else ())]
        if self._done:
            count = _format.plural(len(self._done), "row")
            notes.append(f"{count} were there and not computed again")
        if self._lost:
            notes.append(
                f"{_format.plural(self._lost, 'task')} lost with their worker; done again, one"
                " table at a time"
            )
        names = [one["name"] for one in self._plan.recordings]
        tables = [one["name"] for one in self._plan.tables]
        order = {name: i for i, name in enumerate([*names, *self._plan.bad["recordings"]])}
        inner = {name: i for i, name in enumerate([*tables, *self._plan.bad["tables"]])}
        rows = sorted(
            self._rows.values(), key=lambda row: (order[row["recording"]], inner[row["table"]])
        )
        path = self._file.path if self._file else None
        return Sweep(rows, self._plan.tables, path=path, notes=notes)

    def close(self) -> None:
        """Ends the file."""
        if self._file is not None:
            self._file.close()


def _content(row: Row) -> tuple[Any, Any]:
    """What a row is about, whatever it is called."""
    return row["recording_sha256"], row["table_hash"]


def _key(row: Row) -> tuple[Any, ...]:
    """Names stand for what could not be opened or made."""
    return (
        row["recording_sha256"] or ("name", row["recording"]),
        row["table_hash"] or ("name", row["table"]),
    )


def _latest(rows: Iterable[Row]) -> list[Row]:
    """Of rows about the same the last, in the place of the first."""
    found: dict[Any, Row] = {}
    for row in rows:
        found[_key(row)] = row
    return list(found.values())


@contextmanager
def _as_files(plan: Plan, engine: Engine) -> Iterator[None]:
    """Recordings in memory, as files for workers of other processes."""
    inside = [one for one in plan.recordings if one["path"] is None]
    if not engine.remote or not inside:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="spanwise-sweep-") as folder:
        for number, entry in enumerate(inside):
            path = Path(folder) / f"{number}.swt"
            _trace.write_ops(path, iter([plan.opened[entry["sha256"]].ops]))
            entry["path"], entry["file_sha256"] = str(path), file_sha256(str(path))
        yield


@contextmanager
def _bar(
    progress: bool | Callable[[int], object] | None, total: int
) -> Iterator[Callable[[int], object]]:
    if callable(progress):
        yield progress
        return
    notebook = "ipykernel" in sys.modules
    wanted = (notebook or sys.stderr.isatty()) if progress is None else progress
    if not wanted:
        yield lambda _count: None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm's about widgets that are not installed
        module = importlib.import_module("tqdm.auto" if notebook else "tqdm")
    delay = 0 if progress else 1
    with module.tqdm(total=total, desc="sweep", unit=" rows", delay=delay, file=sys.stderr) as bar:
        yield bar.update
