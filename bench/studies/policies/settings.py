# SPDX-License-Identifier: Apache-2.0
"""The knobs beside size classes and the settings that are priced: each alone, and together."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping

import spanwise as sw
from spanwise.heap.options import DEFAULT
from spanwise.optimizer.neighbours import specs_of
from spanwise.tables.table import rebuild

KNOBS: dict[str, dict[str, sw.HeapOptions]] = {
    "span choice": {
        "lowest address": sw.HeapOptions(placement="address"),
        "fullest span": sw.HeapOptions(placement="fullest"),
        "lasting span": sw.HeapOptions(placement="lasting"),
    },
    "cache sizes": {
        "4 spans kept": sw.HeapOptions(batch_spans=4),
        "up to 4 kept, by use": sw.HeapOptions(batch_spans=4, batch_by_use=True),
    },
    "decay": {
        "decay 50 ms": sw.HeapOptions(decay_ms=50),
        "decay at once": sw.HeapOptions(decay_ms=0),
        "no decay": sw.HeapOptions(decay_ms=math.inf),
    },
}
"""Settings of one knob each. The default is lifo, no span kept, 500 ms."""

ALONE = {name: options for knob in KNOBS.values() for name, options in knob.items()}

TOGETHER = {
    "fullest, at once": sw.HeapOptions(placement="fullest", decay_ms=0),
    "all together": sw.HeapOptions(
        placement="lasting", batch_spans=4, batch_by_use=True, decay_ms=50
    ),
}

POLICIES = {**ALONE, **TOGETHER}

LENGTHS = ("spans of full length", "first lengths only")
"""Lengths of spans: c16's grow with their class from a first length to the full one."""


def length_table(name: str) -> sw.SizeClassTable:
    """c16 with other lengths of spans, by one of LENGTHS."""
    stock = sw.SizeClassTable.c16()
    first = name != LENGTHS[0]
    specs = [(size, short if first else pages) for size, pages, short in specs_of(stock)]
    called = "c16-first-lengths" if first else "c16-full-length"
    return rebuild(specs, called, stock.page_bytes, f"c16, {name}", {})


def highest(
    recording: sw.Recording, table: str | sw.SizeClassTable, options: sw.HeapOptions
) -> int:
    """The peak resident bytes of a dry heap that runs the recording."""
    ledger = recording.ledger(table, "peak-resident", options=options, progress=False)
    return ledger.resident_bytes or 0


def best_alone(saved: Mapping[str, list[float]]) -> str | None:
    """The setting of one knob that saves most on average; None: none saves anything.

    Args:
        saved: as of `best_of_each`.
    """
    best = max(ALONE, key=lambda name: statistics.mean(saved[name]))
    return best if statistics.mean(saved[best]) > 0 else None


def best_of_each(saved: Mapping[str, list[float]]) -> sw.HeapOptions | None:
    """The best settings of all knobs together; None: no setting saves anything, the default stays.

    Args:
        saved: by setting what it saves of each program on the input that is chosen by, percent.
    """
    chosen: dict[str, object] = {}
    for settings in KNOBS.values():
        best = max(settings, key=lambda name: statistics.mean(saved[name]))
        if statistics.mean(saved[best]) > 0:
            usual = DEFAULT.to_dict()
            given = settings[best].to_dict()
            chosen |= {key: value for key, value in given.items() if value != usual[key]}
    return dataclasses.replace(DEFAULT, **chosen) if chosen else None  # type: ignore[arg-type]
