# SPDX-License-Identifier: Apache-2.0
"""Span pinning: groups of live objects that keep partial spans, and the bytes that each pins.

A span with live objects and a free slot is *partial*. Each of its objects keeps the whole span, so
its free bytes are divided evenly (`live_sites.py`). But if all objects of a group were freed, only
spans without other objects would become empty. Each group has both numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, errors
from spanwise._lib import lib
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.live_sites import LiveObjects, span_of, sum_by
from spanwise.recordings.sites import (
    LABEL,
    ROOM_MIN,
    NamedSites,
    Site,
    callers,
    merge_key,
    merge_sites,
    unknown_text,
)
from spanwise.recordings.summary import floor_pow2
from spanwise.results.rows import Result, Rows, Value, as_rows, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUPS = ("site", "size", "age", "lifetime", "thread")
"""The kinds of groups that `span_pinning` takes as `by`."""

PINNED_SPANS_DTYPE = np.dtype(
    [("group", "<u8")]
    + [
        (name, "<i8")
        for name in (
            *("live_objects", "requested_bytes", "kept_free_bytes"),
            *("spans", "sole_spans", "released_bytes"),
        )
    ]
)
"""A group of `Recording.span_pinning`."""

NOT_FREED = np.iinfo(np.uint64).max
"""The lifetime group of objects that the recording never frees."""

_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))
SHOWN = 10
"""Number of groups in text output."""
_HEADS = {
    "site": "innermost callers",
    "size": "slots",
    "age": "age, at least (to twice that)",
    "lifetime": "life, at least (to twice that)",
    "thread": "thread",
}
_COLUMNS = ("released", "spans alone", "spans", "free kept", "live", "requested")


@dataclass(frozen=True)
class Holders:
    """Which groups have live objects in which partial spans: pairs of a span and a group."""

    span: NDArray[np.int64]  # numbers of spans
    group: NDArray[np.int64]  # rows of `SpanPinning.array`
    span_bytes: NDArray[np.int64]  # of each span

    def count(self, found: NDArray[np.void]) -> None:
        """Fill in `spans`, `sole_spans` and `released_bytes` of the groups."""
        alone = np.bincount(self.span, minlength=len(self.span_bytes))[self.span] == 1
        span, group = self.span[alone], self.group[alone]
        found["spans"] = np.bincount(self.group, minlength=len(found))
        found["sole_spans"] = np.bincount(group, minlength=len(found))
        found["released_bytes"] = sum_by(group, self.span_bytes[span], len(found))

    def merged(self, place: NDArray[np.int64]) -> Holders:
        """Return the same with other groups, given the new one of each group."""
        count = int(place.max(initial=0)) + 1
        span, group = np.divmod(np.unique(self.span * count + place[self.group]), count)
        return Holders(span, group, self.span_bytes)


@dataclass(frozen=True, repr=False, eq=False)
class SpanPinning(NamedSites[Site], Result, Value):
    """The groups of objects that pin partial spans at a moment, most pinned bytes first.

    Attributes:
        array: one row per group, `Rows` of PINNED_SPANS_DTYPE. `group` is the site's id, the slot's
            bytes, the thread's number, or nanoseconds, a power of two (lifetime 2**64 - 1:
            never freed). The other columns are for its objects in partial spans: `live_objects` and
            `requested_bytes`; `kept_free_bytes`, their even share of the free bytes; their `spans`;
            `sole_spans`, those without objects of other groups; and `released_bytes`, the size of
            the latter, which would become empty without the group.
        by: the kind of groups: "site", "size", "age", "lifetime" or "thread".
        ledger: of the moment.
        spans: number of partial spans.
        free_bytes: free slots and tails of these.
        sites: the call site of each group, without names before `named`; () if groups are not
            sites. Text and JSON always have names.
        build_ids: as in `LiveSites`.
        imported: as in `LiveSites`.
        holders: of the spans; None: unknown.
    """

    array: Rows
    by: str
    ledger: Ledger
    spans: int
    free_bytes: int
    sites: tuple[Site, ...] = ()
    build_ids: tuple[tuple[str, str], ...] = ()
    imported: bool = False
    holders: Holders | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.array)

    def merged(self) -> SpanPinning:
        """Return call sites with equal names merged, as printed: a span may be pinned by both."""
        if self.by != "site" or self.holders is None:
            return self
        first: dict[tuple[str, ...] | int, int] = {}
        keys = [merge_key(site) for site in self._named]
        place = np.array([first.setdefault(key, len(first)) for key in keys], np.int64)
        found = np.zeros(len(first), PINNED_SPANS_DTYPE)
        for name in ("live_objects", "requested_bytes", "kept_free_bytes"):
            found[name] = sum_by(place, self.array[name], len(first))
        holders = self.holders.merged(place)
        holders.count(found)
        sites = merge_sites(self._named, ())
        found["group"] = [site.id for site in sites]
        order = _most_first(found)
        return replace(
            self,
            array=as_rows(found[order]),
            sites=tuple(sites[i] for i in order.tolist()),
            holders=None,
        )

    def labels(self, most: int = LABEL) -> list[str]:
        """Return the name of each group, at most `most` characters, in the order of `array`."""
        keys = self.array["group"].tolist()
        if self.by == "site":
            return callers(self._named, most)
        if self.by == "size":
            return [_format.size(key).replace(".0 ", " ") for key in keys]
        if self.by == "thread":
            return [str(key) for key in keys]
        return ["not freed" if key == NOT_FREED else _time(key) for key in keys]

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        rows = self.array.to_dicts()
        if self.by == "site":
            for row, site in zip(rows, self._named, strict=True):
                row["frames"], row["names"] = list(site.frames), list(site.names)
                row["full_names"], row["through"] = list(site.full_names), site.through
        return {
            "by": self.by,
            "spans": self.spans,
            "free_bytes": self.free_bytes,
            "groups": rows,
            "ledger": self.ledger.to_dict(),
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the groups with `spanwise.plots.span_pinning`."""
        return draw("span_pinning", self.merged(), ax)

    # --- text ---

    def _title(self) -> str:
        what = f" of {self.ledger.source}" if self.ledger.source else ""
        return (
            f"{_format.plural(self.spans, 'partial span')}{what} at {self.ledger.at}, table"
            f" {self.ledger.table}, with {_format.number(self.free_bytes)} free bytes; who holds"
            " them, bytes"
        )

    def _text_rows(self) -> list[tuple[str, ...]]:
        order = ("released_bytes", "sole_spans", "spans", "kept_free_bytes", "live_objects")
        numbers = [
            [_format.number(int(row[name])) for name in (*order, "requested_bytes")]
            for row in self.array[:SHOWN]
        ]
        used = sum(2 + max(map(len, column)) for column in zip(_COLUMNS, *numbers, strict=True))
        labels = self.labels(max(_format.terminal_width() - used - 2, ROOM_MIN))
        return [(label, *row) for label, row in zip(labels[:SHOWN], numbers, strict=True)]

    def __repr__(self) -> str:
        head, merged = (_HEADS[self.by], *_COLUMNS), self.merged()
        lines = [self._title(), _format.table(merged._text_rows(), head, indent="  ")]
        if len(merged) > SHOWN:
            lines.append(f"  ... {_format.plural(len(merged) - SHOWN, 'group')} more")
        if self.by == "site" and self.array["group"].tolist() == [0]:
            lines.append(f"  {unknown_text(self.imported)}")
        return _format.clipped("\n".join(lines))

    def _repr_html_(self) -> str:
        rows = self.merged()._text_rows()
        return _format.html_table(rows, (_HEADS[self.by], *_COLUMNS), self._title())


