# SPDX-License-Identifier: Apache-2.0
"""Export recordings to the formats of other tools (docs/design/export.md)."""

from __future__ import annotations

import html
import importlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib
from spanwise._lib import OPS_DTYPE, lib
from spanwise.errors import InvalidError, UnsupportedError
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.plots.comparisons import LANE_NAMES
from spanwise.recordings.names import name_frames
from spanwise.recordings.sites import unknown_only, unknown_text
from spanwise.report import flame, stacks
from spanwise.report.moments import COUNTS, StackData
from spanwise.report.page import document, json_script
from spanwise.results.files import check_output, whole_file, write_whole
from spanwise.results.jobs import Step, progress_bar
from spanwise.results.rows import AnyRows, Rows
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from spanwise.gc.events import CollectorEvents
    from spanwise.heap.options import HeapOptions
    from spanwise.recordings.live_sites import LiveSites
    from spanwise.recordings.recording import Recording
    from spanwise.recordings.sites import Site
    from spanwise.results.jobs import Progress


Event = dict[str, Any]

_PID = 1


def text_of(program: str, events: Sequence[Event], **other: int) -> str:
    """Return the file's text: the process name, then the events; `other` goes into otherData."""
    made = {
        "traceEvents": [name_of("process_name", 0, program), *events],
        "displayTimeUnit": "ms",
        "otherData": {"exporter": f"spanwise {_lib.version()}", **other},
    }
    return json.dumps(made, separators=(",", ":")) + "\n"


def name_of(what: str, lane: int, name: str) -> Event:
    """Return the metadata event "process_name" or "thread_name" of a lane."""
    return _metadata(what, lane, {"name": name})


def _metadata(what: str, lane: int, args: dict[str, Any]) -> Event:
    return {"ph": "M", "pid": _PID, "tid": lane, "name": what, "args": args}


def counter(name: str, time_ns: float, args: dict[str, int]) -> Event:
    """Return an event that sets values from this time on."""
    return {**_at("C", name, time_ns, 0), "args": args}


def interval(name: str, lane: int, time_ns: float, length_ns: float, args: dict[str, int]) -> Event:
    """Return an event that is a box in a lane."""
    return {**_at("X", name, time_ns, lane), "dur": length_ns / 1000, "args": args}


def instant(name: str, time_ns: float, args: dict[str, int]) -> Event:
    """Return an event that is a mark through all lanes."""
    return {**_at("i", name, time_ns, 0), "s": "g", "args": args}


def of_life(
    phase: str, kind: str, number: int, time_ns: float, *, lane: int, args: dict[str, Any]
) -> Event:
    """Return the begin ("b"), instant ("n") or end ("e") of an async event with its own lane."""
    event = _at(phase, f"{kind} {number}", time_ns, lane)
    return {**event, "cat": kind, "id": number, "args": args}


def _at(phase: str, name: str, time_ns: float, lane: int) -> Event:
    return {"ph": phase, "pid": _PID, "tid": lane, "name": name, "ts": time_ns / 1000}


# --- time lines -----------------------------------------------------------------------------------


def counters(rows: Rows) -> list[Event]:
    """Return a time line with all parts as counter events."""
    events: list[Event] = []
    before_ns = before_bytes = 0
    for row in rows:
        time_ns, bytes_now = int(row["time_ns"]), int(row["requested_bytes"])
        parts = {title: int(row[name]) for name, title in PARTS.items()}
        events.append(counter("ledger, bytes", time_ns, parts))
        events.append(counter("live, bytes", time_ns, {"requested": bytes_now}))
        events.append(counter("resident, bytes", time_ns, {"resident": int(row["resident_bytes"])}))
        events.append(counter("live objects", time_ns, {"objects": int(row["live_objects"])}))
        if time_ns > before_ns:
            rate = (bytes_now - before_bytes) * 1e9 / (time_ns - before_ns)
            events.append(counter("growth, bytes/s", time_ns, {"requested": round(rate)}))
            before_ns, before_bytes = time_ns, bytes_now
    return events


