# SPDX-License-Identifier: Apache-2.0
"""Sizes and counts in jemalloc's statistics: malloc_stats_print with "J", or stats_print_opts:J.

Source: jemalloc 5, src/stats.c. `arenas` has the classes (bin, lextent); `stats.arenas` has what
lives in each of them, of all arenas together ("merged") or of each.
"""

from __future__ import annotations

import json
import re
from typing import Any

from spanwise.errors import InvalidError, TraceFormatError

NOUN = "jemalloc's statistics"
REMARK = "sizes are its classes, not what was asked for, so round-up is counted from them"

_BEGIN = re.compile(rb'\{\s*"jemalloc"')


def is_one(content: bytes) -> bool:
    """Whether it is such JSON; what the program printed before it does not matter."""
    return _BEGIN.search(content) is not None


def sizes(content: bytes, name: str, value: str) -> list[tuple[int, int]]:
    """Sizes of classes in bytes, and counts.

    Raises:
        InvalidError: it is other JSON, or has no statistics of arenas.
        TraceFormatError: it is cut or damaged.
    """
    stats = _parsed(content, name)
    try:
        small = [int(one["size"]) for one in stats["arenas"]["bin"]]
        large = [int(one["size"]) for one in stats["arenas"]["lextent"]]
        arenas = stats["stats.arenas"]
        chosen = [arenas["merged"]] if "merged" in arenas else _each(arenas)
        rows: list[tuple[int, int]] = []
        for arena in chosen:
            counts = "curregs" if value == "inuse" else "nrequests"
            rows += zip(small, (int(one[counts]) for one in arena["bins"]), strict=True)
            rows += zip(large, (int(one["curlextents"]) for one in arena["lextents"]), strict=True)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidError(
            f"{name}: lacks what jemalloc 5 tells of its bins and large extents ({error!r});"
            ' print it with the options "J" and nothing that leaves arenas or bins out'
        ) from None
    if any(size <= 0 or count < 0 for size, count in rows):
        raise TraceFormatError(f"{name}: a class has a size or a count that is impossible")
    return rows


def _each(arenas: dict[str, Any]) -> list[Any]:
    """The arenas that are numbered."""
    found = [one for number, one in arenas.items() if number.isdigit()]
    if not found:
        raise KeyError("stats.arenas")
    return found


def _parsed(content: bytes, name: str) -> dict[str, Any]:
    begin = _BEGIN.search(content)
    if begin is None:
        raise InvalidError(f"{name}: is no JSON of jemalloc's statistics")
    text = content[begin.start() :].decode("utf-8", "replace")
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        place = begin.start() + error.pos
        raise TraceFormatError(f"{name}: byte {place}: {error.msg}; it may be cut") from None
    stats = found["jemalloc"]
    if not isinstance(stats, dict):
        raise InvalidError(f"{name}: is no JSON of jemalloc's statistics")
    return stats
