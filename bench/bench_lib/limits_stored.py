# SPDX-License-Identifier: Apache-2.0
"""What `./dev bench --limits --json` wrote, read back: it can be drawn again without measuring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench_lib.errors import BenchError
from bench_lib.limits import Line
from bench_lib.stats import Interval, order_rank


def stored_lines(path: Path) -> list[Line]:
    """The lines of a file, in its order; without counts.

    Raises:
        BenchError: it cannot be read or is not of `--limits`.
    """
    try:
        return [_line(row) for row in json.loads(path.read_text())["rows"]]
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} is no file of ./dev bench --limits --json") from error


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
        counted=None,
    )


def _spread(row: dict[str, Any], name: str, count: int) -> Interval | None:
    if row[name] is None:
        return None
    _, coverage = order_rank(count)
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"], coverage, count)
