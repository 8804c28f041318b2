# SPDX-License-Identifier: Apache-2.0
"""The options of a heap, and their conversion to the C struct."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from spanwise import _lib, errors
from spanwise._lib import ffi, lib
from spanwise.results.rows import Result
from spanwise.tables.table import SizeClassTable

PLACEMENTS = {
    "lifo": lib.SW_PLACE_LIFO,
    "address": lib.SW_PLACE_ADDRESS,
    "fullest": lib.SW_PLACE_FULLEST,
    "lasting": lib.SW_PLACE_LASTING,
}
"""Which partial span serves next: the one that became partial last, the lowest address, the
fullest, or the one that will be empty last, predicted from the history of its class."""


_PPM_OF_PERCENT = 10_000


@dataclass(frozen=True)
class HeapOptions(Result):
    """How a heap places objects and returns memory to the system. Immutable.

    Attributes:
        limit_bytes: limit of committed bytes, pages and metadata; None: no limit. A heap commits
            about 20 KiB when it is created and 130 KiB with its first object, so under a smaller
            limit every allocation raises LimitError.
        placement: which partly used span serves next: "lifo" (the last to become so), "address"
            (the lowest), "fullest" (with the fewest free slots) or "lasting" (the one that is
            expected to be empty last).
        decay_ms: idle pages are returned to the system after one to two times this time in
            milliseconds; None: 500; math.inf: never.
        batch_spans: empty spans that a thread keeps per class.
        large_touched_percent: for simulations: the share of each large object that the program
            writes, from its start; 0.0001 to 100, rounded to four decimals.

    Raises:
        TypeError, InvalidError: a value is not allowed.

    >>> options = HeapOptions(limit_bytes=1 << 20, decay_ms=math.inf)
    >>> with Heap(options=options) as heap:
    ...     heap.alloc(2 << 20)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    spanwise.errors.LimitError: the limit is reached
    """

    limit_bytes: int | None = None
    placement: str = "lifo"
    decay_ms: float | None = None
    batch_spans: int = 0
    large_touched_percent: float = 100

    def __post_init__(self) -> None:
        if self.limit_bytes is not None:
            limit = _lib.as_index(self.limit_bytes, "limit_bytes")
            if limit == 0:
                raise errors.InvalidError(
                    "limit_bytes 0 leaves no room; give bytes, or None for no limit"
                )
            object.__setattr__(self, "limit_bytes", limit)
        _lib.as_choice(self.placement, "placement", PLACEMENTS)
        if self.decay_ms is not None:
            object.__setattr__(self, "decay_ms", _decay(self.decay_ms))
        batch = _lib.as_index(self.batch_spans, "batch_spans", 65535)
        object.__setattr__(self, "batch_spans", batch)
        object.__setattr__(self, "large_touched_percent", _share(self.large_touched_percent))

    @property
    def decay_ns(self) -> int:
        """decay_ms for the C library, whose default is 0; so "at once" is 1 ns."""
        if self.decay_ms is None:
            return 0
        if self.decay_ms * 1e6 >= 2**63:
            return (1 << 64) - 1
        return max(1, round(self.decay_ms * 1e6))


def _number(given: Any, name: str) -> float:
    value = given.item() if hasattr(given, "item") else given
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    return value


def _share(percent: Any) -> float:
    """Return the percentage rounded to whole ppm; whole percents stay integers."""
    value = _number(percent, "large_touched_percent")
    if not (_PPM_OF_PERCENT * value >= 0.5 and value <= 100):
        raise errors.InvalidError(f"large_touched_percent {value}: give 0.0001 to 100")
    ppm = round(_PPM_OF_PERCENT * value)
    whole = ppm % _PPM_OF_PERCENT == 0
    return ppm // _PPM_OF_PERCENT if whole else ppm / _PPM_OF_PERCENT


def _decay(decay_ms: Any) -> float:
    value = _number(decay_ms, "decay_ms")
    if math.isnan(value) or value < 0:
        raise errors.InvalidError(f"decay_ms {value} is not a time; give 0 or more")
    return value


DEFAULT = HeapOptions()
"""The default options of a heap."""


def as_options(options: HeapOptions | None) -> HeapOptions:
    """Return the options, or the default ones for None."""
    _lib.check_type(options, (HeapOptions, type(None)), "options")
    return DEFAULT if options is None else options


def check_real(options: HeapOptions, dry: bool = False) -> None:
    """Reject options of simulations for a real heap."""
    if options.large_touched_percent != 100 and not dry:
        raise errors.InvalidError(
            "large_touched_percent is for simulations; a program that runs writes what it writes"
        )


def read_protect(protect: str | None) -> tuple[Any, bool]:
    """Return sw_heap_options.protect, to be kept until the heap is made; and whether it is set."""
    if protect is None:
        return ffi.NULL, False
    if not isinstance(protect, str):
        raise TypeError(f"protect must be a string or None, not {type(protect).__name__}")
    names = ffi.new("char[]", protect.encode("utf-8", "replace"))
    return names, any(name not in ("", "default") for name in protect.split(","))


def c_options(
    table: SizeClassTable,
    options: HeapOptions,
    *,
    tracked: bool = True,
    dry: bool = False,
    tiny: bool = False,
    manual_clock: bool = False,
    touch_map: bool = False,
) -> Any:
    """Return a filled sw_heap_options. With touch_map, a dry heap tracks writes."""
    check_real(options, dry)
    made = _lib.options_of(
        "sw_heap_options",
        table=table._c,
        placement=PLACEMENTS[options.placement],
        decay_ns=options.decay_ns,
        batch_spans=options.batch_spans,
        tracked=bool(tracked),
        dry=bool(dry),
        tiny=bool(tiny),
        manual_clock=bool(manual_clock),
        touch_map=bool(touch_map),
    )
    if options.limit_bytes is not None:
        made.limit_bytes = options.limit_bytes
    if touch_map:
        made.large_touched_ppm = round(_PPM_OF_PERCENT * options.large_touched_percent)
    return made
