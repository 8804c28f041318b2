# SPDX-License-Identifier: Apache-2.0
"""Summarize the runs of a benchmark: medians, intervals, savings."""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spanwise import _format, errors
from spanwise.measure.bench_cases import FITTED, PLAIN, SPANWISE
from spanwise.results.rows import Result, Rows, Tabular, draw, rows_of
from spanwise.sweeps import row_file
from spanwise.sweeps.row_file import COUNT, OBJECT, TEXT, RowKind, optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BenchRow = dict[str, Any]

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
BENCH = RowKind("bench", {"machine": TEXT, "allocators": OBJECT}, _TYPES)


def measured_on(header: BenchRow) -> str:
    """Return date, commit (or version) and machine from a header."""
    build = header.get("commit")
    made = f"commit {build}" if build else f"spanwise {header['versions']['spanwise']}"
    return ", ".join(filter(None, (header.get("started", "")[:10], made, header["machine"])))


_MEASURED = ("rss_bytes", "anonymous_bytes", "held_bytes", "cpu_ns", "elapsed_ns", "page_faults")


class BenchResult(Sequence[BenchRow], Result, Tabular):
    """Runs of programs with their inputs under allocators.

    A row is one run: program, input, case_hash, allocator, library_sha256, round; rss_bytes (peak
    of the largest process), anonymous_bytes (its anonymous part, sampled), held_bytes (peak of our
    heap), outside_bytes (resident outside our heap at the end), predicted_bytes (peak resident
    bytes of the simulated heap), cpu_ns, elapsed_ns, page_faults; output_sha256 (of stdout),
    worker (host and process), error (a line of text in a failed row). Unknown values are None.

    Attributes:
        path: the file with the rows; None: there is none.
        notes: for the user, such as a missing allocator or a truncated line.
        measured: date, commit and machine; "": unknown.
    """

    def __init__(
        self,
        rows: Iterable[BenchRow],
        *,
        path: str | None = None,
        notes: Iterable[str] = (),
        measured: str = "",
    ) -> None:
        self._rows = list(rows)
        self.path = path
        self.notes = tuple(notes)
        self.measured = measured

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> BenchResult:
        """Read the file of a benchmark, which may have been interrupted.

        Raises:
            InvalidError: it is not such a file; the message has the line.
            OSError: it cannot be read.
        """
        found = row_file.read(path, BENCH)
        return cls(
            found.rows,
            path=os.fspath(path),
            notes=found.notes,
            measured=measured_on(found.header) if found.header else "",
        )

    # --- rows ---

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def failures(self) -> list[BenchRow]:
        """The failed rows."""
        return [row for row in self if row["error"] is not None]

    @property
    def cases(self) -> list[tuple[str, str]]:
        """Program and input of each case, in the order of the rows."""
        return list(dict.fromkeys((row["program"], row["input"]) for row in self))

    @property
    def allocators(self) -> list[str]:
        """Their names, in the order of the rows."""
        return list(dict.fromkeys(row["allocator"] for row in self))

    def values(self, program: str, input: str, allocator: str, field: str) -> dict[int, float]:
        """Return a field of a case's runs under an allocator, by round; without failed runs.

        Raises:
            InvalidError: there is no such field of numbers.
        """
        if field not in VALUE_FIELDS:
            raise errors.InvalidError(f"field {field!r}: must be one of {', '.join(VALUE_FIELDS)}")
        wanted = (program, input, allocator)
        return {
            row["round"]: row[field]
            for row in self
            if (row["program"], row["input"], row["allocator"]) == wanted
            and row["error"] is None
            and row[field] is not None
        }

    @property
    def array(self) -> Rows:
        """One row per case and allocator: medians, and the ends of their 90 % intervals.

        Columns: program, input, allocator, runs, failed; each measured field X_bytes, X_ns or
        page_faults, and its ends with _low and _high before the last word (page_low_faults);
        predicted_bytes (of the heap) and predicted_rss_bytes (that and the bytes outside). NaN:
        unknown.
        """
        counts = Counter((row["program"], row["input"], row["allocator"]) for row in self)
        keys = [(*case, one) for case in self.cases for one in self.allocators]
        return rows_of([self._summary(key, counts[key]) for key in keys if counts[key]])

    def _summary(self, key: tuple[str, str, str], count: int) -> BenchRow:
        runs = len(self.values(*key, "rss_bytes"))
        found: BenchRow = dict(zip(("program", "input", "allocator"), key, strict=True))
        found |= {"runs": runs, "failed": count - runs}
        for field in _MEASURED:
            name, _, unit = field.rpartition("_")
            values = self.values(*key, field).values()
            inside = interval_of(values) if values else Interval(*4 * [float("nan")])
            found[field] = inside.median
            found[f"{name}_low_{unit}"], found[f"{name}_high_{unit}"] = inside.low, inside.high
        found["predicted_bytes"] = self._predicted(*key)
        found["predicted_rss_bytes"] = self._predicted_rss(*key)
        return found

    def _predicted(self, program: str, input: str, allocator: str) -> float:
        values = self.values(program, input, allocator, "predicted_bytes")
        return next(iter(values.values()), float("nan"))

    def _predicted_rss(self, program: str, input: str, allocator: str) -> float:
        """Return the predicted heap plus the bytes outside it under the installed malloc."""
        outside = self.values(program, input, SPANWISE, "outside_bytes").values()
        if not outside:
            return float("nan")
        return interval_of(outside).median + self._predicted(program, input, allocator)

    # --- answers ---

    def saving(
        self,
        program: str,
        input: str,
        field: str = "rss_bytes",
        *,
        allocator: str = FITTED,
        stock: str = SPANWISE,
    ) -> Interval | None:
        """Return the saving of one allocator over another in percent, compared by round.

        Args:
            program: of the case.
            input: of the case.
            field: a numeric field of a row.
            allocator: the one that saves; a negative result is a loss.
            stock: the baseline.

        Returns:
            Median and interval, 90 % or more from five rounds on; None: no common round.
        """
        before = self.values(program, input, stock, field)
        after = self.values(program, input, allocator, field)
        shares = [
            100 * (before[i] - after[i]) / before[i] for i in before if i in after and before[i]
        ]
        return interval_of(shares) if shares else None

    def verdict(self) -> str:
        """Return the savings of spanwise over plain, and of fitted tables over c16, if measured."""
        sentences = (*self._plain_verdict(self.cases), self._fitted_verdict())
        return " ".join(f"{one[0].upper()}{one[1:]}." for one in sentences if one)

    def _plain_verdict(self, cases: Sequence[tuple[str, str]]) -> Iterator[str]:
        """Yield peak RSS and CPU time of spanwise, and of fitted tables, compared with plain."""
        for name, field in (("peak RSS", "rss_bytes"), ("CPU time", "cpu_ns")):
            parts = []
            for allocator in (SPANWISE, FITTED):
                found = [
                    self.saving(*case, field, allocator=allocator, stock=PLAIN) for case in cases
                ]
                savings = [one for one in found if one is not None]
                if savings:
                    parts.append(f"{allocator} {_change(savings, len(cases) > 1)}")
            if parts:
                yield f"{name} compared with plain: {', '.join(parts)}"

    def _fitted_verdict(self) -> str:
        savings = [self.saving(*case) for case in self.cases]
        medians = [one.median for one in savings if one is not None]
        if not medians:
            return ""
        middle = interval_of(medians)
        said = (
            f"Fitted tables save {middle.median:.1f} % of the peak RSS under c16 (median of"
            f" {_format.plural(len(medians), 'case')}"
        )
        worst = min(one.low for one in savings if one is not None)
        more = f"; {middle.low:.1f} to {middle.high:.1f} %" if len(medians) > 1 else ""
        loss = f"; the worst end of an interval is a loss of {-worst:.1f} %" if worst < 0 else ""
        return f"{said}{more}){loss}"

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """Return rows, summary and verdict as a dict for JSON."""
        return {
            "rows": self._rows,
            "summary": _plain(self.array.to_dicts()),
            "verdict": self.verdict(),
            "notes": list(self.notes),
            "measured": self.measured,
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the peak RSS of each case and allocator; return the Axes."""
        return draw("bench", self, ax)

    def text(self, width: int | None = None) -> str:
        """Return verdict, table and failures as text.

        Args:
            width: columns of a line of the table; in a narrower one only peak RSS and CPU time are
                shown. 0: no limit; None: those of the terminal.
        """
        limit = _format.screen_width() if width is None else width
        known = [_cells(row, 1) for row in self.array.to_dicts()]
        shown = [one for one in _COLUMNS if any(cells[one] != "-" for cells in known)]
        table = _format.table(self._text_rows(shown), (*_LABELS, *shown), left=2, width=0)
        if limit and max(map(len, table.split("\n"))) > limit:
            few = ("peak RSS", "CPU")
            table = _format.table(self._text_rows(few, 1), (*_LABELS, *few), left=2, width=limit)
            table += f"\n{', '.join(one for one in shown if one not in few)}: --wide or --json"
        failures = Counter(row["error"] for row in self.failures)
        lines = [
            *self._plain_verdict(self.cases),
            "medians, in parentheses intervals of 90 % (below five runs: least and most)",
            table,
            *self._case_lines(),
            self._fitted_verdict(),
            *(f"{_format.plural(n, 'run')} failed: {error}" for error, n in failures.items()),
        ]
        return "\n".join(filter(None, lines))

    def __str__(self) -> str:
        return self.text()

    def _text_rows(self, columns: Iterable[str], places: int = 3) -> list[Sequence[str]]:
        """Return a row per case and allocator, and a rule between cases; places: of times."""
        rows: list[Sequence[str]] = []
        last = ""
        for row in self.array.to_dicts():
            name = _called(row["program"], row["input"])
            if last and name != last:
                rows.append(())
            cells = _cells(row, places)
            label = "" if name == last else name
            rows.append((label, row["allocator"], *(cells[one] for one in columns)))
            last = name
        return rows

    def _case_lines(self) -> Iterator[str]:
        """Yield the savings per case; if there are several cases, also those over plain."""
        for case in self.cases:
            if self.saving(*case) is not None:
                yield self._saving_line(*case)
        if len(self.cases) > 1:
            for case in self.cases:
                for said in self._plain_verdict([case]):
                    yield f"{_called(*case)}: {said}"

    def _saving_line(self, program: str, input: str) -> str:
        found = self.saving(program, input)
        assert found is not None
        word = "saves" if found.median >= 0 else "loses"
        return (
            f"{_called(program, input)}: its fitted table {word} {abs(found.median):.2f} % of the"
            f" peak RSS under c16 ({found.low:.2f} to {found.high:.2f} % saved)"
        )

    def __repr__(self) -> str:
        return _format.clipped(str(self))


_LABELS = ("program, input", "allocator")
_COLUMNS = ("peak RSS", "anonymous", "held", "predicted RSS", "CPU", "elapsed")


def _cells(row: BenchRow, places: int) -> dict[str, str]:
    """Return the cells of _COLUMNS."""

    def between(name: str, unit: str) -> str:
        middle = row[f"{name}_{unit}"]
        if math.isnan(middle):
            return "-"
        ends = [row[f"{name}_{end}_{unit}"] for end in ("low", "high")]
        show = (
            _format.size if unit == "bytes" else lambda value: _format.seconds(round(value), places)
        )
        return _with_ends(*map(show, (middle, *ends)))

    predicted = row["predicted_rss_bytes"]
    return {
        "peak RSS": between("rss", "bytes"),
        "anonymous": between("anonymous", "bytes"),
        "held": between("held", "bytes"),
        "predicted RSS": "-" if math.isnan(predicted) else _format.size(predicted),
        "CPU": between("cpu", "ns"),
        "elapsed": between("elapsed", "ns"),
    }


def _called(program: str, input: str) -> str:
    return f"{program}, {input}" if input else program


def _change(savings: Sequence[Interval], counted: bool) -> str:
    """Describe a saving, or the median of several; an interval with 0 is "no difference"."""
    middle = interval_of(one.median for one in savings) if len(savings) > 1 else savings[0]
    low, high = middle.low, middle.high
    if low <= 0 <= high:
        said = "no difference"
    elif low > 0:
        said = f"saves {middle.median:.1f} %"
    else:
        said, low, high = f"costs {-middle.median:.1f} % more", -high, -low
    cases = f"; median of {_format.plural(len(savings), 'case')}" if counted else ""
    ends = f"{low:.1f} % to {high:.1f} %" if middle.sure else "one round, no interval"
    return f"{said} ({ends}{cases})"


def _with_ends(middle: str, low: str, high: str) -> str:
    """Return a median and its interval as text; a shared unit is printed once."""
    unit = f" {middle.rpartition(' ')[2]}"
    if low.endswith(unit) and high.endswith(unit):
        low, high = low.removesuffix(unit), high.removesuffix(unit)
    return f"{middle} ({low} .. {high})"


def _plain(rows: list[BenchRow]) -> list[BenchRow]:
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in row.items()
        }
        for row in rows
    ]


# --- intervals ------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """A median and its interval, in the unit of the values; `sure` is the probability, 0 to 1."""

    median: float
    low: float
    high: float
    sure: float


def interval_of(values: Iterable[float], least_sure: float = 0.9) -> Interval:
    """Return the shortest interval of order statistics with at least this confidence."""
    ordered = sorted(values)
    count, rank = len(ordered), 1
    while 2 * (rank + 1) <= count + 1 and _sure(count, rank + 1) >= least_sure:
        rank += 1
    middle = statistics.median(ordered)
    return Interval(middle, ordered[rank - 1], ordered[-rank], max(0.0, _sure(count, rank)))


def _sure(count: int, rank: int) -> float:
    below = sum(math.comb(count, i) for i in range(rank))
    return float(1 - 2 * below / 2**count)


__all__ = ["Interval", "interval_of"]
