# SPDX-License-Identifier: Apache-2.0
"""What is printed and written: tables, raw JSON, Go benchmark text."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench_lib.contenders import Contender, Field
from bench_lib.counts import KINDS
from bench_lib.errors import BenchError
from bench_lib.judge import MET, MISSED, NO_PEER, REPORTED, SKIPPED
from bench_lib.runner import MemoryUse, Run
from bench_lib.scoreboard import Score
from bench_lib.stats import describe, median, ratio

OURS_FIRST = ("inline", "bare", "exported", "special", "generic", "preload")
SEED = 20261120  # of rows.h


# --- tables ---------------------------------------------------------------------------------------


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their cells; the first is flush left, the others right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def render(line: Sequence[str]) -> str:
        first = line[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest]).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([render(lines[0]), rule, *map(render, lines[1:])])


def number(value: float | None) -> str:
    """Three significant digits, or `-`."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def scoreboard_table(scores: Sequence[Score]) -> str:
    """The scoreboard, why rows are missed as far as known, and the closing line."""
    rows = []
    for score in scores:
        found, target, bar = score.ratio, score.target, score.bar
        spread = f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]" if found else "-"
        peer = f"{score.peer_name} {number(score.peer)}" if score.peer_name else "-"
        outcome = score.verdict + (f" ({score.note})" if score.note else "")
        counted = "-" if score.counts is None else f"{score.counts.instructions:.1f}"
        limit = "-" if bar.limit is None else f"<= {bar.limit:g}"
        limit += f" (asked {target.target:g})" if bar.weaker is not None else ""
        ours = f"{number(score.ours)} {target.unit}"
        rows.append([target.name, ours, peer, spread, limit, counted, outcome])
    header = ["row", "ours", "best peer", "ratio [interval]", "target", "instr", "verdict"]
    verdicts = [score.verdict for score in scores]
    tally = [f"{verdicts.count(name)} {name}" for name in (MET, MISSED, NO_PEER)]
    tally += [f"{verdicts.count(n)} {n}" for n in (REPORTED, SKIPPED) if n in verdicts]
    eased = [score for score in scores if score.is_eased]
    if eased:
        tally.append(f"{len(eased)} of the met ones above what was asked")
    lines = [text_table(header, rows)]
    lines += _notes("who competes, and how:", [(s, s.terms) for s in scores])
    missed = [(s, s.target.cause) for s in scores if s.verdict == MISSED]
    lines += _notes("missed, and why:", missed)
    lines += _notes("weaker than asked on this machine:", [(s, weaker_note(s)) for s in scores])
    met = [(s, s.target.cause) for s in eased]
    lines += _notes("met above what was asked, and why:", met)
    return "\n".join([*lines, ", ".join(tally)])


def weaker_note(score: Score) -> str:
    """The prototype behind a row's weaker target; "" when it is judged by what was asked."""
    weaker = score.bar.weaker
    if weaker is None:
        return ""
    return (
        f"<= {weaker.target:g} on {weaker.machine} instead of {score.target.target:g}: prototype "
        f"`{weaker.prototype}` reached {weaker.figure:g} (docs/decisions/{score.target.decision})"
    )


def _notes(head: str, notes: Sequence[tuple[Score, str]]) -> list[str]:
    shown = [f"  {score.target.name}: {text}" for score, text in notes if text]
    return ["", head, *shown, ""] if shown else []


def counts_table(scores: Sequence[Score]) -> str:
    """What one operation executes, for the rows with a counted path; "" without any."""
    rows = [
        [score.target.name, *(f"{getattr(score.counts, kind):.2f}" for kind in KINDS)]
        for score in scores
        if score.counts is not None
    ]
    return text_table(["one operation and its loop (callgrind)", *KINDS], rows) if rows else ""


def columns_of(run: Run) -> list[Contender]:
    """Contenders in the order of columns: ours first."""
    found = dict.fromkeys(job.contender for job in run.jobs)
    own = [c for c in found if c.name == "spanwise"]
    own.sort(key=lambda c: OURS_FIRST.index(c.basis))
    return [*own, *(c for c in found if c.name != "spanwise")]


def figures_table(run: Run, benches: Sequence[str]) -> str:
    """Medians, ns an operation, a row a bench and a column a contender."""
    columns = columns_of(run)
    rows = []
    for bench in benches:
        cells = []
        for contender in columns:
            series = run.values(bench, contender, "op")
            cells.append(number(median(series)) if series else "-")
        rows.append([bench, *cells])
    return text_table(["ns an operation", *(c.label for c in columns)], rows)


def comparison_table(run: Run, benches: Sequence[str]) -> str:
    """Ours against each peer: ratio with its interval, `~` when it holds 1 (no difference)."""
    columns = columns_of(run)
    own = [c for c in columns if c.name == "spanwise"]
    peers = [c for c in columns if c.name != "spanwise"]
    rows = []
    for bench in benches:
        for ours in own:
            cells = []
            for peer in peers:
                a, b = run.values(bench, ours, "op"), run.values(bench, peer, "op")
                cells.append(ratio_cell(a, b))
            rows.append([f"{bench} {ours.label}", *cells])
    return text_table(["ours / peer", *(c.label for c in peers)], rows)


