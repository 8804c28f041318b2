# SPDX-License-Identifier: Apache-2.0
"""The options of a heap, as the C library takes them."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex

from spanwise import _lib, errors
from spanwise._lib import ffi, lib
from spanwise.tables.table import SizeClassTable

PLACEMENTS = {
    "lifo": lib.SW_PLACE_LIFO,
    "address": lib.SW_PLACE_ADDRESS,
    "fullest": lib.SW_PLACE_FULLEST,
}
"""Which partial span serves next: the last that became partial, the lowest, the fullest."""


def heap_options(
    table: SizeClassTable,
    *,
    tracked: bool = True,
    limit: SupportsIndex | None = None,
    placement: str = "lifo",
    decay_ms: float | None = None,
    batch: SupportsIndex = 0,
    dry: bool = False,
    tiny: bool = False,
    manual_clock: bool = False,
) -> Any:
    """A filled sw_heap_options; arguments as of `Heap`."""
    options = ffi.new("sw_heap_options *")
    lib.sw_heap_options_init(options)
    options.table = table._c
    if limit is not None:
        options.limit_bytes = _limit(limit)
    if placement not in PLACEMENTS:
        known = ", ".join(PLACEMENTS)
        raise errors.InvalidError(f"placement {placement!r} is unknown; use one of {known}")
    options.placement = PLACEMENTS[placement]
    options.decay_ns = _decay_ns(decay_ms)
    options.batch_spans = _lib.as_index(batch, "batch", 65535)
    options.tracked = bool(tracked)
    options.dry = bool(dry)
    options.tiny = bool(tiny)
    options.manual_clock = bool(manual_clock)
    return options


def _limit(limit: SupportsIndex) -> int:
    value = _lib.as_index(limit, "limit")
    if value == 0:
        raise errors.InvalidError("limit 0 leaves no room; give bytes, or None for no limit")
    return value


def _decay_ns(decay_ms: float | None) -> int:
    """Nanoseconds of the option. The C library takes 0 for its default, so "at once" is 1 ns."""
    if decay_ms is None:
        return 0
    if isinstance(decay_ms, bool) or not isinstance(decay_ms, int | float):
        raise TypeError(f"decay_ms must be a number, not {type(decay_ms).__name__}")
    if math.isnan(decay_ms) or decay_ms < 0:
        raise errors.InvalidError(f"decay_ms {decay_ms} is not a time; give 0 or more")
    if decay_ms * 1e6 >= 2**63:
        return (1 << 64) - 1
    return max(1, round(decay_ms * 1e6))
