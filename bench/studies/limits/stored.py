# SPDX-License-Identifier: Apache-2.0
"""What `./dev study limits --json` wrote, read back: drawn or written again without measuring."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.counts import Counts
from runner.errors import BenchError
from runner.stats import Interval, order_rank

from studies.limits.lines import Line


@dataclass(frozen=True)
class Stored:
    """A file of measured limits.

    Attributes:
        lines: in the file's order; of what was counted, what the file has.
        about: the rest: machine, compiler, commit.
        count: repetitions; 0 when the file does not say.
    """

    lines: list[Line]
    about: dict[str, Any]
    count: int


def stored_limits(path: Path) -> Stored:
    """Reads a file.

    Raises:
        BenchError: it cannot be read or is not of `./dev study limits --json`.
    """
    try:
        whole = json.loads(path.read_text())
        about = {name: value for name, value in whole.items() if name != "rows"}
        lines = [_line(row) for row in whole["rows"]]
        return Stored(lines, about, int(whole.get("repetitions", 0)))
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchError(f"{path} is no file of ./dev study limits --json") from error


def _line(row: dict[str, Any]) -> Line:
    values = [float(value) for value in row["values"]]
    return Line(
        bench=row["bench"],
        who=row["step"],
        kind=row["kind"],
        version=row["version"],
        values=values,
        peer=row["peer"] or "",
        over_peer=_spread(row, "over_peer", len(values)),
        before=row["before"] or "",
        more=_spread(row, "more", len(values)),
        counted=_counted(row),
    )


def _counted(row: dict[str, Any]) -> Counts | None:
    if row["instructions"] is None:
        return None
    more = {name: row[name] for name in ("mispredicted", "missed")}
    return Counts(row["instructions"], loads=0, stores=0, branches=0, calls=0, **more)


def _spread(row: dict[str, Any], name: str, count: int) -> Interval | None:
    if row[name] is None:
        return None
    _, coverage = order_rank(count)
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"], coverage, count)
