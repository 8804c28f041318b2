# SPDX-License-Identifier: Apache-2.0
"""Sampled recordings: estimates of live and allocated bytes with 95 % intervals.

The recorder keeps an object of n bytes with probability p = 1 - exp(-n / sample_bytes),
independently of all others (src/recorder/sample.h), so it counts for 1 / p objects (Horvitz and
Thompson 1952): estimates are unbiased. An estimate y = sum(x / p) has variance v = sum(x^2 (1 - p)
/ p^2). Its interval is that of a gamma distribution with the mean y + k / 2 and the variance
v + k^2 / 2, where k is the largest contribution that an object which was not recorded could have
made; with equal contributions that is Jeffreys' interval of a Poisson count.

Spans, their free slots and fragmentation depend on all objects and cannot be estimated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import OPS_DTYPE, lib
from spanwise.recordings.history import History
from spanwise.recordings.live_sites import slots_of
from spanwise.recordings.names import Folding, build_ids_of
from spanwise.recordings.recorder import SAMPLE, SAMPLE_MAX, RecordOptions, record_and_print
from spanwise.recordings.sites import Site, merge_key, name_sites, rows_with_callers
from spanwise.recordings.sources import FileSource, sample_bytes_of
from spanwise.recordings.timeline import operation_of, parse_seconds
from spanwise.results.rows import Result, Rows, Tabular, Value, rows_of
from spanwise.tables.table import SizeClassTable, as_table

GROUPS = ("site", "class", "thread")
_MEASURES = ("requested_bytes", "roundup_bytes", "live_objects", "allocated_bytes", "allocations")
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SORTED_BY = ("requested_bytes", "allocated_bytes")
_NORMAL_95 = 1.959963984540054
_SHOWN = 20
FEW = 5
"""Groups with fewer recorded objects are summed in text output. Intervals hold of groups that are
chosen beforehand; of those that are seen only if an object happens to be recorded they do not."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate(Result):
    """An estimated sum.

    Attributes:
        value: unbiased.
        low: the true sum is in [low, high] in 95 of 100 recordings.
        high: see low.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """The bytes and the interval, unless it rounds to them: 4.2 [3.8, 4.7] MiB."""
        texts = [_format.size(round(one)) for one in (self.value, self.low, self.high)]
        if texts[1] == texts[2]:
            return texts[0]
        unit = texts[0].split()[1]
        if not self.value or self.high >= 1024 * _BYTES[unit]:
            unit = texts[2].split()[1]
        scale = _BYTES[unit]
        digits = 0 if unit == "B" else 1
        value, low, high = (
            f"{one / scale:.{digits}f}" for one in (self.value, self.low, self.high)
        )
        return f"{value} [{low}, {high}] {unit}"


def estimate_sum(
    amounts: Array, sizes: Array, sample_bytes: int, possible: Array | None = None
) -> Estimate:
    """Estimate a sum over all objects from those that were recorded."""
    parts, spread, largest = weigh(amounts, sizes, sample_bytes)
    if possible is not None:
        _, _, largest = weigh(possible, sizes, sample_bytes)
    return estimate_of(float(parts.sum()), float(spread.sum()), float(largest.max(initial=0.0)))


def weigh(amounts: Array, sizes: Array, sample_bytes: int) -> tuple[Array, Array, Array]:
    """Return what each recorded object adds to an estimate and to its variance.

    The third array has the contributions that such objects could have made without being recorded.
    """
    missed = np.exp(-np.maximum(sizes, 1) / sample_bytes)  # 1 - p
    each = amounts / (1 - missed)
    return each, each**2 * missed, each * np.sqrt(missed)


def estimate_of(value: float, variance: float, largest: float) -> Estimate:
    """Return an estimate with its interval from the sums, and the maximum, of `weigh`."""
    low, high = _gamma_interval(value + largest / 2, variance + largest**2 / 2)
    return Estimate(value, min(low, value), max(high, value))


def _gamma_interval(mean: float, variance: float) -> tuple[float, float]:
    """The 2.5 and 97.5 % quantiles of a gamma distribution (Wilson and Hilferty 1931)."""
    if variance <= 0 or mean <= 0:
        return mean, mean
    spread = variance / mean**2 / 9
    low, high = (max(1 - spread + z * spread**0.5, 0) for z in (-_NORMAL_95, _NORMAL_95))
    return mean * low**3, mean * high**3


@dataclass(frozen=True, repr=False, eq=False)
class Estimates(Result, Value, Tabular):
    """Estimated live objects at a moment, and allocations until the end, by group.

    Attributes:
        by: "site", "class" or "thread".
        at: the moment, as text.
        source: the recording.
        sample_bytes: mean bytes between sample points.
        total: estimates of all objects together, by measure: "requested_bytes", "roundup_bytes",
            "live_objects", "allocated_bytes" and "allocations".
        array: one row per group with recorded objects, most requested bytes first, then most
            allocated: the group (the lowest number of call sites with equal names, the slot bytes
            of a class or 0 for whole pages, a thread), `recorded` objects, then each measure with
            its limits in MEASURE_low and MEASURE_high.
        callers: what the groups are, as text.
        rest: requested bytes of all groups with fewer than FEW recorded objects.
        remark: what the recording does not include; usually empty.
    """

    by: str
    at: str
    source: str
    sample_bytes: int
    total: dict[str, Estimate]
    array: Rows
    callers: tuple[tuple[str, ...], ...]
    rest: Estimate
    remark: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        rows = self.array.to_dicts()
        return {
            "by": self.by,
            "at": self.at,
            "source": self.source,
            "sample_bytes": self.sample_bytes,
            "total": {name: one.to_dict() for name, one in self.total.items()},
            "rest": self.rest.to_dict(),
            **({"remark": self.remark} if self.remark else {}),
            "groups": [
                {**row, "what": list(what)} for row, what in zip(rows, self.callers, strict=True)
            ],
        }

    def _source(self) -> str:
        return self.source

    def _title(self) -> str:
        return (
            f"{self._source()}, a sample of one point per {_format.size(self.sample_bytes)}:"
            f" {self.total['requested_bytes']} requested at {self.at}; 95 % intervals"
        )

    def _rows(self) -> tuple[list[tuple[str, ...]], tuple[str, ...], str]:
        """Return the rows of the table, its head, and a line about the other groups or ""."""
        many = np.flatnonzero(self.array["recorded"] >= FEW)
        shown = many[:_SHOWN].tolist()
        counts = [
            (
                *(str(_of(self.array[i], name)) for name in _MEASURES[:2]),
                _format.size(round(self.array[i]["allocated_bytes"])),
                _format.number(int(self.array[i]["recorded"])),
            )
            for i in shown
        ]
        what = [self.callers[i] for i in shown]
        head = ("requested", "round-up", "allocated in all", "recorded")
        if self.by == "site":
            sites = [Site(i, 0, 0, names, names, names) for i, names in enumerate(what)]
            last = [row[-1] for row in rows_with_callers(sites, (), ())]
        else:
            last = [one[0] if one else "" for one in what]
        rows = [(*row, one) for row, one in zip(counts, last, strict=True)]
        few = len(self.array) - len(many)
        lines = [f"  ... {len(many) - _SHOWN:,} more"] * (len(many) > _SHOWN)
        noun = {"site": "call site"}.get(self.by, self.by)
        lines += [
            f"  ... {_format.plural(few, noun)} with fewer than {FEW} recorded objects:"
            f" {self.rest} requested"
        ] * (few > 0)
        last_head = "innermost callers" if self.by == "site" else self.by
        return rows, (*head, last_head), "\n".join(lines)

    def __repr__(self) -> str:
        rows, head, others = self._rows()
        table = _format.table(rows, head, indent="  ", names_last=True)
        return "\n".join(filter(None, (self._title(), table, others, self.remark)))

    def _repr_html_(self) -> str:
        rows, head, _ = self._rows()
        return _format.html_table(rows, head, self._title())


@dataclass
class GroupSums:
    """Sums over the recorded objects of a group, which add up over processes.

    Attributes:
        what: the group, as text.
        recorded: number of its recorded objects.
        sums: of each measure the estimate, its variance, and the largest contribution of an object
            that was not recorded: the arguments of `estimate_of`.
    """

    what: tuple[str, ...]
    recorded: int
    sums: Array

    def add(self, other: GroupSums) -> None:
        """Adds those of other objects."""
        self.recorded += other.recorded
        self.sums[:, :2] += other.sums[:, :2]
        np.maximum(self.sums[:, 2], other.sums[:, 2], out=self.sums[:, 2])

    def estimates(self) -> dict[str, Estimate]:
        """Return the estimates, by measure."""
        pairs = zip(_MEASURES, self.sums.tolist(), strict=True)
        return {name: estimate_of(*each) for name, each in pairs}


Groups = dict[int, GroupSums]


def sum_of(groups: Iterable[GroupSums]) -> GroupSums:
    """Return the sums of all groups together."""
    whole = GroupSums((), 0, np.zeros((len(_MEASURES), 3)))
    for one in groups:
        whole.add(one)
    return whole


def fields_of(
    groups: Groups,
) -> tuple[dict[str, Estimate], Rows, tuple[tuple[str, ...], ...], Estimate]:
    """Return the fields total, array, callers and rest of `Estimates`."""
    found = [(number, one, one.estimates()) for number, one in groups.items()]
    found.sort(key=lambda row: [-row[2][name].value for name in _SORTED_BY])
    rows = [{"group": number, "recorded": one.recorded, **_flat(e)} for number, one, e in found]
    columns = [one + end for one in _MEASURES for end in ("", "_low", "_high")]
    rest = sum_of(one for one in groups.values() if one.recorded < FEW).estimates()
    return (
        sum_of(groups.values()).estimates(),
        rows_of(rows, ("group", "recorded", *columns)),
        tuple(one.what for _, one, _ in found),
        rest["requested_bytes"],
    )


def _of(row: Any, name: str) -> Estimate:
    return Estimate(float(row[name]), float(row[f"{name}_low"]), float(row[f"{name}_high"]))


class SampledRecording(Result):
    """A recording of a sample of a program's objects.

    `SampledRecording.record` and `spanwise record --sample` make one.

    Attributes:
        path: the file.
        name: its name.
    """

    def __init__(self, history: History) -> None:
        self.path = history.path
        self.name = history.name
        self._history = history

    @classmethod
    def open(cls, path: str | os.PathLike[str], valid_prefix: bool = False) -> SampledRecording:
        """Open a sampled recording.

        Args:
            path: the file.
            valid_prefix: read a truncated or damaged file up to the damage.

        Raises:
            InvalidError: it is a recording of all objects.
            TraceFormatError: it is not a recording, truncated, damaged, or of a newer version.
            RecordingIOError: the file cannot be read.
        """
        source = FileSource(path, valid_prefix)
        history = History(source, path=source.path, name=Path(source.path).name)
        if sample_bytes_of(history.meta) == 0:
            raise errors.InvalidError(
                f"{history.name}: all objects are recorded, so nothing is estimated; use"
                " Recording.open, or spanwise ledger"
            )
        return cls(history)

    @classmethod
    def record(
        cls,
        argv: Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str] | None = None,
        *,
        sample_bytes: int = SAMPLE,
        **options: Any,
    ) -> SampledRecording:
        """Run a program and record a sample of its objects.

        There is one sample point per `sample_bytes` on average, at least 1. The options, and the
        errors, are those of `spanwise.record`.
        """
        if _lib.as_index(sample_bytes, "sample_bytes", SAMPLE_MAX) == 0:
            raise errors.InvalidError("sample_bytes 0: give at least 1, or use spanwise.record")
        given = RecordOptions(sample_bytes=sample_bytes, **options)
        return cls.open(record_and_print(argv, output, given).path)

    @property
    def sample_bytes(self) -> int:
        """Mean bytes between sample points."""
        return sample_bytes_of(self._history.meta)

    @property
    def program(self) -> str:
        """The program's argv[0]."""
        return self._history.program

    @property
    def arguments(self) -> list[str]:
        """The recorded program's command line."""
        return self._history.arguments

    @property
    def host(self) -> str:
        """Name of the machine that it was made on; "": it is not known."""
        return dict(self._history.meta).get("host", "")

    @property
    def version(self) -> str:
        """What `spanwise record --label` was given, or else the build id of the program; "": none.

        A build id is cut to twelve digits.
        """
        label = dict(self._history.meta).get("label", "")
        path = self._history.executable
        ids = (one.build_id[:12] for one in self._history.modules if one.path == path)
        return label or next(ids, "")

    @property
    def duration_ns(self) -> int:
        """Time of the last recorded event, since the start."""
        return self._history.summary.duration_ns

    @property
    def recorded_objects(self) -> int:
        """Objects that were recorded."""
        return self._history.summary.allocs

    @property
    def gaps(self) -> list[str]:
        """What the recording lacks, and why; empty if nothing is missing."""
        return self._history.summary.gaps()

    @cached_property
    def _ops(self) -> NDArray[np.void]:
        blocks = list(self._history.blocks(1 << 20))
        ops = np.concatenate(blocks) if blocks else np.empty(0, OPS_DTYPE)
        found: NDArray[np.void] = ops[ops["kind"] != lib.SW_OP_THREAD_END]
        return found

    def estimate(
        self, by: str = "site", at: str | float = "peak", table: SizeClassTable | str = "c16"
    ) -> Estimates:
        """Estimate the live objects at a moment, and all allocations, by group.

        Args:
            by: "site", "class" or "thread".
            at: "peak" (of the estimated requested bytes), "end", or seconds since the start.
            table: size classes of the round-up, or a table's name.

        Raises:
            InvalidError: an argument is not allowed.
        """
        if by not in GROUPS:
            raise errors.InvalidError(f"by {by!r} is unknown; give one of {', '.join(GROUPS)}")
        groups, when = self.sums(by, at, table)
        return Estimates(
            by, when, self.name, self.sample_bytes, *fields_of(groups), self._history.remark
        )

    def sums(self, by: str, at: str | float, table: SizeClassTable | str) -> tuple[Groups, str]:
        """Return the sums of each group's objects, by its number, and the moment's name."""
        made, ops = as_table(table), self._ops
        stop, when = self._stop(at)
        allocs = ops["kind"] == lib.SW_OP_ALLOC
        rows, live = ops[allocs], _is_live(ops, stop)[allocs]
        sizes = rows["size"].astype(np.float64)
        amounts, possible = (_amounts(rows, made, one) for one in (live, np.ones(len(rows), bool)))
        numbers, place = np.unique(self._keys(by, rows, made), return_inverse=True)
        found = np.zeros((len(numbers), len(_MEASURES), 3))
        for m, name in enumerate(_MEASURES):
            value, variance, _ = weigh(amounts[name], sizes, self.sample_bytes)
            _, _, largest = weigh(possible[name], sizes, self.sample_bytes)
            found[:, m, 0] = np.bincount(place, value, len(numbers))
            found[:, m, 1] = np.bincount(place, variance, len(numbers))
            np.maximum.at(found[:, m, 2], place, largest)
        counts = np.bincount(place, minlength=len(numbers)).tolist()
        what = self._names(by, numbers.tolist())
        each = zip(numbers.tolist(), what, counts, found, strict=True)
        return {number: GroupSums(text, n, sums) for number, text, n, sums in each}, when

    def _stop(self, at: str | float) -> tuple[int, str]:
        """Return the number of recorded operations until a moment, and its name."""
        ops = self._ops
        if at == "peak":
            return _peak(ops, self.sample_bytes), "peak"
        if at == "end":
            return len(ops), "end"
        if operation_of(at) is not None or at == "peak-resident":
            raise errors.InvalidError(
                f"{self.name}: moment {at!r} is not known from a sample; give peak, end, or a time"
            )
        seconds = parse_seconds(at)
        if seconds * 1e9 > self.duration_ns:
            raise errors.InvalidError(
                f"{self.name}: moment {at!r} is after its end; it lasts"
                f" {_format.seconds(self.duration_ns)}"
            )
        return int(np.searchsorted(ops["time_ns"], round(seconds * 1e9), "right")), f"{seconds:g} s"

    def _keys(self, by: str, rows: NDArray[np.void], table: SizeClassTable) -> NDArray[np.int64]:
        if by == "thread":
            return rows["thread"].astype(np.int64)
        if by == "class":
            return slots_of(rows["size"], rows["align_log2"], table)
        first: dict[tuple[str, ...] | int, int] = {}
        same = {i: first.setdefault(merge_key(site), i) for i, site in self._sites.items()}
        seen, place = np.unique(rows["site"], return_inverse=True)
        return np.array([same.get(one, one) for one in seen.tolist()], np.int64)[place]

    @cached_property
    def _sites(self) -> dict[int, Site]:
        """The call sites with names, by rising number."""
        frames = sorted(self._history.site_frames.items())
        sites = [Site(number, 0, 0, each) for number, each in frames]
        named = name_sites(sites, build_ids_of(self._history.modules), Folding())
        return {site.id: site for site in named}

    def _names(self, by: str, groups: list[int]) -> tuple[tuple[str, ...], ...]:
        if by == "thread":
            return tuple((f"thread {group}",) for group in groups)
        if by == "class":
            return tuple((f"{group} B" if group else "whole pages",) for group in groups)
        return tuple(self._sites[i].names if i in self._sites else () for i in groups)

    def to_dict(self) -> dict[str, Any]:
        """Return metadata and the estimates by site at the peak, for JSON."""
        return {
            "name": self.name,
            "path": self.path,
            "program": self.program,
            "arguments": self.arguments,
            "recorded_objects": self.recorded_objects,
            "estimates": self.estimate().to_dict(),
        }

    def __repr__(self) -> str:
        return (
            f"<SampledRecording {self.name}: {_format.plural(self.recorded_objects, 'object')},"
            f" one point per {_format.size(self.sample_bytes)}>"
        )


