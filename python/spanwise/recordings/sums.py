# SPDX-License-Identifier: Apache-2.0
"""What several recordings say, added up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import lib
from spanwise.recordings.summary import HISTOGRAM_DTYPE, Summary
from spanwise.results.rows import Rows, as_rows

if TYPE_CHECKING:
    from spanwise.recordings.recording import Recording

_MOST = ("largest_bytes", "duration_ns", "drop_reason")
"""The fields of a summary of which the largest is taken; of the others the sum is."""


def add_summaries(summaries: Sequence[Summary]) -> Summary:
    """The totals of all. Peaks are added as if they fell together; peak_op is 0: there is none."""
    values = [one.to_dict() for one in summaries]
    total = {
        name: (max if name in _MOST else sum)(value[name] for value in values) for name in values[0]
    }
    return Summary(**{**total, "peak_op": 0})


def add_histograms(histograms: Sequence[Rows]) -> Rows:
    """Requests by size of all, by rising size."""
    rows = np.concatenate([np.asarray(one) for one in histograms])
    sizes, inverse = np.unique(rows["size_bytes"], return_inverse=True)
    total = np.zeros(len(sizes), HISTOGRAM_DTYPE)
    total["size_bytes"] = sizes
    np.add.at(total["count"], inverse, rows["count"])
    total["total_bytes"] = total["size_bytes"] * total["count"]
    return as_rows(total)


def add_timelines(timelines: Sequence[Rows]) -> Rows:
    """Time lines added up: at each time of one of them, the last row of each until then."""
    times = np.unique(np.concatenate([rows["time_ns"] for rows in timelines]))
    total = np.zeros(len(times), timelines[0].dtype)
    for rows in timelines:
        last = np.searchsorted(rows["time_ns"], times, side="right") - 1
        for name in total.dtype.names or ():
            total[name] += np.where(last >= 0, rows[name][last], 0) if len(rows) else 0
    total["time_ns"] = times
    return as_rows(total)


def apart(recordings: Sequence[Recording], rows: int) -> Iterator[NDArray[np.void]]:
    """The operations one recording after the other, with distinct numbers in each.

    This holds for objects, threads and sites; the unknown site stays 0.
    """
    first = dict.fromkeys(("object", "thread", "site"), 0)
    for one in recordings:
        after = dict(first)
        for block in one.blocks(rows):
            moved = np.array(block)
            event = block["kind"] != lib.SW_OP_THREAD_END
            for name, counts in (("object", event), ("thread", True), ("site", block["site"] > 0)):
                moved[name] = np.where(counts, moved[name] + first[name], moved[name])
                after[name] = max(after[name], int(moved[name].max(initial=0)) + 1)
            yield moved
        first = after
