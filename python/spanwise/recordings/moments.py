# SPDX-License-Identifier: Apache-2.0
"""Moments of a recording, as people write them: a name, an operation, or a time."""

from __future__ import annotations

from spanwise import errors
from spanwise.ledger.parts import MOMENTS

_GIVE = "give peak, peak-resident, end, an operation such as #1000, or a time such as 1.5s"


def operation_of(at: str | float) -> int | None:
    """The operations until a moment that is given as "#N"; None: it is given otherwise.

    Raises:
        InvalidError: what follows the "#" is no such number.
    """
    if not isinstance(at, str) or not at.strip().startswith("#"):
        return None
    digits = at.strip()[1:]
    if not (digits.isascii() and digits.isdigit()) or int(digits) >= 2**63:
        raise errors.InvalidError(f"moment {at!r}: {_GIVE}")
    return int(digits)


def parse_seconds(value: str | float) -> float:
    """A moment in seconds, 0 or more; text may end in ms or s.

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
        raise errors.InvalidError(f"moment {value!r}: {_GIVE}")
    return seconds


def parse_moment(value: str | float) -> str | float:
    """A moment in one form: a name, "#N", or seconds.

    Raises:
        InvalidError: it is none.
    """
    if value in MOMENTS:
        return value
    operation = operation_of(value)
    return parse_seconds(value) if operation is None else f"#{operation}"


def is_after(at: str | float, end_op: int, end_ns: int) -> bool:
    """Whether an operation is after the last, or a time more than a nanosecond after the end.

    Rounding to whole nanoseconds may add that one nanosecond.
    """
    operation = operation_of(at)
    if operation is not None:
        return operation > end_op
    return round(parse_seconds(at) * 1e9) > end_ns + 1
