# SPDX-License-Identifier: Apache-2.0
"""Whether two runs left the same: masked text, bytes of artefacts, the first difference."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

TEXTS = ("stdout", "stderr", "replies")
SHOWN = 60


def mask(text: bytes, masks: Sequence[tuple[str, str]]) -> bytes:
    """Replaces what differs between any two runs (times, process numbers)."""
    for pattern, replacement in masks:
        text = re.sub(pattern.encode(), replacement.encode(), text)
    return text


def comparable(left: Mapping[str, bytes], masks: Sequence[tuple[str, str]]) -> dict[str, bytes]:
    """What a run left, with its texts masked; artefacts as they are."""
    return {name: mask(data, masks) if name in TEXTS else data for name, data in left.items()}


def digest(left: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each part, for the raw results."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in left.items()}


def difference(expected: Mapping[str, bytes], found: Mapping[str, bytes]) -> str:
    """Where two runs first differ, in one line; "" when they left the same.

    Args:
        expected: of glibc, from comparable().
        found: of another allocator.
    """
    for name in {**expected, **found}:
        if name not in found:
            return f"{name} was not written"
        if name not in expected:
            return f"{name} was written, but not with glibc"
        if expected[name] != found[name]:
            return _first(name, expected[name], found[name])
    return ""


def _first(name: str, expected: bytes, found: bytes) -> str:
    if name not in TEXTS:
        pairs = enumerate(zip(expected, found, strict=False))
        shorter = min(len(expected), len(found))
        place = next((i for i, (a, b) in pairs if a != b), shorter)
        return f"{name} differs at byte {place} ({len(found)} bytes, glibc {len(expected)})"
    theirs, ours = expected.splitlines(), found.splitlines()
    for number, (a, b) in enumerate(zip(theirs, ours, strict=False), 1):
        if a != b:
            return f"{name} line {number}: '{_line(b)}', glibc '{_line(a)}'"
    return f"{name} has {len(ours)} lines, glibc {len(theirs)}"


def _line(text: bytes) -> str:
    return text.decode(errors="replace")[:SHOWN]
