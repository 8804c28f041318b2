# SPDX-License-Identifier: Apache-2.0
"""Prints, stores and draws scores, with machine, compiler and commit of the run."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from driver.judge import FAILED, MET, MISSED, NO_PEER, REPORTED, SKIPPED, Score, Values
from driver.tools import BenchError, captured, number, text_table, write_atomically

UNITS = {
    **{"ns": "ns", "cpu": "s", "elapsed": "s", "peak": "MiB"},
    **{"_ns": "ns", "_ms": "ms", "_kib": "KiB"},
}
COLOURS = {MET: "#2a9d8f", MISSED: "#d1495b", REPORTED: "#6c757d"}


def unit_of(score: Score) -> str:
    """Return the unit of a row's values, for display."""
    value = score.row.value
    suffix = value.rpartition("_")[2]
    return score.row.unit or UNITS.get(value) or UNITS.get(f"_{suffix}") or value


def limit_of(score: Score) -> str:
    """Return the target as text."""
    row = score.row
    if row.limit is not None:
        return f"<= {row.limit:g} {unit_of(score)}"
    if row.rank is not None:
        return f"rank <= {row.rank:g}"
    return "-" if row.target is None else f"<= {row.target:g}"


def table(scores: Sequence[Score]) -> str:
    """Return a table of all rows, the notes, and a last line with the tally."""
    rows = []
    for score in scores:
        found = score.ratio
        spread = f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]" if found else "-"
        peer = f"{score.peer_name} {number(score.peer)}" if score.peer_name else "-"
        ours = f"{number(score.ours)} {unit_of(score)}" if score.ours is not None else "-"
        rows.append([score.row.name, ours, peer, spread, limit_of(score), score.verdict])
    head = ["row", "ours", "best peer", "ratio [interval]", "target", "verdict"]
    lines = [text_table(head, rows)]
    notes = [f"  {score.row.name}: {score.note}" for score in scores if score.note]
    if notes:
        lines += ["", *notes]
    verdicts = [score.verdict for score in scores]
    order = (MET, MISSED, FAILED, NO_PEER, REPORTED, SKIPPED)
    tally = ", ".join(f"{verdicts.count(name)} {name}" for name in order if name in verdicts)
    return "\n".join([*lines, "", tally])


def to_json(scores: Sequence[Score], values: Values, about: Mapping[str, Any]) -> str:
    """Return provenance, verdicts and all measured figures as JSON."""
    rows = []
    for score in scores:
        found = asdict(score.ratio) if score.ratio else None
        rows.append(
            {
                "name": score.row.name,
                "ours": score.ours,
                "unit": unit_of(score),
                "peer_name": score.peer_name,
                "peer": score.peer,
                "ratio": found,
                "target": score.row.target,
                "limit": score.row.limit,
                "verdict": score.verdict,
                "note": score.note,
            }
        )
    runs = [
        {"name": who.name, "version": who.version, "words": who.words, "figures": figures}
        for who, figures in values.items()
    ]
    return json.dumps({**about, "rows": rows, "runs": runs}, indent=1) + "\n"


def write_json(path: Path, text: str) -> None:
    """Write the JSON atomically."""
    write_atomically(path, text)


def plot(scores: Sequence[Score], path: Path, about: str) -> None:
    """Draw each row's ratio with its interval and its target as a tick; write a PNG.

    Raises:
        BenchError: matplotlib is missing, or the file cannot be written.
    """
    try:
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise BenchError("--plot needs matplotlib: pip install matplotlib") from None
    drawn = [score for score in scores if score.ratio is not None and score.row.rank is None]
    figure, axis = pyplot.subplots(figsize=(9, 1.4 + 0.24 * len(drawn)), layout="constrained")
    for place, score in enumerate(reversed(drawn)):
        found = score.ratio
        assert found is not None
        target = 1.0 if score.row.limit is not None else score.row.target
        if target is not None:
            axis.plot(target, place, marker="|", markersize=12, markeredgewidth=2, color="black")
        error = [[found.median - found.low], [found.high - found.median]]
        colour = COLOURS.get(score.verdict, "#6c757d")
        axis.errorbar(found.median, place, xerr=error, fmt="o", markersize=4, color=colour)
    axis.set_yticks(range(len(drawn)), [score.row.name for score in reversed(drawn)])
    axis.set_ylim(-0.7, max(len(drawn), 1) - 0.3)
    axis.set_xscale("log")
    axis.set_xticks([0.1, 0.2, 0.5, 1, 2, 5])
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")
    axis.axvline(1, color="black", linewidth=0.8, zorder=0)
    axis.set_xlabel("ours / best peer or limit (dot, interval); tick: target; lower is better")
    axis.set_title("Benchmarks against their targets")
    figure.text(0.01, 0.002, about, fontsize=7, color="#6c757d")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


# --- provenance -----------------------------------------------------------------------------------


def _first_line(command: Sequence[str], cwd: Path) -> str:
    try:
        done = captured(command, cwd=cwd)
    except BenchError:
        return ""
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else ""


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    match = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.processor()


def cmake_cache(build: Path) -> dict[str, str]:
    """Return the variables of a build directory's CMakeCache.txt; none without the file."""
    try:
        text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {m[1]: m[2] for m in re.finditer(r"^(\w+):\w+=(.*)$", text, re.MULTILINE)}


def provenance(root: Path, build: Path) -> dict[str, Any]:
    """Describe a run: date, machine, compiler, commit, build type and assertion grade."""
    cache = cmake_cache(build)
    commit = _first_line(["git", "rev-parse", "--short=12", "HEAD"], root) or "unknown"
    dirty = _first_line(["git", "status", "--porcelain", "--", "src", "include", "bench"], root)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "load": round(os.getloadavg()[0], 2),
        "compiler": _first_line([cache.get("CMAKE_C_COMPILER", "cc"), "--version"], root),
        "commit": commit + ("+changes" if dirty else ""),
        "build_type": cache.get("CMAKE_BUILD_TYPE", ""),
        "check": cache.get("SPANWISE_CHECK", ""),
    }


def one_line(about: Mapping[str, Any]) -> str:
    """Return date, commit and machine in one line."""
    day = str(about["date"])[:10]
    return f"{day}, commit {about['commit']}, {about['cpu']}, {about['cpus']} CPUs"