def openmetrics(ledger: Ledger) -> str:
    """Return the ledger of one moment as OpenMetrics gauges, with its table as a label."""
    table, source = map(_format.label_value, (ledger.table, ledger.source))
    label = f'{{table="{table}",source="{source}"}}'
    gauges = [
        (name, "bytes", f"{title} bytes of the heap", getattr(ledger, name))
        for name, title in PARTS.items()
    ]
    gauges += [
        ("held_bytes", "bytes", "bytes that the heap has from the system", ledger.held_bytes),
        ("waste_bytes", "bytes", "held minus requested", ledger.waste_bytes),
        ("live_objects", "", "live objects", ledger.live_objects),
        ("spans", "", "spans of slots", ledger.spans),
    ]
    if ledger.resident_bytes is not None:
        gauges.append(("resident_bytes", "bytes", "held and written to", ledger.resident_bytes))
    lines = []
    for name, unit, text, value in gauges:
        lines.append(f"# TYPE spanwise_{name} gauge")
        if unit:
            lines.append(f"# UNIT spanwise_{name} {unit}")
        lines += [f"# HELP spanwise_{name} {text}", f"spanwise_{name}{label} {value}"]
    return "\n".join([*lines, "# EOF\n"])


# --- threads --------------------------------------------------------------------------------------

_FREE, _END = int(lib.SW_OP_FREE), int(lib.SW_OP_THREAD_END)


