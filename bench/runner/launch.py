# SPDX-License-Identifier: Apache-2.0
"""What a command used, as src/launch/main.c reports it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """What a finished command used.

    Attributes:
        wall_s: from start to end, seconds.
        cpu_s: user and system time of the command and its children, seconds.
        peak_rss_bytes: of its largest process.
        error: "" after exit status 0, else how it ended.
    """

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    error: str = ""


def read_usage(report: Path) -> Usage:
    """Parses the line of the launcher."""
    try:
        kind, *numbers = report.read_text(encoding="ascii").split()
        number, wall_ns, user_us, system_us, peak_kb, _anonymous_kb, _faults = map(int, numbers)
    except (OSError, ValueError):
        return Usage(0.0, 0.0, 0, "the launcher wrote no report")
    error = "" if (kind, number) == ("exit", 0) else f"ended with {kind} {number}"
    if kind == "signal":
        error = f"ended with signal {number} ({signal.strsignal(number) or 'unknown'})"
    return Usage(wall_ns * 1e-9, (user_us + system_us) * 1e-6, peak_kb * 1024, error)
