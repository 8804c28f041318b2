# SPDX-License-Identifier: Apache-2.0
"""What is printed and written: tables, verdicts, raw JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.contenders import SPANWISE
from runner.stats import Interval, describe, geometric_mean, median, ratio
from runner.text import text_table

from real.field import GLIBC
from real.measure import METRICS, NOT_SERVED, Measured
from real.verdict import TITLES, Standing, counting

UNITS = {"wall_s": ("s", 1.0), "cpu_s": ("s", 1.0), "peak_rss_bytes": ("MiB", 1 / (1 << 20))}
FAIL = "FAIL"


def outcome(problem: str) -> str:
    """One word for a table: identical, DIFFERS, FAILED, not served."""
    if not problem:
        return "identical"
    if problem.startswith(NOT_SERVED):
        return "not served"
    return "DIFFERS" if problem.startswith("differs") else "FAILED"


def identity_table(measured: Measured) -> str:
    """A row a program, a column a contender; then a line for each thing that was wrong."""
    names = [contender.name for contender in measured.contenders]
    rows = [
        [program.name, *(outcome(measured.problem(program.name, name)) for name in names)]
        for program in measured.programs
    ]
    lines = [text_table(["output beside glibc's", *names], rows)]
    for program in measured.programs:
        for name in names:
            problem = measured.problem(program.name, name)
            if problem:
                lines.append(f"{program.name}, {name}: {problem}")
    lines += [f"skipped: {name}: {reason}" for name, reason in measured.skipped.items()]
    return "\n".join(lines)


def metric_table(measured: Measured, metric: str) -> str:
    """Medians of a metric, and ours against the best peer of each program."""
    unit, scale = UNITS[metric]
    names = [contender.name for contender in measured.contenders]
    rows = []
    for program in measured.programs:
        series = {name: measured.values(program.name, name, metric) for name in names}
        cells = [
            f"{median(values) * scale:.{2 if unit == 's' else 1}f}" if values else "-"
            for values in series.values()
        ]
        rows.append([program.name, *cells, best_cell(series)])
    return text_table([f"{TITLES[metric]}, {unit}", *names, "ours / best peer"], rows)


def best_cell(series: Mapping[str, Sequence[float]]) -> str:
    """`0.93 [0.91, 0.95] jemalloc`; `~` before the interval when it holds 1 (no difference)."""
    ours = series.get(SPANWISE, [])
    peers = {name: values for name, values in series.items() if name != SPANWISE and values}
    if not ours or not peers:
        return "-"
    best = min(peers, key=lambda name: median(peers[name]))
    return f"{ratio_text(ratio(ours, peers[best]))} {best}"


def ratio_text(found: Interval) -> str:
    """The ratio with its interval; `~` says that it holds 1."""
    level = "~" if describe(found) == "no difference" else ""
    return f"{level}{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


def standing_table(standings: Sequence[Standing], names: Sequence[str]) -> str:
    """Geometric means, glibc = 1, and the verdicts."""
    rows = []
    for one in standings:
        cells = [f"{one.means[name]:.2f}" if name in one.means else "-" for name in names]
        compared = f"{ratio_text(one.ratio)} {one.peer}" if one.ratio else "-"
        said = one.verdict + (f" ({one.note})" if one.note else "")
        rows.append([TITLES[one.metric], *cells, compared, f"<= {one.target:g}", said])
    return text_table(
        ["geometric mean, glibc = 1", *names, "ours / best peer", "target", "verdict"], rows
    )


def identity_line(measured: Measured) -> str:
    """The verdict on outputs: programs identical of those that were to be run."""
    names = [program.name for program in measured.programs]
    wrong = [name for name in names if measured.problem(name, SPANWISE)]
    line = f"output: {len(names) - len(wrong)} of {len(names) + len(measured.skipped)} identical"
    if wrong:
        line += f"; {FAIL}: {', '.join(wrong)}"
    if measured.skipped:
        line += f"; skipped: {', '.join(measured.skipped)}"
    return line


def as_json(
    measured: Measured, standings: Sequence[Standing], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that was measured: rows, verdicts, and each run."""
    return {
        **about,
        "interrupted": measured.interrupted,
        "contenders": [
            {"name": c.name, "library": str(c.preload), "version": c.version}
            for c in measured.contenders
        ],
        "skipped": measured.skipped,
        "programs": [_row(measured, program.name) for program in measured.programs],
        "counting": counting(measured) if measured.repetitions else [],
        "verdicts": [_verdict(one) for one in standings],
        "repetitions": [
            [
                {
                    "program": program,
                    "allocator": name,
                    "wall_s": sample.usage.wall_s,
                    "cpu_s": sample.usage.cpu_s,
                    "peak_rss_bytes": sample.usage.peak_rss_bytes,
                    "problem": sample.problem,
                    "digests": dict(sample.digests),
                    **sample.extra,
                }
                for (program, name), sample in finished.items()
            ]
            for finished in measured.repetitions
        ],
    }


def _row(measured: Measured, program: str) -> dict[str, Any]:
    """Medians of a program, by allocator."""
    found: dict[str, Any] = {}
    for contender in measured.contenders:
        problem = measured.problem(program, contender.name)
        cells: dict[str, Any] = {"output": outcome(problem), "problem": problem}
        for metric in METRICS:
            values = measured.values(program, contender.name, metric)
            cells[metric] = median(values) if values else None
        found[contender.name] = cells
    return {"name": program, "allocators": found}


def _verdict(one: Standing) -> dict[str, Any]:
    found = one.ratio
    return {
        "name": f"real programs: {TITLES[one.metric]}",
        "unit": f"geometric mean, {GLIBC} = 1",
        "ours": one.means.get(SPANWISE),
        "peer_name": one.peer,
        "peer": one.means.get(one.peer),
        "ratio": found.median if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "target": one.target,
        "verdict": one.verdict,
        "note": one.note,
        "means": dict(one.means),
    }


def spread(measured: Measured, metric: str, name: str) -> list[float]:
    """Each counting program's median against glibc's, then their geometric mean: for pictures."""
    ratios = [
        ratio(
            measured.values(program, name, metric), measured.values(program, GLIBC, metric)
        ).median
        for program in counting(measured)
    ]
    return [*ratios, geometric_mean(ratios)]
