# SPDX-License-Identifier: Apache-2.0
"""Call stacks and their bytes as data for the scripts of a page (docs/design/report.md)."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanwise.recordings.live_sites import LiveSites
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
        allocated: all sites of the recording, for allocations.
        moments: with names; the largest share of any quantity at any moment counts.
        before: what `live` is compared with.
    """

    def __init__(
        self,
        live: LiveSites,
        first: int = 0,
        most: int | None = None,
        *,
        allocated: Iterable[Site] = (),
        moments: Sequence[Moment] = (),
        before: LiveSites | None = None,
    ) -> None:
        self._live, self._moments, self._before = live, moments, before
        self._chains: dict[Key, tuple[str, ...]] = {}
        every = [live, *(one.live for one in moments), *([] if before is None else [before])]
        sums = [self._by_stack(one) for one in every]
        for site in allocated:
            self._row(sums[0], site)[-1] += site.allocs
        keys = list(self._chains)
        none = [0] * len(OF + COUNTS)
        values = np.array([[one.get(key, none) for key in keys] for one in sums], np.int64)
        values = values.reshape(len(sums), len(keys), len(none))
        self._totals = [
            [*(total_of(one.ledger, of) for of in OF), *values[i, :, len(OF) :].sum(0).tolist()]
            for i, one in enumerate(every)
        ]
        shares = values / np.maximum(self._totals, 1)[:, None, :]
        largest = shares.max(axis=(0, 2), initial=0.0)
        largest[:first] = np.inf  # the first keys are those of `live`, in its order
        order = np.argsort(-largest, kind="stable")
        shown, others = order[:most], order[len(order) if most is None else most :]
        self._names = [self._chains[keys[i]] for i in shown]
        self._values = values[:, shown]
        self.index = {keys[i]: row for row, i in enumerate(shown.tolist())}
        if len(others):
            self._names.append((f"[{len(others):,} more call sites]",))
            rest = values[:, others].sum(axis=1, keepdims=True)
            self._values = np.concatenate([self._values, rest], axis=1)

    def _row(self, sums: dict[Key, list[int]], site: Framed) -> list[int]:
        key = merge_key(site)
        self._chains.setdefault(key, chain_of(site))
        return sums.setdefault(key, [0] * len(OF + COUNTS))

    def _by_stack(self, live: LiveSites) -> dict[Key, list[int]]:
        sums: dict[Key, list[int]] = {}
        for site in live:
            row = self._row(sums, site)
            for i, of in enumerate(OF):
                row[i] += value_of(site, of)
            row[len(OF)] += site.live_objects
        return sums

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
            "values": self._values[0].tolist(),
        }
        if self._before is not None:
            made["before"] = {
                "totals": self._totals[-1],
                "values": self._values[-1].tolist(),
                "name": self._before.ledger.source,
            }
        if self._moments:
            slots = sorted({slot for one in self._moments for _, slot in one.slots})
            made["slots"] = slots
            made["moments"] = [
                {
                    "at": one.live.ledger.at,
                    "totals": self._totals[1 + i],
                    "codes": encoded(self._values[1 + i]),
                    "pairs": self._pairs(one, slots),
                }
                for i, one in enumerate(self._moments)
            ]
        return made

    def _pairs(self, moment: Moment, slots: Sequence[int]) -> str:
        """Return stack, class and code of the number of objects, for each pair."""
        place = {slot: i for i, slot in enumerate(slots)}
        row = {site.id: self.index.get(merge_key(site), len(self.index)) for site in moment.live}
        sums: dict[tuple[int, int], int] = {}
        for rank, ((site, slot), count) in enumerate(_largest(moment.slots)):
            pair = (row[site] if rank < PAIRS_MAX else len(self.index), place[slot])
            sums[pair] = sums.get(pair, 0) + count
        codes = codes_of(np.array(list(sums.values()), np.int64))
        pairs = [(*pair, code) for pair, code in zip(sums, codes.tolist(), strict=True)]
        return base64.b64encode(np.array(pairs, "<u2").tobytes()).decode("ascii")


def _largest(slots: Mapping[tuple[int, int], int]) -> list[tuple[tuple[int, int], int]]:
    return sorted(slots.items(), key=lambda one: -one[1])


def codes_of(values: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return 16-bit logarithms of values from 0 to 2**63."""
    found: NDArray[np.uint16] = np.round(_STEP * np.log2(1.0 + values)).astype("<u2")
    return found


def encoded(values: NDArray[np.int64]) -> str:
    """Return the 16-bit logarithms of values, row by row, in base 64."""
    return base64.b64encode(codes_of(values).tobytes()).decode("ascii")
