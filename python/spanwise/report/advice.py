# SPDX-License-Identifier: Apache-2.0
"""What to change so that a program needs less memory, ranked by the bytes that it saves."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanwise import _format
from spanwise.heap.options import HeapOptions, as_options
from spanwise.optimizer.result import OptimizeResult
from spanwise.recordings.recording import Recording
from spanwise.report.advice_facts import PEAK, Advice, AdviceFacts
from spanwise.report.advice_rules import RULES, benched, fitted_table, has_peaks, real_runs, spread
from spanwise.report.python_heap import PythonHeap
from spanwise.report.verdict import Finding, findings, nothing, verdict
from spanwise.results.jobs import Progress, progress_bar
from spanwise.results.rows import Result, Rows, Tabular, Value, rows_of
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from spanwise.measure.bench_result import BenchResult

NOTHING = "No change that was simulated saves more than 1 %; 'spanwise bench' compares real runs."
_NEEDS_SPANWISE = {"size", "table", "caches"}
"""Kinds of advice that helps only under spanwise,"""
_RUNS_SPANWISE = {"allocator", "retained"}
"""and is given only with one of these kinds, which may say that spanwise needs less."""
_WORTH_SPANWISE = 0.1
"""What saves only under spanwise is given from such a share of the most that others save."""
ADVICE_PASSES = 12
"""Simulations of the recording that the rules need, at most."""


@dataclass(frozen=True, repr=False, eq=False)
class AdviceList(Value, Sequence[Advice], Result, Tabular):
    """The verdict on a program's memory, and advice that saves most first.

    Attributes:
        verdict: how much the program wastes, at the moment where most can be saved.
        findings: what explains it: pairs (name, text) such as ("held by", "6.0 MiB in 6,144
            objects: main (a.c:3)"). Names: "held by" (the most requested at the peak RSS), "at
            peak" (the waste then, if the verdict is of a later moment), "most waste" (at another
            moment), "recorded", "simulated" (if no item says that), "runs" and "note".
        items: the advice.
        source: name of the recording.
        remark: a sentence that every reader must know, such as how little was recorded; or "".
        nothing: what is said where there is no advice.
        python_heap: what plain python3 holds; None: the program is no CPython.
    """

    verdict: str
    items: tuple[Advice, ...]
    source: str
    remark: str = ""
    nothing: str = NOTHING
    findings: tuple[Finding, ...] = ()
    python_heap: PythonHeap | None = None

    @property
    def overlap(self) -> str:
        """Say which savings at one moment add up, and which may overlap; "" if there are no two."""
        pairs = [
            (a, b)
            for a, b in combinations(range(len(self.items)), 2)
            if self.items[a].at == self.items[b].at
        ]
        apart = [pair for pair in pairs if _add_up(*(self.items[i] for i in pair))]
        shared = [pair for pair in pairs if pair not in apart]
        texts = [f"Savings {_numbers(apart)} add up."] if apart else []
        if shared:
            texts.append(
                f"Savings {_numbers(shared)} may overlap: carry one out, then record again."
            )
        return " ".join(texts)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    @property
    def array(self) -> Rows:
        """One row per advice, the fields of `Advice`."""
        names = tuple(Advice.__dataclass_fields__)
        return rows_of([one.to_dict() for one in self.items], names)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict and the advice as a dict for JSON."""
        advice = [one.to_dict() for one in self.items]
        return {
            "source": self.source,
            "verdict": self.verdict,
            "remark": self.remark,
            "findings": [list(one) for one in self.findings],
            "nothing": "" if advice else self.nothing,
            "python_heap": None if self.python_heap is None else self.python_heap.to_dict(),
            "advice": advice,
        }

    def __str__(self) -> str:
        lines = [*_wrapped(_sentence(self.remark), ""), *_wrapped(self.verdict, "")]
        lines += ["", *self._finding_lines()] if self.findings else []
        for i, one in enumerate(self.items, 1):
            indent = " " * (len(str(i)) + 2)
            lines += ["", f"{i}. {one.title}"]
            lines += [*_wrapped(one.finding, indent), *_wrapped(one.change, indent)]
        if not self.items:
            lines += ["", *_wrapped(self.nothing, "")]
        if self.overlap:
            lines += ["", self.overlap]
        return "\n".join(lines)

    __repr__ = __str__

    def _finding_lines(self) -> list[str]:
        """The findings; a name that several have in common is printed once."""
        width = max(len(name) for name, _ in self.findings) + 4
        lines, last = [], ""
        for name, text in self.findings:
            first = "" if name == last else f"  {name}"
            lines += _wrapped(text, " " * width, first.ljust(width))
            last = name
        return lines

    def _repr_html_(self) -> str:
        rows = [
            (_format.size(one.saves_bytes), one.at, one.certainty, one.finding, one.change)
            for one in self.items
        ]
        head = ("saves", "at", "certainty", "finding", "change")
        found = "".join(f"; {name}: {text}" for name, text in self.findings)
        return _format.html_table(rows, head, f"{self.verdict.rstrip('.')}{found}.", left=5)