def ratio_cell(ours: Sequence[float], peer: Sequence[float]) -> str:
    """`0.61 [0.58, 0.66]`, or `no difference` when the interval holds 1."""
    if not ours or not peer:
        return "-"
    found = ratio(ours, peer)
    if describe(found) == "no difference":
        return "no difference"
    return f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


def memory_table(used: Mapping[tuple[str, str], MemoryUse]) -> str:
    """Calls and bytes an operation, from the separate memory runs."""
    rows = [
        [f"{bench} {label}", f"{use.allocs:g}", f"{use.total_bytes:.1f}", f"{use.max_bytes:.0f}"]
        for (bench, label), use in used.items()
    ]
    return text_table(["memory", "allocs/op", "bytes/op", "most bytes live"], rows)


# --- raw results ----------------------------------------------------------------------------------


def _first_line(command: Sequence[str], cwd: Path) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError:
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
    """The variables of a build directory's CMakeCache.txt; empty without one."""
    try:
        text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {m[1]: m[2] for m in re.finditer(r"^(\w+):\w+=(.*)$", text, re.MULTILINE)}


def preset_name(cache: Mapping[str, str]) -> str:
    """The preset of CMakePresets.json that has this build type and assertion grade."""
    grade = cache.get("SPANWISE_CHECK", "1")
    if cache.get("SPANWISE_SANITIZE"):
        return "sanitized"
    if cache.get("CMAKE_BUILD_TYPE") == "Release":
        return {"0": "bare", "1": "release", "2": "hardened"}.get(grade, "release")
    return {"3": "stress"}.get(grade, "dev")


def provenance(root: Path, build: Path) -> dict[str, Any]:
    """Machine, compiler, commit, preset and seed of a run."""
    cache = cmake_cache(build)
    compiler = cache.get("CMAKE_C_COMPILER", "cc")
    commit = _first_line(["git", "rev-parse", "--short=12", "HEAD"], root) or "unknown"
    dirty = _first_line(["git", "status", "--porcelain", "--", "src", "include", "bench"], root)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model(),
            "cpus": os.cpu_count(),
            "architecture": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "libc": " ".join(platform.libc_ver()),
            "load": os.getloadavg()[0],
        },
        "compiler": _first_line([compiler, "--version"], root),
        "commit": commit + ("+changes" if dirty else ""),
        "preset": preset_name(cache),
        "seed": SEED,
    }


def raw_results(run: Run, field: Field, about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured, failures included."""
    return {
        **about,
        "interrupted": run.interrupted,
        "contenders": [
            {"name": c.name, "basis": c.basis, "version": c.version, "policy": c.policy}
            for c in field.contenders
        ],
        "missing": field.missing,
        "repetitions": [
            [
                {
                    "bench": bench,
                    "name": name,
                    "basis": basis,
                    "options": options,
                    "iterations": result.iterations,
                    "values": result.values,
                    "error": result.error,
                }
                for (bench, name, basis, options), result in repetition.items()
            ]
            for repetition in run.repetitions
        ],
    }


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is either complete or not there.

    Raises:
        BenchError: it cannot be written; the message names the path.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def results_path(folder: Path, about: Mapping[str, Any], kind: str = "") -> Path:
    """Where the results of a run go: [KIND]DATE-COMMIT.json in the folder."""
    stamp = re.sub(r"[^0-9T]", "", str(about["date"])[:19])
    return folder / f"{kind}{stamp}-{about['commit']}.json"


def write_results(folder: Path, raw: Mapping[str, Any]) -> Path:
    """Writes DATE-COMMIT.json into the folder and returns its path."""
    path = results_path(folder, raw)
    write_whole(path, json.dumps(raw, indent=1) + "\n")
    return path


# --- Go benchmark text ----------------------------------------------------------------------------


def go_benchmark_text(run: Run, about: Mapping[str, Any]) -> str:
    """The format of `go test -bench`, one line a process, for benchstat -col /alloc.

    Rows are BenchmarkPair/16/alloc=glibc; ratios of resident memory have units of their own.
    """
    machine = about["machine"]
    lines = [
        "goos: linux",
        f"goarch: {machine['architecture']}",
        "pkg: spanwise/bench",
        f"cpu: {machine['cpu']}",
        f"commit: {about['commit']}",
    ]
    for repetition in run.repetitions:
        for job in run.jobs:
            result = repetition.get(job.key)
            if result is None or result.error:
                continue
            label = job.contender.label.replace(" (linked)", "-linked").replace(" ", "-")
            first, _, rest = job.bench.partition("/")
            name = "".join(part.capitalize() for part in first.split("_"))
            name = f"Benchmark{name}/{rest}/alloc={label}"
            shown = [f"{result.values['op'] * 1e9:.4f} ns/op"]
            for metric in ("rss_over_live", "rss_over_table"):
                if metric in result.values:
                    shown.append(f"{result.values[metric]:.4f} {metric.replace('_', '-')}")
            lines.append("\t".join([name, str(max(result.iterations, 1)), *shown]))
    return "\n".join(lines) + "\n"
