# SPDX-License-Identifier: Apache-2.0
"""Live objects by call site, and the waste that each site keeps.

A span's tail and free slots are divided evenly among its live objects, because any one of them
keeps the whole span; a remainder goes to the first objects by address. So the bytes of sites, and
those of no site, add up exactly to the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise._lib import lib
from spanwise.ledger.ledger import Ledger, add_ledgers
from spanwise.recordings.simulate import Moment, Simulation, visit_moment
from spanwise.recordings.sites import LABEL, SiteList, callers, number_sites, same_sites
from spanwise.recordings.sources import Latest
from spanwise.results.rows import Result, Rows, Value, as_rows
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from typing_extensions import Self

_COUNTS = ("live_objects", "requested_bytes", "roundup_bytes", "kept_free_bytes", "resident_bytes")


@dataclass(frozen=True)
class LiveSite(Result):
    """A call site and its live objects.

    Attributes:
        id: as in the `site` column of the operations; 0 is the unknown site.
        live_objects: objects that were last allocated or resized there.
        requested_bytes: their requested sizes.
        roundup_bytes: round-up in slots, or rounding to whole pages.
        kept_free_bytes: their share of the free slots and tails of their spans.
        resident_bytes: their share of the resident bytes of these spans, divided like free bytes.
        frames: as in `Site`.
        names: as in `Site`, and so are full_names and through.
    """

    id: int
    live_objects: int
    requested_bytes: int
    roundup_bytes: int
    kept_free_bytes: int
    resident_bytes: int
    frames: tuple[str, ...]
    names: tuple[str, ...] = ()
    full_names: tuple[str, ...] = ()
    through: str = ""

    @property
    def waste_bytes(self) -> int:
        """Round-up, and free bytes that the site's objects keep."""
        return self.roundup_bytes + self.kept_free_bytes


@dataclass(frozen=True, repr=False, eq=False)
class LiveSites(SiteList[LiveSite], Result, Value):
    """Live objects at a moment by call site, most waste first.

    Attributes:
        sites: the sites, without names before `named`; iterating and indexing give them names.
        ledger: the ledger of that moment.
        no_site: bytes of the ledger that no live object keeps: `free_span_bytes` (empty spans
            and freed large objects that caches keep), `metadata_bytes`, `free_page_bytes`.
        build_ids: (path, id) of the modules; names are read from files with the same id only.
        imported: whether the recording was made from another tool's file.
    """

    sites: tuple[LiveSite, ...]
    ledger: Ledger
    no_site: dict[str, int]
    build_ids: tuple[tuple[str, str], ...] = ()
    imported: bool = False

    _counts = _COUNTS
    _head = ("live", "requested", "round-up", "free slots kept", "innermost callers")
    _more = "requested or wasted"

    @staticmethod
    def _bytes_of(site: LiveSite) -> int:
        return site.requested_bytes + site.waste_bytes

    def merged(self) -> Self:
        """Return sites with equal names merged, as printed."""
        return self._with(sorted(super().merged().sites, key=lambda site: -site.waste_bytes))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON; the label of a site is its innermost callers."""
        return {
            "sites": [{"label": callers([one], LABEL)[0], **one.to_dict()} for one in self],
            "no_site": dict(self.no_site),
            "ledger": self.ledger.to_dict(),
        }

    def _title(self) -> str:
        count = _format.plural(len(self.sites), "call site")
        what = f" of {self.ledger.source}" if self.ledger.source else ""
        return f"{count}{what} with live objects at {self.ledger.at}, most waste first, bytes"


# --- making ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """Live objects of a simulation at a moment, in the order of their addresses."""

    ids: NDArray[np.uint32]  # of the objects
    addresses: NDArray[np.uint64]  # of the objects
    spans: Rows  # rows of `Heap.spans`, by ascending address
    resident_bytes: NDArray[np.int64]  # of each span
    ledger: Ledger  # of the moment
    done: int  # number of operations until the moment


def live_at(simulation: Simulation, moment: Moment) -> tuple[Placed, Latest]:
    """Run a recording; return the live objects at a moment, and their addresses."""

    def read() -> tuple[Placed, Latest]:
        latest = Latest.until(simulation.source.blocks(1 << 20), simulation.done)
        ids = np.flatnonzero(latest.live).astype(np.uint32)
        return place(simulation, ids, simulation.ledger(moment.at)), latest

    placed, latest = visit_moment(simulation, moment, read)
    return replace(placed, ledger=replace(placed.ledger, stats=simulation.final_stats())), latest


def place(simulation: Simulation, ids: NDArray[np.uint32], ledger: Ledger) -> Placed:
    """Find the addresses of objects, without those that the heap refused."""
    found = simulation.addresses(ids)
    live = np.flatnonzero(found)
    order = live[np.argsort(found[live])]
    spans = simulation.spans()
    by_address = spans[np.argsort(np.asarray(spans["address"]))]
    resident = _resident(simulation, np.asarray(by_address["address"]))
    return Placed(ids[order], found[order], by_address, resident, ledger, simulation.done)


def _resident(simulation: Simulation, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
    tiles = simulation.heap_map("", slots=False).array
    order = np.argsort(np.asarray(tiles["address"]))
    tile = order[np.searchsorted(np.asarray(tiles["address"])[order], addresses)]
    return np.asarray(tiles["touched_bytes"])[tile].astype(np.int64)


@dataclass(frozen=True)
class LiveObjects:
    """Live objects at a moment, one per row.

    Attributes:
        site: that last allocated or resized it; the lowest id of sites with the same frames.
        thread: that last allocated or resized it.
        slot_bytes: of the class of its span; 0: whole pages.
        placed_ns: when it was last allocated or resized.
        counts: the columns of _COUNTS; `live_objects` is 1.
        placed: where they are; `placed.ledger` is the ledger of the moment.
    """

    site: NDArray[np.int64]
    thread: NDArray[np.uint32]
    slot_bytes: NDArray[np.int64]
    placed_ns: NDArray[np.uint64]
    counts: tuple[NDArray[np.int64], ...]
    placed: Placed

    @property
    def op(self) -> int:
        """The moment, as a number of operations."""
        return self.placed.done


def objects_of(
    placed: Placed, latest: Latest, table: SizeClassTable, frames: Mapping[int, tuple[str, ...]]
) -> LiveObjects:
    """Return what each live object occupies and keeps."""
    slot_bytes = np.concatenate([[0], table.classes["size_bytes"]]).astype(np.int64)
    spans = placed.spans
    of_span = span_of(placed)
    size = latest.size[placed.ids].astype(np.int64)
    slot = slot_bytes[spans["cls"][of_span]]
    whole = np.where(slot == 0, spans["bytes"][of_span].astype(np.int64), slot)
    free = _free_bytes(spans, of_span, slot_bytes)
    kept, resident = (_shares(each, of_span) for each in (free, placed.resident_bytes))
    seen, place = distinct(latest.site[placed.ids])
    same = same_sites(frames)
    site = np.array([same.get(one, one) for one in seen.tolist()], np.int64)[place]
    counts = (np.ones(len(size), np.int64), size, whole - size, kept, resident)
    thread, placed_ns = latest.thread[placed.ids], latest.time_ns[placed.ids]
    return LiveObjects(site, thread, slot, placed_ns, counts, placed)


def span_of(placed: Placed) -> NDArray[np.int64]:
    """Return the row of each object's span."""
    found: NDArray[np.int64] = np.searchsorted(
        placed.spans["address"], placed.addresses, side="right"
    )
    return found - 1


