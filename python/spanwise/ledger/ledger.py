# SPDX-License-Identifier: Apache-2.0
"""Ledgers: where the bytes of a heap are; and comparisons of ledgers under several tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise.ledger.parts import (
    OUTSIDE,
    PARTS,
    SUMS,
    Measures,
    RunStats,
    at_moment,
    common_moment,
    measures_json,
    measures_of,
)
from spanwise.results.rows import Result, Rows, Tabular, Value, as_rows, draw, rows_of
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LEDGER_CLASS_DTYPE = _lib.dtype_of("sw_ledger_class")
"""A row of `Ledger.classes`, as sw_ledger_class of include/spanwise/stats.h."""


@dataclass(frozen=True, repr=False, eq=False)
class Ledger(Result, Value, Tabular):
    """The bytes of a heap by part. The first ten fields add up to held_bytes exactly.

    `measures` has the usual ratios of fragmentation; `Comparison(ledgers)` sets several side by
    side.

    Ledgers compare and hash by all fields of the heap; the RSS of the process is ignored, because
    it varies between equal runs.

    Attributes:
        requested_bytes: requested sizes of live objects (slot bytes if the heap is not tracked).
        roundup_bytes: slot - requested, of live small objects.
        tail_bytes: ends of spans that are too short for another slot.
        free_slot_bytes: free slots in spans that no cache allocates from.
        cached_bytes: free slots in caches' current spans, and the empty spans and freed large
            objects that caches keep.
        metadata_bytes: span descriptors, bitmaps, page map, caches, tables of the heap.
        large_rounding_bytes: whole pages - requested, of live large objects.
        free_page_bytes: free pages that were not returned to the system.
        held_bytes: pages and metadata that the heap has from the system, by its own account.
        rss_bytes: resident bytes of the process, from the system; None: not a live heap.
        resident: the same ledger for resident bytes only: the bytes of each part in pages
            of the system that were written to (docs/design/inspect.md); its held_bytes is
            `resident_bytes`. `Heap.run` writes nothing unless it has touch="ends". In a live heap
            free slots that were never allocated count, too, once a class has filled four spans: its
            next ones are made resident whole. None: unknown.
        events: operations up to this moment, without ends of threads.
        live_objects: live objects; large_objects of them have their own pages.
        spans: spans of slots.
        largest_hole_bytes: longest run of free held pages; free_runs is the number of runs.
        returned_bytes: returned to the system so far.
        instrument_bytes: records of requested sizes in a tracked heap; not part of other numbers.
        pending_bytes: part of requested_bytes of a collected heap: objects freed since the cycle
            began, which its sweep will reclaim.
        unswept_bytes: likewise, unreachable objects that the sweep will reclaim; 0 until marking
            has ended.
        classes: one row per class (row 0: large objects). Columns: cls, size_bytes (of a slot),
            spans, span_bytes (of all of them), slots, live_objects; the parts requested_bytes,
            roundup_bytes, tail_bytes, free_slot_bytes, cached_bytes; occupancy (spans by tenths of
            live slots, and full ones).
        table: name of the size-class table.
        at: the moment: "peak", "peak-resident" (under this table, or "peak-resident under go"),
            "end", "now" or a time.
        time_ns: time of the recording at that moment. source: name of the program or recording,
        e.g. a file name. tracked: whether requested sizes are known. stats: counts of the whole
        run; None: nothing was run. parts: the ledgers that this one sums. remark: a caveat that is
        printed with the ledger; usually empty.
    """

    requested_bytes: int
    roundup_bytes: int
    tail_bytes: int
    free_slot_bytes: int
    cached_bytes: int
    metadata_bytes: int
    large_rounding_bytes: int
    free_page_bytes: int
    held_bytes: int
    rss_bytes: int | None = field(compare=False)
    events: int
    live_objects: int
    large_objects: int
    spans: int
    largest_hole_bytes: int
    free_runs: int
    returned_bytes: int
    classes: Rows
    table: str
    at: str
    time_ns: int = 0
    source: str = ""
    tracked: bool = True
    stats: RunStats | None = None
    parts: tuple[Ledger, ...] = field(default=())
    remark: str = ""
    resident: Ledger | None = None
    instrument_bytes: int = 0
    pending_bytes: int = 0
    unswept_bytes: int = 0

    # --- sums ---

    @property
    def resident_bytes(self) -> int | None:
        """The part of held_bytes that is backed by memory; None: unknown."""
        return None if self.resident is None else self.resident.held_bytes

    @property
    def peak_resident_bytes(self) -> int | None:
        """The peak of resident bytes over the whole run, which ranks tables.

        For several recordings it is the sum of their own peaks; None: unknown.
        """
        return self._peak("peak_resident_bytes")

    @property
    def peak_held_bytes(self) -> int | None:
        """The most bytes held at once in the whole run; see `peak_resident_bytes`."""
        return self._peak("peak_held_bytes")

    @property
    def peak_requested_bytes(self) -> int | None:
        """The most bytes requested at once in the whole run; see `peak_resident_bytes`."""
        return self._peak("peak_requested_bytes")

    def _peak(self, name: str) -> int | None:
        if self.parts:
            every = [part._peak(name) for part in self.parts]
            known = [size for size in every if size is not None]
            return sum(known) if len(known) == len(every) else None
        found: int | None = getattr(self.stats, name, None)
        return found

    @property
    def waste_bytes(self) -> int:
        """Held minus requested bytes."""
        return self.held_bytes - self.requested_bytes

    @property
    def measures(self) -> Measures:
        """The standard measures by name: floats, each with its `definition`; `nan`: unknown.

        internal_waste: (round-up + tail + large rounding) / requested.
        unused_share: (free slots + cached + free pages) / held.
        held_over_requested: held / requested at this moment.
        mean_occupancy: live slots / slots, over all spans; `occupancy` is the distribution.
        largest_hole_bytes: longest run of free held pages.
        free_runs: number of runs of free held pages.
        jw_mean: held / requested, mean over all operations of the run.
        jw_mean_steady: the same mean from half of the peak of requested bytes on.
        jw_at_peak_requested: held / requested when requested is at its peak.
        jw_at_peak_held: held / requested when held is at its peak.
        jw_of_peaks: peak of held / peak of requested.

        The jw ratios are those of Johnstone and Wilson, "The memory fragmentation problem:
        solved?" (1998), over held and requested bytes; they are unknown if nothing was run.

        >>> ledger = Heap(dry=True).ledger()
        >>> ledger.measures["unused_share"], ledger.measures["jw_mean"]
        (0.0, nan)
        """
        return measures_of(self)

    @property
    def occupancy(self) -> list[int]:
        """The number of spans by tenths of live slots, 0-10 % to 90-100 %, and of full spans."""
        small = self.classes[self.classes["cls"] > 0]
        found: list[int] = small["occupancy"].sum(axis=0).tolist()
        return found

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        value: dict[str, Any] = {"table": self.table, "at": self.at, "source": self.source}
        names = (*PARTS, "held_bytes", "resident_bytes", "peak_resident_bytes", "rss_bytes")
        value.update({name: getattr(self, name) for name in names})
        for name in ("events", "time_ns", "live_objects", "large_objects", "spans", "tracked"):
            value[name] = getattr(self, name)
        for name in ("largest_hole_bytes", "free_runs", "returned_bytes", *OUTSIDE):
            value[name] = getattr(self, name)
        columns = self.classes.dtype.names or ()
        value["classes"] = [
            {name: row[name].tolist() for name in columns} for row in self.classes if row["spans"]
        ]
        value["measures"] = measures_json(self)
        value["run"] = self.stats.to_dict() if self.stats else None
        if self.remark:
            value["remark"] = self.remark
        if self.resident is not None:
            value["resident"] = {name: getattr(self.resident, name) for name in PARTS}
        if self.parts:
            value["parts"] = [part.to_dict() for part in self.parts]
        return value

    @property
    def array(self) -> Rows:
        """The ledger as one row: table, at, source, its parts, and other sums of the heap.

        `classes` has the rows of the classes.
        """
        return ledger_rows([self])

    def text_rows(self) -> list[tuple[str, ...]]:
        """Return the parts as text, with the columns of `text_head`."""
        return [
            (title, *self._resident_cells(name), *self._held_cells(name))
            for name, title in [*PARTS.items(), ("held_bytes", "all")]
        ]

    @property
    def text_head(self) -> tuple[str, ...]:
        """Titles of `text_rows`."""
        known = self.resident is not None
        return ("", *(("resident",) if known else ()), "held", "bytes held", "of held")

    def _resident_cells(self, name: str) -> tuple[str, ...]:
        return () if self.resident is None else (_format.size(getattr(self.resident, name)),)

    def _held_cells(self, name: str) -> tuple[str, ...]:
        count = getattr(self, name)
        share = _format.share(count, self.held_bytes)
        return (_format.size(count), _format.number(count), share)

    @property
    def title(self) -> str:
        """Source, table and moment on one line."""
        what = f" of {self.source}" if self.source else ""
        counts = [
            f"{_format.plural(self.live_objects, 'object')} live",
            *([f"after {_format.plural(self.events, 'event')}"] if self.events else []),
        ]
        return f"ledger{what} under {self.table} {at_moment(self.at)}: {', '.join(counts)}"

    def __str__(self) -> str:
        rows: list[Sequence[str]] = list(self.text_rows())
        rows.insert(-1, ())
        lines = [self.title, _format.table(rows, self.text_head, indent="  ")]
        if self.rss_bytes is not None:
            lines.append(f"  resident bytes of the process: {_format.size(self.rss_bytes)}")
        if self.remark:
            lines.append(f"  {self.remark}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        title = " ".join([self.title, self.remark]).strip()
        return _format.html_table(self.text_rows(), self.text_head, title)

    def class_table(self, classes: int | None = None) -> str:
        """Return the classes in use as an aligned table.

        The column "used" is the requested share of the bytes of the class's spans. Waste is the sum
        of round-up, tail, free slots and cached.

        Args:
            classes: limit to this many classes, those with the most waste, ordered by size.
        """
        used = self.classes[self.classes["spans"] > 0]
        waste = class_waste(used)
        chosen = np.sort(
            np.argsort(-waste, kind="stable")[: len(used) if classes is None else classes]
        )
        return _format.table([_class_cells(used[i]) for i in chosen], CLASS_HEAD, left=0)

    def to_openmetrics(self) -> str:
        """Return the ledger as gauges in OpenMetrics text, which Prometheus and others scrape."""
        from spanwise.report import export as perfetto  # noqa: PLC0415  reports know models

        return perfetto.openmetrics(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the parts as a stacked bar; returns the matplotlib Axes."""
        return draw("ledgers", [self], ax=ax)