def _flat(each: dict[str, Estimate]) -> dict[str, float]:
    columns: tuple[tuple[str, Callable[[Estimate], float]], ...] = (
        ("", lambda one: one.value),
        ("_low", lambda one: one.low),
        ("_high", lambda one: one.high),
    )
    return {name + end: of(one) for name, one in each.items() for end, of in columns}


def _amounts(
    rows: NDArray[np.void], table: SizeClassTable, live: NDArray[np.bool_]
) -> dict[str, Array]:
    """What each recorded object adds to each measure."""
    sizes = rows["size"].astype(np.float64)
    slots = slots_of(rows["size"], rows["align_log2"], table).astype(np.float64)
    pages = np.ceil(sizes / table.page_bytes) * table.page_bytes
    whole = np.where(slots == 0, pages, slots)
    return {
        "requested_bytes": sizes * live,
        "roundup_bytes": (whole - sizes) * live,
        "live_objects": live.astype(np.float64),
        "allocated_bytes": sizes,
        "allocations": np.ones(len(rows)),
    }


def _is_live(ops: NDArray[np.void], stop: int) -> NDArray[np.bool_]:
    """Mark allocations of the first `stop` operations whose object is not freed by then."""
    last = np.full(int(ops["object"].max(initial=0)) + 1, -1)
    last[ops["object"][:stop]] = np.arange(stop)  # numpy keeps the last of repeated indices
    live = np.zeros(len(ops), bool)
    live[last[last >= 0]] = True
    live &= ops["kind"] == lib.SW_OP_ALLOC
    return live


def _peak(ops: NDArray[np.void], sample_bytes: int) -> int:
    """Return the number of operations after which most bytes are live, by the estimate."""
    if not len(ops):
        return 0
    order = np.argsort(ops["object"], kind="stable")  # each free follows its allocation
    sizes = ops["size"][order].astype(np.float64)
    weighed = sizes / -np.expm1(-np.maximum(sizes, 1) / sample_bytes)
    free = np.flatnonzero(ops["kind"][order] == lib.SW_OP_FREE)
    weighed[free] = -weighed[free - 1]
    change = np.zeros(len(ops))
    change[order] = weighed
    return int(np.argmax(np.cumsum(change))) + 1