def _time(ns: int) -> str:
    """Format a power of two with three digits in a suitable unit."""
    scale, unit = next(one for one in _TIMES if ns >= one[0] or one[0] == 1)
    return f"{_format.digits(ns / scale, 3)} {unit}"


def check_by(by: str) -> None:
    """Check the argument `by` of `span_pinning`."""
    if by not in GROUPS:
        raise errors.InvalidError(f"by {by!r}: use one of {', '.join(GROUPS)}")


def keys_of(
    by: str, objects: LiveObjects, blocks: Iterator[NDArray[np.void]]
) -> NDArray[np.uint64]:
    """Return the group of each live object; `blocks` are all operations, for lifetimes."""
    placed = objects.placed
    if by == "age":
        now = np.uint64(placed.ledger.time_ns)
        return floor_pow2(now - np.minimum(objects.placed_ns, now))
    if by == "lifetime":
        return lifetimes_of(blocks, placed.done, placed.ids)
    columns: dict[str, NDArray[Any]] = {
        "site": objects.site,
        "size": objects.slot_bytes,
        "thread": objects.thread,
    }
    found: NDArray[np.uint64] = columns[by].astype(np.uint64)
    return found


def lifetimes_of(
    blocks: Iterator[NDArray[np.void]], done: int, ids: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    """Return total lifetimes of objects as powers of two; NOT_FREED if never freed."""
    count = int(ids.max(initial=0)) + 1
    born, died = np.zeros(count, np.uint64), np.full(count, NOT_FREED, np.uint64)
    for block in blocks:
        before, after = block[: max(done, 0)], block[max(done, 0) :]
        done -= len(block)
        births = before[before["kind"] == lib.SW_OP_ALLOC]
        births = births[births["object"] < count]
        born[births["object"]] = births["time_ns"]  # of repeated indices numpy keeps the last
        ends = after[after["kind"] == lib.SW_OP_FREE]
        ends = ends[ends["object"] < count][::-1]  # reversed, so that the first free counts
        ends = ends[died[ends["object"]] == NOT_FREED]
        died[ends["object"]] = ends["time_ns"]
    lived = died[ids] - born[ids]
    found: NDArray[np.uint64] = np.where(died[ids] == NOT_FREED, NOT_FREED, floor_pow2(lived))
    return found


def span_pinning_of(objects: LiveObjects, keys: NDArray[np.uint64], by: str) -> SpanPinning:
    """Sum up the spans and bytes that groups pin; `keys` are the groups of the objects."""
    placed = objects.placed
    spans, of_span = placed.spans, span_of(placed)
    live = np.bincount(of_span, minlength=len(spans))
    partial = (np.asarray(spans["cls"]) != 0) & (live > 0) & (live < np.asarray(spans["slots"]))
    mine = np.flatnonzero(partial[of_span])
    groups, place = np.unique(keys[mine], return_inverse=True)
    found = np.zeros(len(groups), PINNED_SPANS_DTYPE)
    found["group"] = groups
    counts = objects.counts
    for name, column in (
        *(("live_objects", counts[0]), ("requested_bytes", counts[1])),
        ("kept_free_bytes", counts[3]),
    ):
        found[name] = sum_by(place, column[mine], len(groups))
    pairs = np.unique(of_span[mine] * max(len(groups), 1) + place)
    span, group = np.divmod(pairs, max(len(groups), 1))
    holders = Holders(span, group, np.asarray(spans["bytes"]).astype(np.int64))
    holders.count(found)
    order = _most_first(found)
    rows = found[order]
    rows.flags.writeable = False
    free, count = int(found["kept_free_bytes"].sum()), int(partial.sum())
    holders = holders.merged(np.argsort(order))
    return SpanPinning(as_rows(rows), by, placed.ledger, count, free, holders=holders)


def _most_first(found: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the order of groups: most released bytes first."""
    return np.lexsort((found["group"], -found["kept_free_bytes"], -found["released_bytes"]))
