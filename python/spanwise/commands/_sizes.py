# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them: one rule for all commands and the preloaded malloc's variables.

Digits, then perhaps a unit, in any case: K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB,
MB, GB, TB are powers of 1000; B, or none, is bytes.
"""

from __future__ import annotations

import re

from spanwise.errors import InvalidError

HELP = "4096, 4K and 4KiB are the same, 4KB is 4000"
"""The rule in a few words."""

_SIZE = re.compile(r"([+-]?[0-9_]+) ?(?:([KMGT])(I?B)?|B)?", re.IGNORECASE)
_SHOWN = 40


def parse_size(word: str, what: str = "size") -> int:
    """Bytes; perhaps negative, which the caller judges.

    Args:
        word: what was written.
        what: its name in the error.

    Raises:
        InvalidError: it is no size.
    """
    match = _SIZE.fullmatch(word.strip())
    try:
        if match is None:
            raise ValueError
        number = int(match[1])
    except ValueError:
        shown = word if len(word) <= _SHOWN else word[: _SHOWN - 3] + "..."
        raise InvalidError(f"{what} {shown!r} is not a number of bytes: {HELP}") from None
    if match[2] is None:
        return number
    step = 1000 if (match[3] or "").upper() == "B" else 1024
    return int(number * step ** ("KMGT".index(match[2].upper()) + 1))
