# SPDX-License-Identifier: Apache-2.0
"""Heap maps: the spans, large objects and free pages of a heap, in page order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise.ledger.ledger import Ledger
from spanwise.results.rows import Result, Rows, Tabular, Value, as_rows, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TILES_DTYPE = _lib.dtype_of("sw_tile")
"""One tile of a map, as sw_tile of include/spanwise/stats.h."""

SPANS_DTYPE = _lib.dtype_of("sw_span_info")
"""One span of `Heap.spans()`, as sw_span_info of include/spanwise/stats.h."""

PLACED_DTYPE = np.dtype(
    [("offset", "<u8"), ("requested_bytes", "<u8"), ("born_ns", "<u8"), ("site", "<u4")]
)
"""A live object of a simulated heap; born_ns is the time of its last allocation or resize."""

SLOTS_DTYPE = np.dtype(
    [
        ("slot", "<u4"),
        ("offset", "<u8"),
        ("live", "?"),
        ("requested_bytes", "<u4"),
        ("born_ns", "<u8"),
        ("site", "<u4"),
    ]
)
"""A slot of `HeapMap.slots`; born_ns and site are 0 if unknown."""

KINDS = ("slots", "large", "free")
"""The names of the values of `kind`: a span of slots, a large object, free pages."""

_SLOTS, _FREE_SLOT = int(lib.SW_TILE_SLOTS), int(lib.SW_SLOT_FREE)


@dataclass(frozen=True, repr=False, eq=False)
class HeapMap(Result, Value, Tabular):
    """A snapshot of a heap as tiles: its spans, large objects and runs of free pages.

    The bytes of all tiles and the ledger's metadata add up to its `held_bytes`.

    Attributes:
        array: one row per tile by ascending offset. Columns: address, offset (from the heap's
            start), bytes; kind (0: span of slots, 1: large object, 2: free pages), cls (0: no
            class), slots, live (of them), cache (number of its thread cache, 0: none);
            requested_bytes, roundup_bytes, tail_bytes, free_bytes; touched_bytes (resident;
            2**64 - 1: not queried); first_slot (of the span, in slot_requested_bytes), flags (as
            sw_tile of include/spanwise/stats.h).
        ledger: the ledger at the same moment.
        page_bytes: page size of the heap's table.
        slot_requested_bytes: requested bytes of each slot of all spans, 2**32 - 1 for a free slot;
            None: not recorded.
        placed: the live objects of a simulated heap, by ascending offset. Columns: offset,
            requested_bytes, born_ns (last allocation or resize), site. None: unknown.
    """

    array: Rows
    ledger: Ledger
    page_bytes: int
    slot_requested_bytes: NDArray[np.uint32] | None = None
    placed: Rows | None = None

    def __len__(self) -> int:
        return len(self.array)

    @property
    def occupancy(self) -> NDArray[np.float64]:
        """Share of live slots of each tile; 0 for free pages."""
        return np.asarray(self.array["live"] / np.maximum(self.array["slots"], 1))

    @property
    def age_ns(self) -> NDArray[np.float64] | None:
        """Age of the oldest live object of each tile; NaN without one; None: unknown."""
        if self.placed is None:
            return None
        ages = np.full(len(self), np.nan)
        tile = np.searchsorted(self.array["offset"], self.placed["offset"], side="right") - 1
        born = self.placed["born_ns"].astype(np.float64)
        np.fmax.at(ages, tile, self.ledger.time_ns - born)
        return ages

    def slots(self, tile: int) -> Rows:
        """Return the slots of one tile; a large object is one slot.

        Columns: slot (number), offset, live, requested_bytes; born_ns and site, 0 if unknown.

        Args:
            tile: its index in `array`.

        Raises:
            InvalidError: there is no such tile, or the map has no slots.
        """
        index = _lib.as_index(tile, "tile")
        if index >= len(self):
            raise errors.InvalidError(f"tile {tile}: the map has {len(self)}")
        row = self.array[index]
        count = int(row["slots"])
        found = np.zeros(count, SLOTS_DTYPE)
        found["slot"] = np.arange(count)
        size = (int(row["bytes"]) - int(row["tail_bytes"])) // max(count, 1)
        found["offset"] = int(row["offset"]) + found["slot"].astype(np.uint64) * np.uint64(size)
        requested = self._requested(row)
        found["live"] = requested != _FREE_SLOT
        found["requested_bytes"] = np.where(found["live"], requested, 0)
        if self.placed is not None:
            offsets = self.placed["offset"]
            end = int(row["offset"]) + int(row["bytes"])
            first, last = np.searchsorted(offsets, [int(row["offset"]), end])
            of_slot = np.searchsorted(found["offset"], offsets[first:last])
            for name in ("born_ns", "site"):
                found[name][of_slot] = self.placed[name][first:last]
        return as_rows(found)

    def _requested(self, row: Any) -> NDArray[np.uint32]:
        """Return the requested bytes of each slot of a tile."""
        count = int(row["slots"])
        if row["kind"] == _SLOTS:
            if self.slot_requested_bytes is None:
                raise errors.InvalidError("this map was made without slots; use map(at=...)")
            first = int(row["first_slot"])
            return self.slot_requested_bytes[first : first + count]
        asked = min(int(row["requested_bytes"]), _FREE_SLOT - 1) if row["live"] else _FREE_SLOT
        return np.full(count, asked, np.uint32)

    def to_dict(self) -> dict[str, Any]:
        """Return the tiles and the ledger, for JSON."""
        return {
            "page_bytes": self.page_bytes,
            "tiles": self.array.to_dicts(),
            "ledger": self.ledger.to_dict(),
        }

    # --- pictures and text ---

    def plot(self, ax: Axes | None = None, *, by: str = "occupancy") -> Axes:
        """Draw the map; see `spanwise.plots.heap_map`."""
        return draw("heap_map", self, ax, by=by)

    def plot_slots(self, tile: int, ax: Axes | None = None) -> Axes:
        """Draw the slots of one tile; see `spanwise.plots.slots`."""
        return draw("slots", self, tile, ax)

    def _text_rows(self) -> list[tuple[str, ...]]:
        rows = []
        for kind, name in enumerate(KINDS):
            tiles = self.array[self.array["kind"] == kind]
            sums = [int(tiles[column].sum()) for column in ("live", "bytes", "free_bytes")]
            rows.append(
                (name, _format.number(len(tiles)), *(_format.number(value) for value in sums))
            )
        return rows

    def _title(self) -> str:
        what = f" of {self.ledger.source}" if self.ledger.source else ""
        return f"heap map{what} at {self.ledger.at}, table {self.ledger.table}"

    def __repr__(self) -> str:
        table = _format.table(self._text_rows(), _HEAD, indent="  ")
        return _format.clipped(f"{self._title()}\n{table}")

    def _repr_html_(self) -> str:
        return _format.html_table(self._text_rows(), _HEAD, self._title())


_HEAD = ("kind", "tiles", "live", "bytes", "free bytes")


def read_tiles(
    c_heap: Any, *, touched: bool, slots: bool
) -> tuple[Rows, NDArray[np.uint32] | None]:
    """Read the tiles of a C heap, and the requested bytes of each slot; the caller pins it."""
    out = ffi.new("sw_heap_map *")
    tiles, requested = np.zeros(0, TILES_DTYPE), np.zeros(0, np.uint32)
    while True:
        out.tiles = _lib.pointer(tiles, "sw_tile *") if len(tiles) else ffi.NULL
        out.requested = _lib.pointer(requested, "uint32_t *") if len(requested) else ffi.NULL
        out.tile_capacity, out.slot_capacity = len(tiles), len(requested)
        check(lib.sw_heap_map_read(c_heap, int(touched), out))
        wanted = int(out.slot_count) if slots else 0
        if out.tile_count <= len(tiles) and wanted <= len(requested):
            break
        # Other threads may add spans between the two calls, so allocate a sixteenth more.
        tiles = np.zeros(int(out.tile_count) * 17 // 16, TILES_DTYPE)
        requested = np.zeros(wanted * 17 // 16, np.uint32)
    found, kept = tiles[: out.tile_count], requested[:wanted]
    found.flags.writeable = kept.flags.writeable = False
    return as_rows(found), kept if slots else None


def place_objects(tiles: Rows, addresses: NDArray[np.uint64], rows: NDArray[np.void]) -> Rows:
    """Fill in the offsets of live objects, and sort the objects by offset."""
    # With sorted addresses, the searches visit the tiles in order and offsets are mostly sorted.
    by_address = np.argsort(addresses)[np.count_nonzero(addresses == 0) :]
    kept, at = rows[by_address], addresses[by_address]
    order = np.argsort(np.asarray(tiles["address"]))
    first = np.asarray(tiles["address"])[order]
    tile = order[np.searchsorted(first, at, side="right") - 1]
    kept["offset"] = tiles["offset"][tile] + (at - tiles["address"][tile])
    if (kept["offset"][1:] < kept["offset"][:-1]).any():
        kept = kept[np.argsort(kept["offset"])]
    kept.flags.writeable = False
    return as_rows(kept)


def read_spans(c_heap: Any) -> Rows:
    """Return one row per span of a C heap, in heap order. The caller pins the heap."""
    room = int(lib.sw_heap_spans(c_heap, ffi.NULL, 0))
    while True:
        rows = np.zeros(room, SPANS_DTYPE)
        count = int(lib.sw_heap_spans(c_heap, _lib.pointer(rows, "sw_span_info *"), room))
        if count <= room:
            return as_rows(rows[:count])
        room = count  # other threads have added spans
