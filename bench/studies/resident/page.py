# SPDX-License-Identifier: Apache-2.0
"""The page of docs/measurements that the study writes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.contenders import PRELOADS
from runner.provenance import provenance
from spanwise import _format
from spanwise.ledger.parts import PARTS

from studies.resident.figures import Figures, OtherRuns, SameRuns

_ROOT = Path(__file__).resolve().parents[3]
_HEAD = ("program, input", "predicted", "measured", "error")


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of a page, its first column flush left."""
    rule = f"|---|{'---:|' * (len(head) - 1)}"
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return [lines[0], rule, *lines[1:]]


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def between(values: Sequence[int]) -> str:
    """Sizes from the least to the highest."""
    low, high = _format.size(min(values)), _format.size(max(values))
    return low if low == high else f"{low} .. {high}"


def _interval(low: float, high: float) -> str:
    return f"[{100 * low:+.1f}, {100 * high:+.1f}]"


def other_row(case: str, seen: OtherRuns, differs: bool) -> tuple[str, ...]:
    """A row of runs that were not recorded; with the interval if the program's runs differ."""
    error = _percent(seen.error())
    if differs:
        error += f" {_interval(*seen.interval())}"
    return case, between(seen.predicted), between(seen.measured), error


def same_row(case: str, seen: SameRuns) -> tuple[str, ...]:
    """A row of runs that were recorded; with the range of the errors if these differ."""
    error, errors = _percent(seen.error()), seen.errors()
    if _percent(min(errors)) != _percent(max(errors)):
        error += f" {_interval(min(errors), max(errors))}"
    return case, between(seen.predicted), between(seen.measured), error


def _spread(all_seen: Iterable[OtherRuns | SameRuns]) -> str:
    errors = [abs(seen.error()) for seen in all_seen]
    return f"median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %"


def _summary(all_figures: list[Figures]) -> list[str]:
    differing = [one.case for one in all_figures if one.differs]
    told = f"differ from run to run: {'; '.join(differing)}" if differing else "differ: none"
    return [
        "- the heap's own pages at the end, plain malloc:"
        f" {_spread(one.at_end for one in all_figures)}",
        "- the same of runs that were recorded themselves:"
        f" {_spread(one.same_end for one in all_figures)}; of what they held:"
        f" {_spread(one.same_held for one in all_figures)}",
        "- the same as the first, if all of each large object were written:"
        f" {_spread(one.all_written for one in all_figures)}",
        "- the same as the first, where pages go back by the clock:"
        f" {_spread(one.by_clock for one in all_figures)}",
        "- the heap's own pages when most is requested, tracked malloc, of runs that were recorded"
        f" themselves: {_spread(one.same_peak for one in all_figures)}",
        "- the whole process, peak RSS, plain malloc:"
        f" {_spread(one.process for one in all_figures)}",
        f"- programs that {told}",
    ]


_WHAT_IS_COMPARED = """\
Errors are predicted less measured, of the latter. Programs are first recorded as one does it, under
the C library's malloc, and run by themselves: the error is then that of the median predicted
against the median measured. A program whose recordings differ in the bytes that they allocate is
recorded and run five times as often as the others, and its error has an interval: from the least
prediction beside the highest run to the highest beside the least.

What such a program does in one run says little about another, whatever predicts it. So each program
is also run on the preloaded malloc and recorded in the same run, and each recording compared with
what its own run told: what is left there is the error of the account alone. In the table of the
moment at which most is requested all runs are of this kind. A tracked run takes that ledger at
most 1/32 below its peak; predicted is the moment of the same recording at which as many bytes live.

Where pages do not go back by the clock (`decay_ms=math.inf`) they do so neither in the runs nor in
what is predicted, because whether half a second passes between a program's last frees and its end
depends on what else the machine does. The tables of the clock and of the whole process are of the
default.

What is predicted takes each program to write all of its objects in slots, and of its large objects
the share `large_touched_percent`, the same of each. It is taken from tracked runs: for the moment
at which most is requested, what mincore shows of large objects then; for all others, the share with
which those runs' own pages at the end are predicted best. So the table of that moment is no test of
large objects, since its runs are those that were asked. The others are of other runs of the same
program and input, and show that a share which one run had predicts another. What is predicted
without any run, that all is written, is told in the first table."""

