# SPDX-License-Identifier: Apache-2.0
"""The Pareto front: simulated waste at the peak versus number of classes.

More classes round up less but leave more spans partly empty; longer spans have shorter tails but
more free slots; more caches hold more free slots. So the total waste is U-shaped.
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
from spanwise.results.jobs import Step, no_step
from spanwise.results.rows import Result, Rows, Tabular, Value, as_rows, draw
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = ("requested", "roundup", "tail", "free_slot", "cached", "metadata", "other")
PARETO_DTYPE = np.dtype(
    [
        *((name, "<u4") for name in ("classes", "span_scale", "caches")),
        *((f"{name}_bytes", "<u8") for name in (*_PARTS, "held", "resident")),
    ]
)
"""A point: bytes at the peak. free_slot_bytes: in partly empty spans; cached_bytes: in spans that
caches allocate from; other_bytes: large rounding and free pages; held_bytes: the sum of the others;
resident_bytes: the resident part of held_bytes. caches 0: one per recorded thread."""

AS_RECORDED = 0
"""A number of caches that means one per recorded thread."""


class _SpreadSource:
    """The same operations with object i on cache i modulo `caches`.

    The cache that allocates an object also frees it, so only the number of caches changes.
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
    progress: Step = no_step,
    *,
    resident: bool = False,
) -> Ledger:
    """Return the ledger at the peak of requested bytes, summed over the recordings' own peaks."""
    ledgers = []
    for one in recordings:
        with Simulation(table, name=one.name, resident=resident) as simulation:
            # Operations after the peak do not matter.
            run_to(simulation, one, one.summary.peak_op, progress, caches)
            ledgers.append(simulation.ledger("peak"))
    return add_ledgers(ledgers, "recordings")


def run_to(
    simulation: Simulation,
    recording: Recording,
    stop: int,
    progress: Step,
    caches: int = AS_RECORDED,
) -> None:
    """Run `stop` operations of a recording."""
    before = 0
    for done in _runs(simulation, recording, stop, caches):
        progress(done - before)
        before = done


def _runs(simulation: Simulation, recording: Recording, stop: int, caches: int) -> Iterator[int]:
    """Run batch by batch; yield the number of operations done."""
    source = recording.source
    if caches == AS_RECORDED and isinstance(source, FileSource):
        trace, more = source.open(), True
        while more and simulation.done < stop:
            more = simulation.run_trace(trace, min(simulation.done + FILE_STEP, stop))
            yield simulation.done
        return
    spread = source if caches == AS_RECORDED else _SpreadSource(source, caches)
    for batch in spread.batches():
        simulation.run(batch.first(min(batch.count, stop - simulation.done)))
        yield simulation.done
        if simulation.done == stop:
            return


@dataclass(frozen=True, repr=False, eq=False)
class ParetoFront(Result, Value, Tabular):
    """Waste versus number of classes, with a curve per span length and number of caches.

    Attributes:
        array: rows of PARETO_DTYPE.
    """

    array: Rows

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", as_rows(np.asarray(self.array)))

    def curve(self, span_scale: int = 1, caches: int = AS_RECORDED) -> NDArray[np.void]:
        """Return the points of a curve by number of classes."""
        fits = (self.array["span_scale"] == span_scale) & (self.array["caches"] == caches)
        chosen = self.array[fits]
        ordered: NDArray[np.void] = chosen[np.argsort(chosen["classes"], kind="stable")]
        return ordered

    def curves(self) -> list[tuple[int, int]]:
        """Return (span_scale, caches) of each curve."""
        return sorted({(int(r["span_scale"]), int(r["caches"])) for r in self.array})

    def best(self, span_scale: int = 1, caches: int = AS_RECORDED) -> np.void:
        """Return the lowest point of a curve: least resident bytes, then fewest classes."""
        curve = self.curve(span_scale, caches)
        lowest: np.void = curve[int(np.argmin(curve["resident_bytes"]))]
        return lowest

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        names = self.array.dtype.names or ()
        figures = ("span_scale", "caches", "classes", "resident_bytes", "held_bytes")
        lowest = [self.best(*curve) for curve in self.curves()]
        return {
            "rows": [{name: int(row[name]) for name in names} for row in self.array],
            "minima": [{name: int(row[name]) for name in figures} for row in lowest],
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
            lowest = self.best(scale, caches)["classes"]
            lines += [_line(row, row["classes"] == lowest) for row in self.curve(scale, caches)]
        return _format.table(lines, head, left=0)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw resident minus requested bytes, one line per curve, with the minima marked."""
        return draw("pareto", self, ax)


def _line(row: np.void, lowest: bool) -> tuple[str, ...]:
    cells = (
        _format.number(int(row[f"{name}_bytes"])) for name in (*_PARTS[1:], "held", "resident")
    )
    caches = "recorded" if row["caches"] == AS_RECORDED else str(row["caches"])
    mark = "least" if lowest else ""
    return (str(row["classes"]), f"x{row['span_scale']}", caches, *cells, mark)


def _row(ledger: Ledger, classes: int, scale: int, caches: int) -> tuple[int, ...]:
    assert ledger.resident_bytes is not None
    parts = [int(getattr(ledger, f"{name}_bytes")) for name in _PARTS[:-1]]
    other = ledger.large_rounding_bytes + ledger.free_page_bytes
    return (classes, scale, caches, *parts, other, ledger.held_bytes, ledger.resident_bytes)


def simulate_pareto(
    recordings: Sequence[Recording],
    tables: dict[tuple[int, int], SizeClassTable],
    caches: Sequence[int],
    progress: Step = no_step,
) -> ParetoFront:
    """Simulate tables up to the peak."""
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
        progress(work)
    return ParetoFront(as_rows(np.array(rows, PARETO_DTYPE)))
