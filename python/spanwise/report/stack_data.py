# SPDX-License-Identifier: Apache-2.0
"""Call stacks and their bytes as data for the scripts of a page (docs/design/report.md)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanwise.recordings.live_sites import LiveSite, LiveSites
from spanwise.recordings.sites import Framed, Site, merge_key
from spanwise.recordings.wrappers import plain_function, split_place
from spanwise.report.flame import OF, printable, total_of, value_of
from spanwise.report.moments import Moment
from spanwise.report.stacks import chain_of

COUNTS = ("objects", "allocations")
"""Further quantities of a page: live objects, and allocations of the whole recording."""
PAIRS_MAX = 400
"""Pairs of a stack and a size class per moment; other sites of a class are counted together."""
_STEP = 1024
"""A value between moments is round(_STEP * log2(1 + value)) in 16 bits: to 0.04 %."""

Key: TypeAlias = tuple[str, ...] | int

_RUNTIME = re.compile(
    r"_start|__libc_start\w*|start_thread|clone3?|_dl_\w+|dlopen\w*|call_init"
    r"|_*Py(Eval|Run|Import|Marshal)_\w+|_?PyObject_(\w*Vectorcall|Call|MakeTpCall)\w*|_PyVectorcall\w+"
    r"|Py_(RunMain|BytesMain)|pymain_\w+|run_(mod|eval_code_obj)|do_call_core|object_vacall"
    r"|\w*vectorcall_\w+|method_vectorcall\w*|builtin_(exec|__import__)\w*|_?imp(ort)?_\w+"
    r"|marshal_loads\w*|r_object|read_object"
    r"|(std::(rt|sys|thread)|core::ops::function)::.*|runtime\.(main|goexit\d?)"
)


def is_runtime(name: str) -> bool:
    """Return whether a frame is of a language's runtime or start, or imports a module."""
    function, place = split_place(name)
    return "importlib" in place or _RUNTIME.fullmatch(plain_function(function)) is not None