def add_by_site(
    objects: LiveObjects,
    frames: Mapping[int, tuple[str, ...]],
    build_ids: Mapping[str, str],
) -> LiveSites:
    """Add up live objects by site."""
    placed = objects.placed
    sites, place = distinct(objects.site)
    sums = [sum_by(place, column, len(sites)) for column in objects.counts]
    found = [
        _site(site, [int(column[i]) for column in sums], frames.get(site, ()))
        for i, site in enumerate(sites.tolist())
    ]
    found.sort(key=lambda site: (-site.waste_bytes, site.id))
    ledger, spans = placed.ledger, placed.spans
    empty = np.setdiff1d(np.arange(len(spans)), span_of(placed))
    no_site = {
        "free_span_bytes": int(spans["bytes"][empty].sum()),
        "metadata_bytes": ledger.metadata_bytes,
        "free_page_bytes": ledger.free_page_bytes,
    }
    return LiveSites(tuple(found), ledger, no_site, tuple(build_ids.items()))


def _site(number: int, counts: Sequence[int], frames: tuple[str, ...]) -> LiveSite:
    live, requested, roundup, kept, resident = counts  # as in _COUNTS
    return LiveSite(number, live, requested, roundup, kept, resident, frames)


def sum_by(place: NDArray[Any], values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the sums of the values by place, for `count` places."""
    total = np.zeros(count, np.int64)
    np.add.at(total, place, values)
    return total


def distinct(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct values, ascending, and the row of each value in them.

    As np.unique with return_inverse, but without a sort where the values, which must not be
    negative, are small: 10 times as fast for 2 million objects.
    """
    if len(values) == 0 or int(values.max()) >= _SMALL:
        return np.unique(values, return_inverse=True)
    is_here = np.zeros(int(values.max()) + 1, np.bool_)
    is_here[values] = True
    return np.flatnonzero(is_here).astype(values.dtype), (np.cumsum(is_here) - 1)[values]


_SMALL = 1 << 22
"""The largest table of `distinct`."""


def _free_bytes(spans: Rows, of_span: NDArray[Any], slot_bytes: Any) -> NDArray[np.int64]:
    """Return the bytes of free slots and tail of each span."""
    live = np.bincount(of_span, minlength=len(spans))
    used = live * np.where(spans["cls"] == 0, spans["bytes"], slot_bytes[spans["cls"]])
    free: NDArray[np.int64] = np.asarray(spans["bytes"]).astype(np.int64) - used.astype(np.int64)
    return free


def _shares(whole: NDArray[np.int64], of_span: NDArray[Any]) -> NDArray[np.int64]:
    """Return each object's share of its span's bytes; objects are sorted by address."""
    live = np.bincount(of_span, minlength=len(whole))
    first = np.concatenate([[0], np.cumsum(live)[:-1]])
    rank = np.arange(len(of_span)) - first[of_span]
    share, left = np.divmod(whole, np.maximum(live, 1))
    shares: NDArray[np.int64] = share[of_span] + (rank < left[of_span])
    return shares


def add_live_sites(found: Sequence[LiveSites], source: str) -> LiveSites:
    """Return the sum over several processes; sites with the same frames are merged."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for site in (site for one in found for site in one.sites):
        total = sums.setdefault(site.frames, [0] * len(_COUNTS))
        for i, name in enumerate(_COUNTS):
            total[i] += getattr(site, name)
    ids = number_sites(sums)
    sites = [_site(ids[frames], counts, frames) for frames, counts in sums.items()]
    sites.sort(key=lambda site: (-site.waste_bytes, site.id))
    names = found[0].no_site
    no_site = {name: sum(one.no_site[name] for one in found) for name in names}
    build_ids = dict(pair for one in found for pair in one.build_ids)
    ledger = add_ledgers([one.ledger for one in found], source)
    imported = all(one.imported for one in found)
    return LiveSites(tuple(sites), ledger, no_site, tuple(build_ids.items()), imported)


# --- by site, class and thread --------------------------------------------------------------------

_KEYS = ("site", "slot_bytes", "thread")
_GROUP_COUNTS = ("allocs", "allocated_bytes", "live_objects", "requested_bytes", "waste_bytes")
GROUPS_DTYPE = np.dtype(
    [("site", "<u4"), ("slot_bytes", "<u8"), ("thread", "<u4")]
    + [(one, "<i8") for one in _GROUP_COUNTS]
)
"""A group of `Recording.site_groups`."""

Key = tuple[int, ...]


def count_groups(
    blocks: Iterator[NDArray[np.void]], table: SizeClassTable, same: dict[int, int]
) -> dict[Key, list[int]]:
    """Count allocations by the keys of GROUPS_DTYPE; `same` maps sites to one with equal frames."""
    sums: dict[Key, list[int]] = {}
    for block in blocks:
        rows = block[block["kind"] == lib.SW_OP_ALLOC]
        slots = slots_of(rows["size"], rows["align_log2"], table)
        keys = (rows["site"], slots, rows["thread"])
        ones = np.ones(len(rows), np.int64)
        for (site, *others), counts in _sums_by(keys, (ones, rows["size"].astype(np.int64))):
            total = sums.setdefault((same.get(site, site), *others), [0] * len(_GROUP_COUNTS))
            total[0] += counts[0]
            total[1] += counts[1]
    return sums


def slots_of(
    sizes: NDArray[np.uint64], align_log2: NDArray[np.uint8], table: SizeClassTable
) -> NDArray[np.int64]:
    """Return the slot bytes of the class that serves each request; 0: whole pages."""
    slots = np.concatenate([np.asarray(table.classes["size_bytes"], np.int64), [0]])
    count = len(table)
    cls = np.searchsorted(slots[:count], sizes)
    for log2 in np.unique(align_log2).tolist():
        if log2 == 0:
            continue
        fits = slots[:count] % (1 << log2) == 0
        if 1 << log2 > table.page_bytes:
            fits[:] = False
        at_least = np.append(np.where(fits, np.arange(count), count), count)
        next_fit = np.minimum.accumulate(at_least[::-1])[::-1]
        mine = align_log2 == log2
        cls[mine] = next_fit[cls[mine]]
    found: NDArray[np.int64] = slots[cls]
    return found


def add_live(sums: dict[Key, list[int]], objects: LiveObjects) -> Rows:
    """Add live objects to groups of allocations; return rows of GROUPS_DTYPE by key."""
    live, requested, roundup, kept, _ = objects.counts
    keys = (objects.site, objects.slot_bytes, objects.thread)
    for key, counts in _sums_by(keys, (live, requested, roundup + kept)):
        total = sums.setdefault(key, [0] * len(_GROUP_COUNTS))
        total[2:] = counts
    rows = [(*key, *total) for key, total in sorted(sums.items())]
    made = np.array(rows, GROUPS_DTYPE)
    made.flags.writeable = False
    return as_rows(made)


def _sums_by(
    keys: tuple[NDArray[Any], ...], columns: tuple[NDArray[np.int64], ...]
) -> Iterable[tuple[Key, list[int]]]:
    """Return the sums of the columns over the rows with equal keys."""
    place = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        values, dense = np.unique(key, return_inverse=True)
        # There are at most as many distinct keys as rows, so the product fits into 64 bits.
        place = np.unique(place * len(values) + dense, return_inverse=True)[1]
    first = np.unique(place, return_index=True)[1]
    sums = [sum_by(place, column, len(first)).tolist() for column in columns]
    named = zip(*(key[first].tolist() for key in keys), strict=True)
    return zip(named, map(list, zip(*sums, strict=True)), strict=True)