_WHAT_IS_OUTSIDE = """\
Predicted is what lies outside of the heap (text, stacks, mappings of the program's own), and the
heap's peak resident bytes. Outside is measured apart: at the end of each plain run, and, of one
more plain run, when most of it was resident (by smaps, every few milliseconds); the larger one
counts. V8's own heap, which node gives back before it ends, is seen only so."""


def _own_pages(all_figures: list[Figures]) -> list[str]:
    end = [
        (
            *other_row(one.case, one.at_end, one.differs),
            f"{one.large_shares[1]:.4g} %",
            _percent(one.all_written.error()),
        )
        for one in all_figures
    ]
    clock = [other_row(one.case, one.by_clock, one.differs) for one in all_figures]
    same = [
        (*same_row(one.case, one.same_end), f"{100 * one.same_held.error():+.2f} %")
        for one in all_figures
    ]
    return [
        "## The heap's own pages at the end",
        "",
        *as_table((*_HEAD, "written of large objects", "error if all were"), end),
        "",
        "## The same of runs that were recorded themselves",
        "",
        *as_table((*_HEAD, "error of what is held"), same),
        "",
        "## The same as the first where pages go back by the clock",
        "",
        "A recorded run takes longer than a plain one, so a tick of the clock may come in the one"
        " and not in the other. Where runs differ the range says so.",
        "",
        *as_table(_HEAD, clock),
        "",
        "## The heap's own pages when most is requested",
        "",
        *as_table(_HEAD, [same_row(one.case, one.same_peak) for one in all_figures]),
        "",
    ]


def _process(all_figures: list[Figures]) -> list[str]:
    rows = [
        (*other_row(one.case, one.process, one.differs), between(one.outside))
        for one in all_figures
    ]
    return [
        "## The whole process: peak RSS",
        "",
        _WHAT_IS_OUTSIDE.replace("\n", " "),
        "",
        *as_table((*_HEAD, "outside"), rows),
        "",
    ]


def _parts(all_figures: list[Figures]) -> list[str]:
    terms = {
        n: t for n, t in PARTS.items() if any(getattr(f.peak.resident, n) for f in all_figures)
    }
    rows = [
        (one.case, *(_format.size(getattr(one.peak.resident, name)) for name in terms))
        for one in all_figures
    ]
    return [
        "## Where it goes: the parts that are resident at the heap's highest, predicted",
        "",
        *as_table(("program, input", *terms.values()), rows),
        "",
    ]


def _peers(all_figures: list[Figures]) -> list[str]:
    rows = [
        (
            one.case,
            _format.size(statistics.median(one.process.measured)),
            *("-" if rss is None else _format.size(rss) for rss in one.peers.values()),
        )
        for one in all_figures
    ]
    head = ("program, input", "spanwise", "glibc", *PRELOADS)
    return ["## Beside others: peak RSS", "", *as_table(head, rows), ""]


def page(all_figures: list[Figures], missing: list[str], repeat: int) -> str:
    """The page of docs/measurements."""
    made = provenance(_ROOT, Path("build/bench"))
    machine = made["machine"]
    lines = [
        "# Resident bytes, predicted and measured",
        "",
        f"Written by `./dev study resident --repeat {repeat}`, {time.strftime('%Y-%m-%d')}, commit"
        f" {made['commit']}, {machine['cpu']}, {machine['cpus']} processors, {machine['system']};"
        f" load {machine['load']:.1f} as it was written. Table c16. Sizes do not depend on the"
        " speed of the machine, but for the table of pages that go back by the clock.",
        "",
        *_summary(all_figures),
        "",
        *(
            line
            for part in _WHAT_IS_COMPARED.split("\n\n")
            for line in (part.replace("\n", " "), "")
        ),
        *_own_pages(all_figures),
        *_process(all_figures),
        *_parts(all_figures),
        *_peers(all_figures),
        *([f"Not here: {', '.join(missing)}.", ""] if missing else []),
    ]
    return "\n".join(lines)
