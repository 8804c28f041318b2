# SPDX-License-Identifier: Apache-2.0
"""What is printed and written: tables, raw JSON, Go benchmark text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.contenders import Contender
from runner.counts import KINDS
from runner.runs import MemoryUse, Run
from runner.stats import median
from runner.text import number, ratio_cell, text_table

from scoreboard.judge import MET, MISSED, NO_PEER, REPORTED, SKIPPED
from scoreboard.scores import Score

OURS_FIRST = ("inline", "bare", "exported", "special", "generic", "preload")


# --- tables ---------------------------------------------------------------------------------------


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


def memory_table(used: Mapping[tuple[str, str], MemoryUse]) -> str:
    """Calls and bytes an operation, from the separate memory runs."""
    rows = [
        [f"{bench} {label}", f"{use.allocs:g}", f"{use.total_bytes:.1f}", f"{use.max_bytes:.0f}"]
        for (bench, label), use in used.items()
    ]
    return text_table(["memory", "allocs/op", "bytes/op", "most bytes live"], rows)


# --- raw results ----------------------------------------------------------------------------------


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
