# SPDX-License-Identifier: Apache-2.0
"""Count lifetimes of objects by size class, call site or size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise._lib import lib
from spanwise.results.rows import Rows, as_rows
from spanwise.tables.table import SizeClassTable

GROUPS = ("class", "site", "size")
"""The kinds of groups that `lifetimes` takes as `by`."""

LIFETIMES_DTYPE = np.dtype(
    [
        ("cls", "<u4"),
        ("site", "<u4"),
        ("size_bytes", "<u8"),
        ("lifetime_ns", "<u8"),
        ("freed", "?"),
        ("count", "<u8"),
        ("total_bytes", "<u8"),
    ]
)
"""Objects of a group with similar lifetimes; columns of other kinds of groups are 0."""


def check_group(by: str) -> None:
    """Check the argument `by` of `lifetimes`."""
    if by not in GROUPS:
        raise errors.InvalidError(f"by {by!r}: use one of {', '.join(GROUPS)}")


def take_lifetimes(
    blocks: Iterator[NDArray[np.void]], by: str, table: SizeClassTable
) -> NDArray[np.void]:
    """Return rows of LIFETIMES_DTYPE by ascending key and lifetime, freed objects first."""
    objects, found, end_ns = _Objects(), _Counts(by, table), 0
    for block in blocks:
        rows = block[block["kind"] != lib.SW_OP_THREAD_END]
        if len(rows):
            end_ns = int(rows["time_ns"][-1])
            found.add(*objects.run(rows), freed=True)
    found.add(*objects.left(end_ns), freed=False)
    return found.rows()


Key = tuple[int, int, int, int, bool]
"""Class, site, size, lifetime, whether it was freed."""

Lived = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32]]
"""Arrays over objects: lifetime, ns; last size, bytes; site of the allocation."""


class _Objects:
    """Objects by id after the operations so far: birth, last size, site of the allocation."""

    def __init__(self) -> None:
        self._born = np.zeros(0, np.uint64)
        self._size = np.zeros(0, np.uint64)
        self._site = np.zeros(0, np.uint32)
        self._live = np.zeros(0, bool)

    def run(self, rows: NDArray[np.void]) -> Lived:
        """Process operations; return the objects that they free."""
        self._widen(int(rows["object"].max()) + 1)
        rows = rows[np.argsort(rows["object"], kind="stable")]
        ids, kind = rows["object"], rows["kind"]
        first = np.searchsorted(ids, ids)  # the first operation here on the same object
        allocs = kind == lib.SW_OP_ALLOC
        birth = _latest(allocs, first)
        sized = _latest(allocs | (kind == lib.SW_OP_REALLOC), first)
        born = np.where(birth < 0, self._born[ids], rows["time_ns"][birth])
        site = np.where(birth < 0, self._site[ids], rows["site"][birth])
        size = np.where(sized < 0, self._size[ids], rows["size"][sized])
        last = np.append(ids[1:] != ids[:-1], True)
        dead = kind == lib.SW_OP_FREE
        for kept, values in ((self._born, born), (self._size, size), (self._site, site)):
            kept[ids[last]] = values[last]
        self._live[ids[last]] = ~dead[last]
        return rows["time_ns"][dead] - born[dead], size[dead], site[dead]

    def left(self, now_ns: int) -> Lived:
        """Return the live objects; their lifetime is their age."""
        live = self._live
        return np.uint64(now_ns) - self._born[live], self._size[live], self._site[live]

    def _widen(self, count: int) -> None:
        more = count - len(self._live)
        if more > 0:
            more = max(more, len(self._live))
            self._born, self._size, self._site, self._live = (
                np.concatenate([one, np.zeros(more, one.dtype)])
                for one in (self._born, self._size, self._site, self._live)
            )


def _latest(wanted: NDArray[np.bool_], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each operation the last wanted one up to it on the same object; -1: none."""
    places = np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), -1))
    return np.where(places >= first, places, -1)


def floor_pow2(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Round down to powers of two; 0 stays 0."""
    _, exponent = np.frexp(values.astype(np.float64))
    powers = np.left_shift(np.uint64(1), np.maximum(exponent - 1, 0).astype(np.uint64))
    found: NDArray[np.uint64] = np.where(values > 0, powers, np.uint64(0))
    return found


@dataclass
class _Counts:
    """Counts and bytes of objects by group, lifetime and whether they were freed."""

    by: str
    table: SizeClassTable
    sums: dict[Key, list[int]] = field(default_factory=dict)

    def add(
        self,
        lived: NDArray[np.uint64],
        size: NDArray[np.uint64],
        site: NDArray[np.uint32],
        *,
        freed: bool,
    ) -> None:
        """Adds objects."""
        keys = self._keys(size, site)
        groups = np.stack([*keys, floor_pow2(lived)]).astype(np.uint64)
        unique, place = np.unique(groups, axis=1, return_inverse=True)
        counts = np.bincount(place.ravel(), minlength=unique.shape[1])
        total = np.zeros(unique.shape[1], np.uint64)
        np.add.at(total, place.ravel(), size)
        columns = zip(unique.T.tolist(), counts.tolist(), total.tolist(), strict=True)
        for (cls, number, size_bytes, lifetime), count, total_bytes in columns:
            one = self.sums.setdefault((cls, number, size_bytes, lifetime, freed), [0, 0])
            one[0] += count
            one[1] += total_bytes

    def _keys(
        self, size: NDArray[np.uint64], site: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint64], ...]:
        """Return class, site and size of each object; 0 if the groups are not by them."""
        none = np.zeros(len(size), np.uint64)
        if self.by == "site":
            return none, site.astype(np.uint64), none
        if self.by == "size":
            return none, none, floor_pow2(size)
        slots = np.asarray(self.table.classes["size_bytes"]).astype(np.uint64)
        cls = np.searchsorted(slots, size) + 1
        large = cls > len(slots)
        slot_bytes = np.where(large, 0, slots[np.minimum(cls, len(slots)) - 1])
        return np.where(large, 0, cls).astype(np.uint64), none, slot_bytes.astype(np.uint64)

    def rows(self) -> NDArray[np.void]:
        """Return all rows."""
        return _in_order(self.sums)


def _in_order(sums: Mapping[Key, Sequence[int]]) -> NDArray[np.void]:
    order = sorted(sums, key=lambda key: (key[:3], not key[4], key[3]))
    return np.array([(*key, *sums[key]) for key in order], LIFETIMES_DTYPE)


def add_lifetimes(found: Sequence[Rows]) -> Rows:
    """Add up lifetimes of several recordings."""
    sums: dict[Key, list[int]] = {}
    for row in (row for rows in found for row in np.asarray(rows).tolist()):
        one = sums.setdefault(row[:5], [0, 0])
        one[0] += row[5]
        one[1] += row[6]
    return as_rows(_in_order(sums))