CLASS_HEAD = (
    "class",
    "live",
    "spans",
    "requested",
    "round-up",
    "tail",
    "free slots",
    "cached",
    "used",
)
"""Titles of the columns of `Ledger.class_table`."""


def class_waste(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the wasted bytes of each row of `Ledger.classes`."""
    names = ("roundup_bytes", "tail_bytes", "free_slot_bytes", "cached_bytes")
    total = np.zeros(len(rows), np.int64)
    for name in names:
        total += rows[name].astype(np.int64)
    return total


def _class_cells(row: Any) -> tuple[str, ...]:
    names = ("requested_bytes", "roundup_bytes", "tail_bytes", "free_slot_bytes", "cached_bytes")
    return (
        _format.number(int(row["size_bytes"])) if row["cls"] else "large",
        _format.number(int(row["live_objects"])),
        _format.number(int(row["spans"])),
        *(_format.number(int(row[name])) for name in names),
        _format.share(int(row["requested_bytes"]), int(row["span_bytes"])),
    )


ROW_FIELDS = (
    "table",
    "at",
    "source",
    *PARTS,
    "held_bytes",
    "waste_bytes",
    "resident_bytes",
    "rss_bytes",
    *("events", "time_ns", "live_objects", "large_objects", "spans"),
    *("largest_hole_bytes", "free_runs", "returned_bytes", *OUTSIDE),
)
"""Columns of `Ledger.array` and `Comparison.array`."""


def ledger_rows(ledgers: Sequence[Ledger]) -> Rows:
    """Return one row per ledger."""
    return rows_of([{name: getattr(one, name) for name in ROW_FIELDS} for one in ledgers])


# --- making ---------------------------------------------------------------------------------------


def read_ledger(
    c_heap: Any,
    table: SizeClassTable,
    *,
    at: str,
    stats: RunStats | None = None,
    rss_bytes: int | None = None,
    time_ns: int = 0,
    source: str = "",
    resident: bool = False,
) -> Ledger:
    """Return the current ledger of a C heap. The caller keeps the heap alive."""
    of_heap = Ledger(
        **_read_sums(lib.sw_heap_ledger, c_heap, table),
        rss_bytes=rss_bytes,
        events=stats.events if stats else 0,
        table=table.name,
        at=at,
        time_ns=time_ns,
        source=source,
        stats=stats,
    )
    if not resident:
        return of_heap
    touched = _read_sums(lib.sw_heap_touched_read, c_heap, table)
    return replace(of_heap, resident=replace(of_heap, **touched, stats=None))


def _read_sums(read: Any, c_heap: Any, table: SizeClassTable) -> dict[str, Any]:
    """Return the fields of a ledger that a C function stores: sums and rows of classes."""
    out = ffi.new("sw_ledger *", {"struct_bytes": ffi.sizeof("sw_ledger")})
    rows = np.zeros(len(table) + 1, LEDGER_CLASS_DTYPE)
    check(read(c_heap, out, _lib.pointer(rows, "sw_ledger_class *"), len(rows)))
    rows.flags.writeable = False
    sums: dict[str, Any] = {name: int(getattr(out, name)) for name in SUMS}
    return {**sums, "classes": as_rows(rows), "tracked": bool(out.tracked)}


def add_ledgers(ledgers: Sequence[Ledger], source: str) -> Ledger:
    """Return the sum of ledgers of several processes under one table, each at its own moment."""
    if not ledgers or len({one.table for one in ledgers}) > 1:
        raise errors.InvalidError("ledgers to add up must be at least one, all of one table")
    resident = [one.resident for one in ledgers if one.resident is not None]
    first = ledgers[0]
    rows = first.classes.copy()
    for other in ledgers[1:]:
        for name in rows.dtype.names or ():
            if name not in ("cls", "size_bytes"):
                rows[name] += other.classes[name]
    rows.flags.writeable = False
    total: dict[str, Any] = {name: sum(getattr(one, name) for one in ledgers) for name in SUMS}
    total["largest_hole_bytes"] = max(one.largest_hole_bytes for one in ledgers)
    return Ledger(
        **total,
        rss_bytes=None,
        events=sum(one.events for one in ledgers),
        classes=as_rows(rows),
        table=first.table,
        at=first.at,
        source=source,
        tracked=all(one.tracked for one in ledgers),
        parts=tuple(ledgers),
        remark=next((one.remark for one in ledgers if one.remark), ""),
        resident=add_ledgers(resident, source) if len(resident) == len(ledgers) else None,
    )


# --- comparisons ----------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Result, Value, Tabular):
    """Ledgers of the same operations under several tables.

    Attributes:
        ledgers: the ledgers, in the order given; at least one.
    """

    ledgers: Sequence[Ledger]

    def __post_init__(self) -> None:
        if isinstance(self.ledgers, Ledger):
            raise TypeError("ledgers must be a list, not Ledger; for a single one pass [it]")
        for one in _lib.as_iterable(self.ledgers, "ledgers"):
            _lib.check_type(one, Ledger, "each of ledgers")
        if not self.ledgers:
            raise errors.InvalidError("nothing to compare; give at least one ledger")
        object.__setattr__(self, "ledgers", tuple(self.ledgers))

    @property
    def judged_by(self) -> str:
        """The field that ranks: the peak resident bytes if all ledgers know them, else held bytes.

        Real heaps do not know peak resident bytes, which need a simulation that records the
        written pages.
        """
        known = all(ledger.peak_resident_bytes is not None for ledger in self.ledgers)
        return "peak_resident_bytes" if known else "held_bytes"

    def best(self, by: str | None = None) -> Ledger:
        """Return the first ledger with the least value of a field (None: `judged_by`).

        Raises:
            InvalidError: a ledger has no such number.
        """
        values = self._values(self.judged_by if by is None else by)
        return self.ledgers[values.index(min(values))]

    def _values(self, by: str) -> list[Any]:
        values: list[Any] = [getattr(ledger, by, None) for ledger in self.ledgers]
        if not all(isinstance(value, int | float) for value in values):
            raise errors.InvalidError(f"field {by!r} is not a number of a ledger; use held_bytes")
        return values

    @property
    def array(self) -> Rows:
        """One row per ledger, with the columns of `Ledger.array`."""
        return ledger_rows(self.ledgers)

    @property
    def text_head(self) -> tuple[str, ...]:
        """Titles of `text_rows`."""
        return ("", *(ledger.table for ledger in self.ledgers))

    @property
    def when(self) -> str:
        """The moment of the ledgers, for titles: "at peak-resident under go"."""
        return common_moment([ledger.at for ledger in self.ledgers])

    def text_rows(self) -> list[tuple[str, ...]]:
        """Return one row per part, with one column per ledger; the last is of the whole run."""
        sums = {"resident_bytes": "resident", "held_bytes": "held", "waste_bytes": "waste"}
        if any(ledger.resident_bytes is None for ledger in self.ledgers):
            del sums["resident_bytes"]
        rows: list[tuple[str, ...]] = [
            (title, *(_format.number(getattr(ledger, name)) for ledger in self.ledgers))
            for name, title in (PARTS | sums).items()
        ]
        shares = (_format.share(one.waste_bytes, one.held_bytes) for one in self.ledgers)
        rows.append(("waste of held", *shares))
        if self.judged_by == "peak_resident_bytes":
            most = (_format.number(int(one.peak_resident_bytes or 0)) for one in self.ledgers)
            rows.append(("peak resident, own moment", *most))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "best": self.best().table,
            "judged_by": self.judged_by,
            "ledgers": [ledger.to_dict() for ledger in self.ledgers],
        }

    def __str__(self) -> str:
        rows: list[Sequence[str]] = list(self.text_rows())
        rows.insert(len(PARTS), ())
        first = self.ledgers[0]
        what = f"{first.source or 'ledgers'} "
        table = _format.table(rows, self.text_head, indent="  ")
        lines = [f"{what}{self.when}, bytes", table, first.remark, self.verdict()]
        return "\n".join(line for line in lines if line)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        return _format.html_table(self.text_rows(), self.text_head, self.verdict())

    def verdict(self) -> str:
        """Say in one sentence which table has the least peak resident, and what it holds."""
        by = self.judged_by
        ranked = sorted(self.ledgers, key=lambda ledger: int(getattr(ledger, by)))
        said = f"{ranked[0].table} {_had(ranked[0], by)}"
        if len(ranked) == 1:
            return f"{said}."
        other = ranked[1]
        saved, before = _saved(ranked[0], other, by), int(getattr(other, by))
        if saved == 0:
            return f"{said}, and {other.table} as much."
        said += f", the least: {_format.size(saved)} ({_format.share(saved, before)}) less than"
        return f"{said} {other.table}{_held_beside(ranked[0], other, by, self.when)}."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the ledgers as stacked bars; returns the matplotlib Axes."""
        return draw("ledgers", self.ledgers, ax=ax)


def _saved(best: Ledger, other: Ledger, by: str) -> int:
    return int(getattr(other, by)) - int(getattr(best, by))


def _had(ledger: Ledger, by: str) -> str:
    amount = _format.size(getattr(ledger, by))
    return f"holds {amount}" if by == "held_bytes" else f"has a peak resident of {amount}"


def _held_beside(best: Ledger, other: Ledger, by: str, when: str) -> str:
    """Describe the held bytes of the ledgers, if another field ranks them."""
    if by == "held_bytes":
        return ""
    saved = _saved(best, other, "held_bytes")
    amount = f"{_format.size(abs(saved))} {'less' if saved > 0 else 'more'}" if saved else "as much"
    return f"; it holds {amount}{',' if when.startswith('each') else ''} {when}"