class Windows:
    """Operations by thread and window of time.

    Attributes:
        sums: requests, requested bytes and frees of each (thread, window) with an operation.
    """

    def __init__(self, duration_ns: int, most: int) -> None:
        """Divides a recording into at most `most` windows."""
        self.length_ns = max(1, -(-(duration_ns + 1) // most))  # of a window; the first begins at 0
        self.count = duration_ns // self.length_ns + 1  # number of windows
        self.sums: dict[tuple[int, int], NDArray[np.int64]] = {}

    def add(self, ops: NDArray[np.void]) -> None:
        """Adds operations; a resize counts as a request of its new size."""
        ops = ops[ops["kind"] != _END]
        key = ops["thread"].astype(np.int64) * self.count
        key += (ops["time_ns"] // self.length_ns).astype(np.int64)
        keys, inverse = np.unique(key, return_inverse=True)
        sums = np.zeros((len(keys), 3), np.int64)
        free = ops["kind"] == _FREE
        for column, values in enumerate((~free, ops["size"].astype(np.int64), free)):
            np.add.at(sums[:, column], inverse, values)
        for place, row in zip(keys.tolist(), sums, strict=True):
            where = divmod(place, self.count)
            self.sums[where] = self.sums[where] + row if where in self.sums else row


def lanes(blocks: Iterable[NDArray[np.void]], duration_ns: int, most: int) -> list[Event]:
    """Return a lane per thread; a box is consecutive windows in which it called malloc or free.

    The counter "allocated, bytes/s" has the requests of all threads in a window. There are at most
    `most` windows.
    """
    windows = Windows(duration_ns, most)
    for block in blocks:
        windows.add(block)
    threads = sorted({thread for thread, _ in windows.sums})
    events = [name_of("thread_name", thread + 1, f"thread {thread}") for thread in threads]
    return [*events, *_rates(windows), *_boxes(windows)]


def _rates(windows: Windows) -> list[Event]:
    requested = np.zeros(windows.count, np.int64)
    for (_, window), sums in windows.sums.items():
        requested[window] += sums[1]
    rates = np.round(requested * 1e9 / windows.length_ns).astype(np.int64)
    changed = np.flatnonzero(np.diff(rates, prepend=-1))
    return [
        counter("allocated, bytes/s", window * windows.length_ns, {"requested": int(rates[window])})
        for window in changed.tolist()
    ]


def _boxes(windows: Windows) -> list[Event]:
    """Merge consecutive windows of a thread into one box."""
    events: list[Event] = []
    before = (-1, -1)
    first, total = 0, np.zeros(3, np.int64)
    for thread, window in [*sorted(windows.sums), (-1, -1)]:
        if (thread, window - 1) != before:
            if before[0] >= 0:
                events.append(_box(windows, before[0], (first, before[1] + 1), total))
            first, total = window, np.zeros(3, np.int64)
        if thread >= 0:
            total = total + windows.sums[thread, window]
        before = thread, window
    return events


def _box(windows: Windows, thread: int, span: tuple[int, int], sums: NDArray[np.int64]) -> Event:
    start, end = (window * windows.length_ns for window in span)
    names = ("requests", "requested_bytes", "frees")
    args = dict(zip(names, sums.tolist(), strict=True))
    return interval("allocates", thread + 1, start, end - start, args)


# --- arenas ---------------------------------------------------------------------------------------


def write_arenas(rows: AnyRows, path: str | os.PathLike[str]) -> None:
    """Write the events of arenas; as `ArenaTracker.to_perfetto`."""
    write_whole(path, text_of("arenas", events_of(rows)))


def events_of(rows: AnyRows) -> list[Event]:
    """Return the events by time; time 0 is the first row."""
    made: list[Event] = []
    live: dict[int, int] = {}  # bytes of objects, by arena
    first = last = 0
    for i, row in enumerate(np.asarray(rows)):
        first = int(row["time_ns"]) if i == 0 else first
        last = int(row["time_ns"]) - first
        made += _event(row, last, live)
    ends = [
        of_life("e", "arena", arena, last, lane=0, args={"freed": False}) for arena in sorted(live)
    ]
    return [*made, *ends]


def _event(row: np.void, now: int, live: dict[int, int]) -> list[Event]:
    """Return the events of one row; an arena without a recorded creation begins here."""
    arena, lane, what = int(row["arena"]), int(row["thread"]), str(row["event"])
    if what == "arena.alert":
        args = {"untracked_bytes": int(row["size"]), "old_bytes": int(row["length"])}
        return [instant("alert", now, args)]
    made = []
    if arena not in live:
        live[arena] = 0
        seen = what == "arena.new"
        made.append(of_life("b", "arena", arena, now, lane=lane, args={"creation_seen": seen}))
    if what == "arena.alloc":
        live[arena] += int(row["length"])
        args = {"bytes": int(row["length"]), "offset": int(row["offset"])}
        made.append(of_life("n", "arena", arena, now, lane=lane, args=args))
    if what == "arena.free":
        args = {"freed": True, "bytes": live.pop(arena)}
        made.append(of_life("e", "arena", arena, now, lane=lane, args=args))
    made.append(counter("live arenas", now, {"arenas": len(live)}))
    made.append(counter("bytes of live arenas", now, {"allocated": sum(live.values())}))
    return made


# --- lanes ----------------------------------------------------------------------------------------


def write_lanes(events: CollectorEvents, path: str | os.PathLike[str]) -> None:
    """Write the lanes of a collector; as `CollectorEvents.to_perfetto`."""
    write_whole(path, perfetto(events))


def perfetto(events: CollectorEvents) -> str:
    """Return the file's text: lanes as threads of one process, then intervals in microseconds."""
    made = []
    lanes = _lanes_of(events)
    for number, (kind, thread) in enumerate(lanes, 1):
        shared = sum(other == kind for other, _ in lanes) > 1
        name = f"{kind}, thread {thread}" if shared else kind
        made.append(name_of("thread_name", number, name))
        made.append(_metadata("thread_sort_index", number, {"sort_index": number}))
    numbers = {lane: number for number, lane in enumerate(lanes, 1)}
    made += [
        _collector_interval("mutator", numbers["mutator", 0], row, {}) for row in events.mutator()
    ]
    for row in events.array:
        kind, thread = str(row["kind"]), int(row["thread"])
        args = {"cycle": int(row["cycle"]), "thread": thread}
        made.append(_collector_interval(kind, numbers[kind, thread], row, args))
    return text_of(f"collector of {events.source}", made, lost=events.lost)


def _lanes_of(events: CollectorEvents) -> list[tuple[str, int]]:
    """Return kinds and threads: several threads mark and assist at the same time."""
    pairs = list(zip(events.array["kind"].tolist(), events.array["thread"].tolist(), strict=True))
    lanes = []
    for kind in LANE_NAMES:
        threads = sorted({thread for other, thread in pairs if other == kind})
        lanes += [(kind, thread) for thread in threads or [0]]
    return lanes


def _collector_interval(kind: str, lane: int, row: Any, args: dict[str, int]) -> Event:
    return {**interval(kind, lane, int(row["start_ns"]), int(row["ns"]), args), "cat": "gc"}


# --- formats --------------------------------------------------------------------------------------

FORMATS = ("pprof", "speedscope", "collapsed", "perfetto", "openmetrics", "npz", "parquet")
MOMENTS = 1000
PARQUET_ROWS = 1 << 18
"""Operations per row group."""
_COLUMNS = OPS_DTYPE.names or ()
_PASSES = {"npz": 1 + len(_COLUMNS), "perfetto": 2, "pprof": 2}
"""Passes over the operations, where there are several: for the progress bar."""


@dataclass(frozen=True)
class Wanted:
    """What to export."""

    form: str  # one of FORMATS
    value: str  # key of stacks.VALUES, for collapsed stacks
    table: SizeClassTable  # size classes of the simulated heap
    at: str | float  # moment of the recording
    names: Mapping[str, Any] = field(default_factory=dict)  # arguments of `LiveSites.named`

    def __post_init__(self) -> None:
        """Raises InvalidError for an unknown format or value."""
        for word, known, what in (
            (self.form, FORMATS, "format"),
            (self.value, tuple(stacks.VALUES), "value"),
        ):
            if word not in known:
                raise InvalidError(f"{what} {word!r}: use one of {', '.join(known)}")


def write(
    recording: Recording,
    path: str | os.PathLike[str],
    wanted: Wanted,
    options: HeapOptions | None,
    progress: Progress,
) -> None:
    """Writes one file atomically; arguments and errors as in `Recording.export`."""
    check_output(path)
    total = _PASSES.get(wanted.form, 1) * len(recording)
    with progress_bar(progress, total, f"export to {wanted.form}", "operations") as step:
        if wanted.form == "parquet":
            _write_parquet(recording, path, step)
        else:
            write_whole(path, content_of(recording, wanted, options, step))


def _blocks(recording: Recording, rows: int, step: Step) -> Iterator[NDArray[np.void]]:
    for block in recording.blocks(rows):
        yield block
        step(len(block))


def _write_parquet(recording: Recording, path: str | os.PathLike[str], step: Step) -> None:
    """Write all operations, a row group per block, so that memory stays bounded."""
    try:
        arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    except ImportError:
        raise UnsupportedError(
            "parquet needs pyarrow, which is not installed: pip install 'spanwise[parquet]'"
        ) from None
    fields = [(name, arrow.from_numpy_dtype(OPS_DTYPE[name])) for name in _COLUMNS]
    schema = arrow.schema(fields, metadata={"spanwise.meta": json.dumps(recording.meta)})
    with (
        whole_file(path) as growing,
        parquet.ParquetWriter(growing, schema, compression="zstd") as writer,
    ):
        for block in _blocks(recording, PARQUET_ROWS, step):
            columns = [np.ascontiguousarray(block[name]) for name in _COLUMNS]
            writer.write_table(arrow.table(columns, schema=schema))


def content_of(
    recording: Recording, wanted: Wanted, options: HeapOptions | None, step: Step
) -> str | bytes:
    """Return the content of the file."""
    table, at, program = wanted.table, wanted.at, Path(recording.program).name
    if wanted.form == "npz":
        return _npz(recording, step)
    if wanted.form == "openmetrics":
        return openmetrics(recording.ledger(table, at, options=options, progress=step))
    if wanted.form == "perfetto":
        rows = recording.timeline(
            table, samples=MOMENTS, detail="parts", options=options, progress=step
        )
        duration_ns = recording.summary.duration_ns
        of_threads = lanes(_blocks(recording, 1 << 18, step), duration_ns, MOMENTS)
        return text_of(program, [*counters(rows), *of_threads])
    live = recording.live_sites(table, at, options=options, progress=step).named(**wanted.names)
    sites = recording.sites.named(**wanted.names)
    names = name_frames(
        (frame for site in (*sites, *live) for frame in site.frames), dict(live.build_ids)
    )
    name = f"{program} at {live.ledger.at}, table {table.name}"
    if wanted.form == "pprof":
        rows = recording.site_groups(table, at, options=options, progress=step)
        groups = stacks.groups_of(rows, (*sites, *live), names)
        return stacks.pprof(groups, recording.summary.duration_ns, program, name)
    found = stacks.stacks_of(sites, live, names)
    if wanted.form == "collapsed":
        return stacks.collapsed(found, wanted.value)
    return stacks.speedscope(found, name)


def check_flame(path: str | os.PathLike[str], of: str, *, is_difference: bool = False) -> None:
    """Check before the work that the graph exists and its file can be written."""
    flame.check_of(of)
    check_output(path)
    suffix = Path(path).suffix.lower()
    if is_difference and suffix != ".html":
        raise InvalidError(f"{path}: a difference of two recordings ends in .html")
    if suffix not in (".svg", ".html"):
        raise InvalidError(f"{path}: a flame graph ends in .svg or .html; give another name")


def write_flame(
    live: LiveSites,
    path: str | os.PathLike[str],
    of: str,
    before: LiveSites | None = None,
    allocated: Sequence[Sequence[Site]] = (),
) -> str:
    """Writes a flame graph atomically; as `Recording.to_flame`.

    `allocated`: all call sites of the recording, then of the earlier one, with their names.
    """
    if unknown_only(live):
        raise InvalidError(f"{live.ledger.source}: {unknown_text(live.imported)}")
    said = flame.sentence(live, of, before)
    if Path(path).suffix.lower() == ".svg":
        write_whole(path, flame.file_of(flame.tree_of(live, of), said))
        return said
    quantities = (*flame.OF, *COUNTS)
    first = len(live) + (0 if before is None else len(before))
    data = StackData(live, first, first + _MORE_STACKS, allocated=allocated, before=before)
    keys = "" if before is None else _KEYS
    part = flame.part_of_page(quantities, said, of, merged=before is not None)
    body = (
        f"<main class=graph><h1>{html.escape(said)}</h1>{keys}"
        f"{part}<p class=quiet>{_HOW}</p></main>"
        f"{json_script('stacks', data.to_dict())}"
    )
    scripts = ("common.js", "flame.js")
    write_whole(path, document(said, body, ("report.css", "flame.css"), scripts))
    return said


_MORE_STACKS = 1000
"""Stacks of allocations without live objects in a page; the others are summed."""
_HOW = (
    "The width of a box is that of the function and its callees. Hatched boxes belong to no call."
    " A click zooms; so does Enter, and arrow keys move. Allocations are those of the whole"
    " recording."
)
_KEYS = (
    '<p class="keys"><span><i class="key key-more"></i>▲ grew</span><span><i class="key key-less">'
    "</i>▼ shrank</span><span>A stack is as wide as the larger of its two values.</span></p>"
)


def _npz(recording: Recording, step: Step) -> bytes:
    """Return an npz file: a column per field of the operations, and the metadata as JSON."""
    blocks = list(_blocks(recording, PARQUET_ROWS, step))
    ops = np.concatenate([np.empty(0, OPS_DTYPE), *blocks])
    room = io.BytesIO()
    with zipfile.ZipFile(room, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("meta.npy", "w") as file:
            np.lib.format.write_array(file, np.array(json.dumps(recording.meta)))
        for name in _COLUMNS:
            head = np.lib.format.header_data_from_array_1_0(np.ascontiguousarray(ops[name]))
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, head)
                for first in range(0, len(ops), PARQUET_ROWS):
                    part = ops[name][first : first + PARQUET_ROWS]
                    file.write(part.tobytes())
                    step(len(part))
    return room.getvalue()
