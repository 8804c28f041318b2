# SPDX-License-Identifier: Apache-2.0
"""The share of its large objects that a program writes, from a tracked run's figures.

Shares are percents with two decimals: of sort's buffer of 207 MiB one percent is a sixth of what it
writes.
"""

from __future__ import annotations

from dataclasses import replace

import spanwise as sw

_STEPS = 100  # of a percent


def written(ledger: sw.Ledger) -> float:
    """The percentage of the bytes of large objects that is resident in a tracked heap's ledger.

    Objects in slots count as written whole, so all requested bytes that are not resident are of
    large objects. At least 0.01.
    """
    large = int(ledger.classes["requested_bytes"][0])
    if large == 0 or ledger.resident is None:
        return 100
    lacking = ledger.requested_bytes - ledger.resident.requested_bytes
    return min(100 * _STEPS, max(1, round(100 * _STEPS * (large - lacking) / large))) / _STEPS


def fitted(
    recording: sw.Recording, least: float, resident_bytes: int, of_run: sw.HeapOptions | None = None
) -> float:
    """The percent, `least` to 100, with which a heap of so many resident bytes is predicted.

    A program may write to its buffers long after it has got them, and free them before it ends;
    their pages are still resident at the end, when `resident_bytes` was measured. `of_run`
    are the options of the measured heap.
    """

    def predicted(steps: int) -> int:
        options = replace(of_run or sw.HeapOptions(), large_touched_percent=steps / _STEPS)
        return recording.ledger("c16", "end", options=options).resident_bytes or 0

    low, high = round(_STEPS * least), 100 * _STEPS
    if predicted(high) <= resident_bytes:
        return 100
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if predicted(middle) <= resident_bytes else (low, middle)
    return min((low, high), key=lambda steps: abs(predicted(steps) - resident_bytes)) / _STEPS
