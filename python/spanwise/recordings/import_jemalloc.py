# SPDX-License-Identifier: Apache-2.0
"""Sizes and counts in jemalloc's statistics: malloc_stats_print with "J", or stats_print_opts:J.

Source: jemalloc 5, src/stats.c. `arenas` has the classes (bin, lextent); `stats.arenas` has what
lives in each of them, of all arenas together ("merged") or of each.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from spanwise import _format
from spanwise.errors import InvalidError, TraceFormatError
from spanwise.recordings.snapshots import Sample, Snapshot, largest_remainders

_NOUN = "dump of jemalloc's statistics"
_CLASSES = "sizes are its classes, not what was asked for, so round-up is counted from them"

_BEGIN = re.compile(rb'\{\s*"jemalloc"')


def is_one(content: bytes) -> bool:
    """Whether it is such JSON; what the program printed before it does not matter."""
    return _BEGIN.search(content) is not None


def snapshot(content: bytes, name: str, value: str) -> Snapshot:
    """Sizes of classes in bytes, and counts.

    Of large objects the JSON has what lives by class, and how many were allocated only in all. With
    the value "alloc" these are shared out over the classes as what lives is.

    Raises:
        InvalidError: it is other JSON, or has no statistics of arenas.
        TraceFormatError: it is cut or damaged.
    """
    stats, remarks = _parsed(content, name)
    try:
        small = [int(one["size"]) for one in stats["arenas"]["bin"]]
        large = [int(one["size"]) for one in stats["arenas"]["lextent"]]
        arenas = stats["stats.arenas"]
        chosen = [arenas["merged"]] if "merged" in arenas else _each(arenas)
        rows: list[tuple[int, int]] = []
        living: Counter[int] = Counter()
        for arena in chosen:
            counts = "curregs" if value == "inuse" else "nrequests"
            rows += zip(small, (int(one[counts]) for one in arena["bins"]), strict=True)
            for size, one in zip(large, arena["lextents"], strict=True):
                living[size] += int(one["curlextents"])
        allocated = sum(map(_large, chosen)) if value == "alloc" else living.total()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidError(
            f"{name}: lacks what jemalloc 5 tells of its bins and large extents ({error!r});"
            ' print it with the options "J" and nothing that leaves arenas or bins out'
        ) from None
    rows += living.items()
    if any(size <= 0 or count < 0 for size, count in rows):
        raise TraceFormatError(f"{name}: a class has a size or a count that is impossible")
    if allocated > living.total():
        dead, more = _dead(living, allocated)
        rows += dead
        remarks.append(more)
    samples = [Sample(count, size * count, size) for size, count in rows if count]
    return Snapshot(samples, _NOUN, [_CLASSES, *remarks])


def _large(arena: dict[str, Any]) -> int:
    """How many large objects were allocated: requests count those that a thread's cache served."""
    return max(int(arena["large"]["nmalloc"]), int(arena["large"].get("nrequests", 0)))


def _dead(living: Counter[int], allocated: int) -> tuple[list[tuple[int, int]], str]:
    """Large objects that were freed, by class, and what must be known of them."""
    dead = allocated - living.total()
    many = f"{_format.number(dead)} of its {_format.number(allocated)} large allocations"
    if not living.total():
        return [], f"{many} are left out, because the file does not have their sizes"
    found = largest_remainders(living, dead, living.total(), dead)
    return list(found.items()), f"{many} were freed, and are taken to have the sizes of the others"


def _each(arenas: dict[str, Any]) -> list[Any]:
    """The arenas that are numbered."""
    found = [one for number, one in arenas.items() if number.isdigit()]
    if not found:
        raise KeyError("stats.arenas")
    return found


def _parsed(content: bytes, name: str) -> tuple[dict[str, Any], list[str]]:
    """The last statistics in the file, and what must be known where there are several."""
    begins = [found.start() for found in _BEGIN.finditer(content)]
    if not begins:
        raise InvalidError(f"{name}: is no JSON of jemalloc's statistics")
    text = content[begins[-1] :].decode("utf-8", "replace")
    which = f"the last of {len(begins)} dumps in the file" if len(begins) > 1 else "it"
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        place = begins[-1] + error.pos
        raise TraceFormatError(f"{name}: byte {place}: {error.msg}; {which} may be cut") from None
    stats = found["jemalloc"]
    if not isinstance(stats, dict):
        raise InvalidError(f"{name}: is no JSON of jemalloc's statistics")
    return stats, [f"it is {which}"] if len(begins) > 1 else []