def _add_up(a: Advice, b: Advice) -> bool:
    """Whether two savings at one moment are of different bytes."""
    if "allocator" in (a.kind, b.kind):
        return bool(a.under or b.under)  # what is left after that change
    if {a.kind, b.kind} == {"trim", "pinning"}:
        return a.under == b.under  # pages without objects, and pages with few
    return a.kind == b.kind == "size"


def _numbers(pairs: Sequence[tuple[int, int]]) -> str:
    """The numbers of pieces of advice: "1 and 2, 3 and 4"; "1, 2 and 5" if each goes with each."""
    all_ = sorted({i + 1 for pair in pairs for i in pair})
    if len(pairs) == len(all_) * (len(all_) - 1) // 2:
        return f"{', '.join(map(str, all_[:-1]))} and {all_[-1]}"
    return ", ".join(f"{a + 1} and {b + 1}" for a, b in pairs)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _failed(runs: BenchResult | None) -> str:
    """Say which real runs failed; "" if none did."""
    if runs is None:
        return ""
    failed = Counter(str(row["error"]) for row in runs.failures)
    return "; ".join(f"{_format.plural(n, 'run')} failed: {why}" for why, n in failed.items())


def _wrapped(text: str, indent: str, first: str | None = None) -> list[str]:
    """Break text into lines of at most 100 columns, fewer in a narrower terminal.

    `first` is before the first line, `indent` before the others, and before all if it is None.
    """
    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    return _format.wrapped(text, width, indent if first is None else first, indent)


def advise(
    recording: Recording,
    table: SizeClassTable,
    *,
    fitted: OptimizeResult | None = None,
    runs: BenchResult | None = None,
    options: HeapOptions | None = None,
    progress: Progress = None,
) -> AdviceList:
    """Find changes that save memory; as `Recording.advice`."""
    if not recording.events:
        name = Path(recording.program).name or recording.name
        said = f"{name} allocated nothing, so nothing was wasted."
        return AdviceList(said, (), recording.name)
    with progress_bar(progress, ADVICE_PASSES * len(recording), "advice", "operations") as step:
        facts = AdviceFacts(recording, table, as_options(options), step)
        found = [one for rule in RULES for one in rule(facts)]
        found += [] if fitted is None else fitted_table(facts, fitted)
        if runs is not None and has_peaks(runs):
            found = [one for one in found if one.kind != "allocator"] + list(benched(facts, runs))
        remark = "; ".join(filter(None, (recording.remark, _failed(runs))))
        at_peak = facts.noise_bytes if runs is None else max(facts.noise_bytes, spread(runs))
        kept = sorted(
            (
                one
                for one in found
                if one.saves_bytes >= (at_peak if one.at == PEAK else facts.noise_bytes)
            ),
            key=lambda one: (-one.saves_bytes, one.kind),
        )
        is_known = facts.own_memory is not None or facts.as_recorded != ""
        if is_known and not {one.kind for one in kept} & _RUNS_SPANWISE:
            kept = [one for one in kept if one.kind not in _NEEDS_SPANWISE]
        measured = real_runs(runs) if runs else ""
        has_peak = any((one.kind, one.certainty) == ("allocator", "simulated") for one in kept)
        ranked = _ranked(_one_change(kept), facts.under)
        is_later = bool(ranked) and ranked[0].at != PEAK
        explained = [
            one for one in findings(facts, is_later) if not (has_peak and one.name == "simulated")
        ]
        return AdviceList(
            verdict(facts, is_later),
            ranked,
            recording.name,
            remark,
            nothing(facts) or NOTHING,
            (*explained, *((Finding("runs", measured),) if measured else ())),
            facts.python_heap,
        )


def _one_change(kept: Sequence[Advice]) -> list[Advice]:
    """Give what spanwise's malloc saves at the peak and later, which is one change, as one."""
    same = [one for one in kept if one.kind in _RUNS_SPANWISE and one.certainty == "simulated"]
    if len(same) < 2:
        return list(kept)
    most, less = same[:2]
    more = f"{less.when.capitalize()} it saves {_format.size(less.saves_bytes)}."
    both = replace(most, finding=f"{most.finding} {more}")
    return [both if one is most else one for one in kept if one is not less]


def _ranked(kept: Sequence[Advice], under: str) -> tuple[Advice, ...]:
    """Leave out small savings under an allocator that is not in use, and put first what is easy.

    A trim comes before the pools whose saving needs it, if it saves at least a quarter as much.
    """
    others = (one.saves_bytes for one in kept if not under or one.under != under)
    least = _WORTH_SPANWISE * max(others, default=0)
    found = [one for one in kept if one.under != under or one.saves_bytes >= least]
    for trim in [one for one in found if one.kind == "trim"]:
        place = found.index(trim)
        needs = [
            i
            for i, one in enumerate(found[:place])
            if one.kind == "pinning" and one.at == trim.at and "trim" in one.change
        ]
        if needs and trim.saves_bytes >= found[needs[0]].saves_bytes / 4:
            found.insert(needs[0], found.pop(place))
    return tuple(found)
