# SPDX-License-Identifier: Apache-2.0
"""Which rows an option --rows selects."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from runner.errors import BenchError


def matches(name: str, pattern: str | None) -> bool:
    """Whether a row's name fits a shell pattern, or has the text in it when it is no pattern."""
    if pattern is None:
        return True
    if any(mark in pattern for mark in "*?["):
        return fnmatch.fnmatchcase(name, pattern)
    return pattern in name


def choose(names: Sequence[str], pattern: str | None) -> list[str]:
    """The names that a pattern selects; a name that it spells out is selected alone.

    Raises:
        BenchError: it selects none.
    """
    chosen = [name for name in names if name == pattern] or [
        name for name in names if matches(name, pattern)
    ]
    if not chosen:
        raise _none_match(pattern, names)
    return chosen


def _none_match(pattern: str | None, names: Sequence[str]) -> BenchError:
    shown = ", ".join(names[:4])
    return BenchError(f"--rows '{pattern}' matches no row; there are {len(names)}: {shown}, ...")