class StackData:
    """The stacks of a page, those of its call sites first.

    Args:
        live: what a graph shows, with names.
        first: number of sites that have a stack in any case.
        most: maximum number of stacks; the others are summed. None: all.
        allocated: all sites of the recording, also those of the moments, with names.
        moments: of the recording; the largest share of any quantity at any moment counts.
        before: what `live` is compared with.
    """

    def __init__(
        self,
        live: LiveSites,
        first: int = 0,
        most: int | None = None,
        *,
        allocated: Sequence[Site] = (),
        moments: Sequence[Moment] = (),
        before: LiveSites | None = None,
    ) -> None:
        self._live, self._moments, self._before = live, moments, before
        self._rows: dict[Key, int] = {}
        self._names: list[tuple[str, ...]] = []
        self._through: list[str] = []
        every = [live, *([] if before is None else [before])]
        rows = [[self._row(site) for site in one] for one in every]
        self._row_of = {site.id: self._row(site) for site in allocated}
        values = np.zeros((len(every) + len(moments), len(self._names), len(OF + COUNTS)), np.int64)
        for i, one in enumerate(every):
            np.add.at(values[i], rows[i], [_quantities(site) for site in one] or 0)
        for site in allocated:
            values[0, self._row_of[site.id], -1] += site.allocs
        for i, moment in enumerate(moments, len(every)):
            objects, requested, roundup, kept, resident = moment.counts.T
            columns = [roundup + kept, roundup, kept, resident, requested, objects, 0 * objects]
            place = [self._row_of[site] for site in moment.sites.tolist()]
            np.add.at(values[i], place, np.stack(columns, axis=1))
        ledgers = [one.ledger for one in every] + [one.map.ledger for one in moments]
        self._totals = [
            [*(total_of(one, of) for of in OF), *values[i, :, len(OF) :].sum(0).tolist()]
            for i, one in enumerate(ledgers)
        ]
        self._values = self._cut(values, first, most)

    def _row(self, site: Framed) -> int:
        """Return the row of a site's stack."""
        row = self._rows.setdefault(merge_key(site), len(self._names))
        if row == len(self._names):
            self._names.append(chain_of(site))
            self._through.append(site.through)
        elif self._through[row] != site.through:
            self._through[row] = ""
        return row

    def _cut(self, values: NDArray[np.int64], first: int, most: int | None) -> NDArray[np.int64]:
        """Keep `most` stacks and sum the others; return the values."""
        shares = values / np.maximum(self._totals, 1)[:, None, :]
        largest = shares.max(axis=(0, 2), initial=0.0)
        largest[:first] = np.inf  # the first rows are those of the live sites, in their order
        order = np.argsort(-largest, kind="stable")
        shown, others = order[:most], order[len(order) if most is None else most :]
        self._other = len(shown)
        place = np.full(len(order), self._other)
        place[shown] = np.arange(len(shown))
        self.index = {key: int(place[row]) for key, row in self._rows.items()}
        self._row_of = {site: int(place[row]) for site, row in self._row_of.items()}
        self._names = [self._names[row] for row in shown]
        self._through = [self._through[row] for row in shown]
        if not len(others):
            return values[:, shown]
        self._names.append((f"[{len(others):,} more call sites]",))
        rest = values[:, others].sum(axis=1, keepdims=True)
        return np.concatenate([values[:, shown], rest], axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the data for JSON."""
        names: dict[str, int] = {}
        stacks = [
            [names.setdefault(printable(name), len(names)) for name in reversed(chain)]
            for chain in self._names
        ]
        made = {
            "of": list(OF + COUNTS),
            "at": self._live.ledger.at,
            "totals": self._totals[0],
            "names": list(names),
            "hidden": [i for name, i in names.items() if is_runtime(name)],
            "stacks": stacks,
            "through": {i: text for i, text in enumerate(self._through) if text},
            "values": self._values[0].tolist(),
        }
        if self._before is not None:
            made["before"] = {
                "totals": self._totals[1],
                "values": self._values[1].tolist(),
                "name": self._before.ledger.source,
            }
        if self._moments:
            slots = sorted({slot for one in self._moments for _, slot in one.slots})
            made["slots"] = slots
            made["moments"] = [
                {
                    "at": one.map.ledger.at,
                    "totals": self._totals[i],
                    "codes": encoded(self._values[i]),
                    "pairs": self._pairs(one, slots),
                }
                for i, one in enumerate(self._moments, len(self._totals) - len(self._moments))
            ]
        return made

    def _pairs(self, moment: Moment, slots: Sequence[int]) -> str:
        """Return stack, class and code of the number of objects, for each pair."""
        place = {slot: i for i, slot in enumerate(slots)}
        sums: dict[tuple[int, int], int] = {}
        for rank, ((site, slot), count) in enumerate(_largest(moment.slots)):
            pair = (self._row_of[site] if rank < PAIRS_MAX else self._other, place[slot])
            sums[pair] = sums.get(pair, 0) + count
        codes = codes_of(np.array(list(sums.values()), np.int64))
        pairs = [(*pair, code) for pair, code in zip(sums, codes.tolist(), strict=True)]
        return base64.b64encode(np.array(pairs, "<u2").tobytes()).decode("ascii")


def _quantities(site: LiveSite) -> list[int]:
    return [*(value_of(site, of) for of in OF), site.live_objects, 0]


def _largest(slots: Mapping[tuple[int, int], int]) -> list[tuple[tuple[int, int], int]]:
    return sorted(slots.items(), key=lambda one: -one[1])


def codes_of(values: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return 16-bit logarithms of values from 0 to 2**63."""
    found: NDArray[np.uint16] = np.round(_STEP * np.log2(1.0 + values)).astype("<u2")
    return found


def encoded(values: NDArray[np.int64]) -> str:
    """Return the 16-bit logarithms of values, row by row, in base 64."""
    return base64.b64encode(codes_of(values).tobytes()).decode("ascii")
