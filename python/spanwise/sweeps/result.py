# SPDX-License-Identifier: Apache-2.0
"""The rows of a sweep: rankings, the best table, other forms."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format, errors
from spanwise.ledger.parts import PARTS
from spanwise.results.rows import Result, Rows, Tabular, as_rows, draw
from spanwise.sweeps import row_file
from spanwise.sweeps.row_file import Row
from spanwise.sweeps.tasks import ROW_FIELDS, SWEEP, VALUE_FIELDS, spec_table
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEXTS = ("recording", "recording_sha256", "table", "worker", "error")
_FLOATS = ("seconds", "mean_held_over_requested")
_SHOWN = 20


class Sweep(Sequence[Row], Result, Tabular):
    """The rows of a sweep: one per recording and table, in the order given.

    A row is a dictionary: recording, recording_sha256, table, table_hash (hexadecimal), classes,
    at, the parts of the ledger in bytes (requested_bytes to free_page_bytes), held_bytes,
    resident_bytes, waste_bytes, live_objects, spans, time_ns, and of the whole run events, failed,
    skipped, peak_requested_bytes, peak_held_bytes, peak_resident_bytes, held_at_peak_bytes,
    mean_held_over_requested; seconds of work, worker (host and process), error. In a failed row
    error is a line of text and the values are None.

    Attributes:
        path: the file with the rows; None: there is none.
        notes: for the user, such as a truncated line, a dead worker or an omitted table.
        judged_by: the field that ranks by default.
    """

    judged_by = "peak_resident_bytes"

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
        """Read the file of a sweep, which may have been interrupted.

        Raises:
            InvalidError: it is not such a file; the message has the line.
            OSError: it cannot be read.
        """
        found = row_file.read(path, SWEEP)
        specs = found.header.get("tables", [])
        known = {spec["hash"] for spec in specs}
        for row in found.rows:
            if row["error"] is None and row["table_hash"] not in known:
                raise errors.InvalidError(
                    f"{os.fspath(path)}: its header lacks the table {row['table_hash']} of a row"
                )
        return cls(found.rows, specs, path=os.fspath(path), notes=found.notes)

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
    def array(self) -> Rows:
        """The rows as an array.

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
        return as_rows(rows)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas.DataFrame.

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
        self, by: str | None = None, *, recording: str | None = None
    ) -> list[tuple[str, int | float]]:
        """Return the tables in ascending order of a field, summed over recordings.

        Args:
            by: a numeric field, e.g. held_bytes, resident_bytes, roundup_bytes, peak_held_bytes;
                None: `judged_by`.
            recording: name of one; None: all that have a row without an error. A table
                that failed on one of these, or refused more allocations than another (with a
                limit), is omitted.

        Returns:
            Name and value of each table.

        Raises:
            InvalidError: there is no such field or recording.
        """
        return [(self._specs_name(key), value) for key, value in self._totals(by, recording)]

    def best(self, by: str | None = None, *, recording: str | None = None) -> SizeClassTable:
        """Return the first table with the least value of a field. Arguments as in `ranking`.

        Raises:
            StateError: no table has a row for every recording.
        """
        totals = self._totals(by, recording)
        if not totals:
            raise errors.StateError("no table has a row without an error for every recording")
        try:
            return spec_table(self._specs[totals[0][0]])
        except errors.InvalidError as error:
            raise errors.InvalidError(f"{self.path or 'sweep'}: a table of it: {error}") from None

    def _specs_name(self, key: str) -> str:
        return str(self._specs[key]["name"])

    def _totals(self, by: str | None, recording: str | None) -> list[tuple[str, int | float]]:
        by = self.judged_by if by is None else by
        if by not in VALUE_FIELDS and by != "seconds":
            known = ", ".join((*VALUE_FIELDS, "seconds"))
            raise errors.InvalidError(f"field {by!r} is unknown; use one of {known}")
        if recording is not None and all(row["recording"] != recording for row in self):
            raise errors.InvalidError(f"recording {recording!r} is not in this sweep")
        fine = [r for r in self if r["error"] is None and recording in (None, r["recording"])]
        least: dict[str, int] = {}  # a table that refuses more allocations holds less
        for row in fine:
            sha256 = row["recording_sha256"]
            least[sha256] = min(row["failed"], least.get(sha256, row["failed"]))
        found: dict[str, dict[str, int | float]] = {}
        for row in fine:
            sha256 = row["recording_sha256"]
            if row["failed"] == least[sha256]:
                found.setdefault(row["table_hash"], {})[sha256] = row[by] or 0
        whole = [(key, sum(v.values())) for key, v in found.items() if len(v) == len(least)]
        return sorted(whole, key=lambda one: one[1])

    def plot(self, ax: Axes | None = None, *, recording: str | None = None) -> Axes:
        """Draw the best tables, at most 20, as stacked bars of their parts.

        Args:
            ax: where to draw; None makes a new figure.
            recording: name of one; None: the sum over all.

        Returns:
            The matplotlib Axes.
        """
        bars = [self._bar(key, recording) for key, _ in self._totals(None, recording)]
        return draw("ledgers", bars[:_SHOWN], ax)

    def _bar(self, key: str, recording: str | None) -> SimpleNamespace:
        """Return the attributes of a ledger that `plots.ledgers` uses."""
        rows = [r for r in self if r["table_hash"] == key and r["error"] is None]
        rows = [r for r in rows if recording is None or r["recording"] == recording]
        names = (*PARTS, "held_bytes", "waste_bytes")
        sums = {name: sum(row[name] for row in rows) for name in names}
        for name in ("resident_bytes", "peak_resident_bytes"):  # None for an empty recording
            known = [row[name] for row in rows if row[name] is not None]
            sums[name] = sum(known) if len(known) == len(rows) else None
        source = rows[0]["recording"] if len(rows) == 1 else f"{len(rows)} recordings"
        table, at = self._specs_name(key), str(rows[0]["at"])
        return SimpleNamespace(**sums, table=table, source=source, at=at)

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        totals = self._totals(None, None)
        return {
            "best": self._specs_name(totals[0][0]) if totals else None,
            "file": self.path,
            "notes": list(self.notes),
            "failures": len(self.failures),
            "rows": self._rows,
        }

    @property
    def _text_head(self) -> tuple[str, ...]:
        of_held = ("round-up", "tail", "free slots", "cached", "waste", "of held")
        return ("table", "peak resident", "resident", "held", *of_held)

    def _text_rows(self) -> list[tuple[str, ...]]:
        """Return the tables as text, least resident first, summed over recordings."""
        lines = []
        for key, _ in self._totals(None, None):
            bar = self._bar(key, None)
            names = (
                *("peak_resident", "resident", "held"),
                *("roundup", "tail", "free_slot", "cached", "waste"),
            )
            sizes = [getattr(bar, f"{name}_bytes") for name in names]
            cells = ["unknown" if size is None else _format.number(size) for size in sizes]
            lines.append((bar.table, *cells, _format.share(bar.waste_bytes, bar.held_bytes)))
        return lines

    @property
    def title(self) -> str:
        """Recordings, tables, moment and failures on one line."""
        recordings = {row["recording"] for row in self}
        tables = {row["table"] for row in self}
        when = {row["at"] for row in self}
        text = f"sweep of {_format.plural(len(recordings), 'recording')} under"
        text += f" {_format.plural(len(tables), 'table')}"
        text += f" at {when.pop()}" if len(when) == 1 else ""
        bad = len(self.failures)
        return text + (f", {_format.plural(bad, 'row')} failed" if bad else "")

    def __str__(self) -> str:
        rows = self._text_rows()
        lines = [f"{self.title}, bytes", _format.table(rows[:_SHOWN], self._text_head, indent="  ")]
        if len(rows) > _SHOWN:
            lines.append(f"  ... {_format.plural(len(rows) - _SHOWN, 'table')} more")
        for row in self.failures[:_SHOWN]:
            lines.append(f"  failed: {row['recording']} under {row['table']}: {row['error']}")
        if len(self.failures) > _SHOWN:
            lines.append(f"  ... {_format.plural(len(self.failures) - _SHOWN, 'failure')} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        return _format.html_table(
            self._text_rows()[:_SHOWN], self._text_head, f"{self.title}, bytes"
        )
