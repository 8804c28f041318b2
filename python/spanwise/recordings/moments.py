# SPDX-License-Identifier: Apache-2.0
"""Moments of a recording, as people write them."""

from __future__ import annotations

from spanwise import errors


def parse_seconds(value: str | float, named: str = "peak, peak-resident, end") -> float:
    """A moment in seconds, 0 or more; text may end in ms or s.

    Args:
        value: the moment.
        named: moments with names that the caller knows, for the message.

    Raises:
        InvalidError: it is no such moment.
    """
    number, scale = value, 1.0
    if isinstance(value, str):
        word = value.strip()
        scale = 1e-3 if word.endswith("ms") else 1.0
        number = word.removesuffix("ms").removesuffix("s")
    try:
        seconds = float(number) * scale
    except (TypeError, ValueError):
        seconds = -1.0
    if isinstance(value, bool) or not 0 <= seconds < 2**63 / 1e9:
        raise errors.InvalidError(f"moment {value!r}: give {named}, or a time such as 1.5s")
    return seconds


def is_after(at: str | float, end_ns: int) -> bool:
    """Whether a time is more than a nanosecond, which rounding may add, after the end."""
    return round(parse_seconds(at) * 1e9) > end_ns + 1
