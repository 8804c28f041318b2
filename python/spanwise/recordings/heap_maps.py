# SPDX-License-Identifier: Apache-2.0
"""Heap maps of a recording: the simulated heap at one moment, or at many of one pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spanwise import _format
from spanwise.heap.heap_map import PLACED_DTYPE, HeapMap, place_objects
from spanwise.recordings.latest import Latest
from spanwise.recordings.simulate import Simulation, look_once, visit
from spanwise.recordings.sources import Source
from spanwise.results.progress import Step


def map_at(
    source: Source,
    simulation: Simulation,
    names: tuple[str, str],
    stop: tuple[int | None, int | None],
    progress: Step | None = None,
) -> HeapMap:
    """Runs a recording; the map of one moment, with slots and with the objects that live then.

    The arguments are those of `live_sites.look_at_live`.
    """

    def look() -> HeapMap:
        latest = Latest.until(source.blocks(1 << 20), simulation.done)
        ids = np.flatnonzero(latest.live).astype(np.uint32)
        found = simulation.addresses(ids)
        rows = np.zeros(len(ids), PLACED_DTYPE)
        rows["requested_bytes"], rows["site"] = latest.size[ids], latest.site[ids]
        rows["born_ns"] = latest.time_ns[ids]
        made = simulation.heap_map(*names, slots=True)
        return replace(made, placed=place_objects(made.array, found, rows))

    made = look_once(source, simulation, look, stop_op=stop[0], stop_ns=stop[1], progress=progress)
    return replace(made, ledger=replace(made.ledger, stats=simulation.stats()))


def maps_through(
    source: Source,
    simulation: Simulation,
    name: str,
    spread: tuple[int, int, int],
    progress: Step | None = None,
) -> list[HeapMap]:
    """Runs a recording; maps at evenly spread operations and at the peak, without slots.

    Args:
        source: the operations.
        simulation: a fresh one.
        name: of the source, for the ledgers.
        spread: how many operations there are, over how many moments they are spread, and after how
            many operations most is requested (0: nothing ever is).
        progress: called after each batch.
    """
    ops, samples, peak_op = spread
    count = min(samples, ops)
    stops = {ops * (i + 1) // count for i in range(count)} | ({peak_op} - {0})
    found: list[HeapMap] = []

    def take() -> None:
        at = "peak" if simulation.done == peak_op else _format.seconds(simulation.time_ns)
        found.append(simulation.heap_map(at, name, slots=False))

    visit(source, simulation, sorted(stops), take, progress)
    return found
