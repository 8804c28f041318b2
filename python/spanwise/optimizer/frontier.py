# SPDX-License-Identifier: Apache-2.0
"""The frontier: waste against the number of classes, simulated at the peak of live bytes.

More classes round up less but leave more spans partly empty, longer spans have shorter tails but
leave more of them empty, and more caches hold more free slots back: the sum is a U.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise._lib import lib, pointer
from spanwise.ledger.ledger import Ledger, add_ledgers
from spanwise.recordings.recording import Recording
from spanwise.recordings.simulate import FILE_STEP, Simulation
from spanwise.recordings.sources import Batch, FileSource, Source
from spanwise.results.jobs import Step
from spanwise.results.rows import Result, Rows, Tabular, Value, as_rows
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRONTIER_DTYPE = np.dtype(
    [
        ("classes", "<u4"),
        ("span_scale", "<u4"),
        ("caches", "<u4"),
        ("requested_bytes", "<u8"),
        ("roundup_bytes", "<u8"),
        ("tail_bytes", "<u8"),
        ("free_slot_bytes", "<u8"),
        ("cached_bytes", "<u8"),
        ("metadata_bytes", "<u8"),
        ("other_bytes", "<u8"),
        ("held_bytes", "<u8"),
        ("resident_bytes", "<u8"),
    ]
)
"""A row of a frontier: bytes at the peak. free_slot_bytes: those of partly empty spans;
cached_bytes: free slots of the spans that caches allocate from; other_bytes: large rounding and
    free pages; held_bytes: the sum of the others; resident_bytes: the resident part of held_bytes.
    caches 0: as many as the recording has threads."""

AS_RECORDED = 0
"""Instead of a number of caches: each recorded thread has its own cache."""


class _SpreadSource:
    """The same operations with the objects dealt to caches: object i to cache i modulo `caches`.

    The cache that allocates an object frees it, so that only the number of caches changes.
    """

    def __init__(self, source: Source, caches: int) -> None:
        self._source = source
        self._caches = caches

    def batches(self) -> Iterator[Batch]:
        for batch in self._source.batches():
            ops = batch.array().copy()
            ends = ops["kind"] == lib.SW_OP_THREAD_END  # in a thread without a cache
            ops["thread"] = np.where(ends, self._caches, ops["object"] % self._caches)
            yield Batch(pointer(ops, "const sw_op *"), len(ops))


def peak_ledger(
    recordings: Sequence[Recording],
    table: SizeClassTable,
    caches: int = AS_RECORDED,
    progress: Step | None = None,
    *,
    resident: bool = False,
) -> Ledger:
    """The ledger at the peak of requested bytes (the sum over the recordings' own peaks).

    Args:
        recordings: at least one.
        table: size classes.
        caches: AS_RECORDED, or a number of caches to which the objects are dealt out.
        progress: called with the number of operations done since its last call.
        resident: whether the ledger has what is resident.
    """
    ledgers = [_one_ledger(one, table, caches, progress, resident) for one in recordings]
    return add_ledgers(ledgers, "recordings")


def _one_ledger(
    recording: Recording,
    table: SizeClassTable,
    caches: int,
    progress: Step | None,
    resident: bool,
) -> Ledger:
    """Runs up to the peak only: what comes after it does not matter here."""
    simulation = Simulation(table, resident=resident)
    try:
        before = 0
        for done in run_to(simulation, recording, recording.summary.peak_op, caches):
            if progress is not None:
                progress(done - before)
            before = done
        return simulation.ledger("peak", recording.name)
    finally:
        simulation.close()


def run_to(
    simulation: Simulation, recording: Recording, stop: int, caches: int = AS_RECORDED
) -> Iterator[int]:
    """Runs `stop` operations of a recording; pauses now and then to tell how many are done."""
    source = recording._source
    if caches == AS_RECORDED and isinstance(source, FileSource):
        trace, going = source.open(), True
        while going and simulation.done < stop:
            going = simulation.run_trace(trace, min(simulation.done + FILE_STEP, stop))
            yield simulation.done
        return
    spread = source if caches == AS_RECORDED else _SpreadSource(source, caches)
    for batch in spread.batches():
        simulation.run(batch.first(min(batch.count, stop - simulation.done)))
        yield simulation.done
        if simulation.done == stop:
            return


def _row(ledger: Ledger, classes: int, scale: int, caches: int) -> tuple[int, ...]:
    assert ledger.resident_bytes is not None
    return (
        classes,
        scale,
        caches,
        ledger.requested_bytes,
        ledger.roundup_bytes,
        ledger.tail_bytes,
        ledger.free_slot_bytes,
        ledger.cached_bytes,
        ledger.metadata_bytes,
        ledger.large_rounding_bytes + ledger.free_page_bytes,
        ledger.held_bytes,
        ledger.resident_bytes,
    )


@dataclass(frozen=True, repr=False, eq=False)
class Frontier(Result, Value, Tabular):
    """Waste against the number of classes, by length of spans and by number of caches.

    Attributes:
        array: rows of FRONTIER_DTYPE.
    """

    array: Rows

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", as_rows(np.asarray(self.array)))

    def curve(self, span_scale: int = 1, caches: int = AS_RECORDED) -> NDArray[np.void]:
        """The rows of one U, by rising number of classes."""
        fits = (self.array["span_scale"] == span_scale) & (self.array["caches"] == caches)
        chosen = self.array[fits]
        ordered: NDArray[np.void] = chosen[np.argsort(chosen["classes"], kind="stable")]
        return ordered

    def curves(self) -> list[tuple[int, int]]:
        """(span_scale, caches) of each U."""
        pairs = {(int(r["span_scale"]), int(r["caches"])) for r in self.array}
        return sorted(pairs)

    def best(self, span_scale: int = 1, caches: int = AS_RECORDED) -> np.void:
        """The lowest point of one U: least resident at the peak; of equal ones fewest classes."""
        curve = self.curve(span_scale, caches)
        lowest: np.void = curve[int(np.argmin(curve["resident_bytes"]))]
        return lowest

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = self.array.dtype.names or ()
        return {
            "rows": [{name: int(row[name]) for name in names} for row in self.array],
            "minima": [
                {
                    "span_scale": scale,
                    "caches": caches,
                    "classes": int(self.best(scale, caches)["classes"]),
                    "resident_bytes": int(self.best(scale, caches)["resident_bytes"]),
                    "held_bytes": int(self.best(scale, caches)["held_bytes"]),
                }
                for scale, caches in self.curves()
            ],
        }

    def __str__(self) -> str:
        head = (
            *("classes", "spans", "caches", "round-up", "tail", "free slots", "cached"),
            *("metadata", "other", "held", "resident", ""),
        )
        lines: list[Sequence[str]] = []
        for scale, caches in self.curves():
            if lines:
                lines.append(())
            lowest = self.best(scale, caches)
            lines += [
                _line(row, row["classes"] == lowest["classes"]) for row in self.curve(scale, caches)
            ]
        return _format.table(lines, head, left=0)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws what is resident beyond what was requested, a curve each U; minima are marked."""
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.frontier(self, ax)


def cache_name(caches: int) -> str:
    """A number of caches for people."""
    return "recorded" if caches == AS_RECORDED else str(caches)


def _line(row: np.void, lowest: bool) -> tuple[str, ...]:
    parts = ("roundup", "tail", "free_slot", "cached", "metadata", "other", "held", "resident")
    cells = tuple(_format.number(int(row[f"{name}_bytes"])) for name in parts)
    return (
        str(row["classes"]),
        f"x{row['span_scale']}",
        cache_name(int(row["caches"])),
        *cells,
        "least" if lowest else "",
    )


def simulate_frontier(
    recordings: Sequence[Recording],
    tables: dict[tuple[int, int], SizeClassTable],
    caches: Sequence[int],
    progress: Step | None = None,
) -> Frontier:
    """Simulates tables at the peak.

    Args:
        recordings: their peaks are added up.
        tables: by (number of classes asked for, span scale). The longer spans are simulated as
            recorded only, the others under every number of caches.
        caches: numbers of caches; AS_RECORDED for one a recorded thread.
        progress: called after each table with the recordings' operations up to the peak.
    """
    rows = []
    seen: set[tuple[int, int, int]] = set()
    work = sum(one.summary.peak_op for one in recordings)
    for (_, scale), table in tables.items():
        for count in caches if scale == 1 else (AS_RECORDED,):
            key = (len(table), scale, count)
            if key not in seen:
                seen.add(key)
                ledger = peak_ledger(recordings, table, count, resident=True)
                rows.append(_row(ledger, *key))
        if progress is not None:
            progress(work)
    return Frontier(as_rows(np.array(rows, FRONTIER_DTYPE)))
