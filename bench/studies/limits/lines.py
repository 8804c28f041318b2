# SPDX-License-Identifier: Apache-2.0
"""The price of each requirement: prototypes, each with one more than the one before.

bench_limits has them on the rows of the other bench programs; here they are lined up beside ours
and the peers that the scoreboard compares with, row by row. Prototypes that are called (through the
dynamic linker, or with a cache as argument) run the same rows as inlined ones, beside others: what
is shown as `called pair/16` is the row pair/16 of theirs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import counts
from runner.contenders import GO_BUILDS, SPANWISE, Contender, Field
from runner.errors import BenchError
from runner.runs import Job, Run
from runner.stats import Interval, describe, interval, median, ratio
from runner.text import number, text_table
from scoreboard.prototypes import STEPS

PROTOTYPE = "prototype"
CALLED = "called "
CALLED_STEPS = ("called-", "generic-")
CALLED_BASES = ("preload", "generic")
# Rows that have prototypes which are called.
CALLED_BENCHES = (
    "pair/16",
    "malloc/16x100k",
    "calloc/16x100k",
    "free_random/16x1M",
    "malloc_after/16x1M",
)
# The step that a step is compared with, if that is not the one before it.
_BEFORE = {
    "list": "",
    "sized": "transition",
    "store": "",
    "messages": "",
    "bit": "store",
    "fetched": "store",
    "list-byte": "",
    "fresh": "",
    "fresh-ahead": "fresh",
    "fresh-huge": "fresh",
    "called-list": "",
    "generic-list": "",
}
# The bases of ours and of the peers beside the prototypes of a row; the first fitting prefix
# counts.
_BESIDE: dict[str, tuple[tuple[str, ...], str]] = {
    CALLED: (CALLED_BASES, "preload"),
    "seed/": (("inline",), "go"),
    "remote/": ((), ""),
    **dict.fromkeys(
        ("replace/", "scaling_replace/", "producer_consumer/", "cold/"), (("preload",), "preload")
    ),
    "": (("inline", "bare", "exported"), "linked"),
}


def _inlined(path: str, exported: str = "") -> dict[str, str]:
    own = dict.fromkeys(("inline", "bare"), f"inline_{path}")
    return own | ({"exported": f"exported_{exported}"} if exported else {})


def _called(path: str) -> dict[str, str]:
    return {"preload": f"face_{path}", "generic": f"generic_{path}"}


# The counted path of a row for prototypes, and for ours by basis.
_PATHS = {
    "pair/16": ("pair", _inlined("pair", "pair")),
    "malloc/16x100k": ("malloc", _inlined("malloc", "malloc")),
    "calloc/16x100k": ("calloc", _inlined("zeroed", "calloc")),
    "free/16x100k": ("free", _inlined("free", "free")),
    "free_random/16x100k": ("free_random", _inlined("free_random", "free_random")),
    "remote/64x10k": ("remote", {}),
    "replace/8-1024": ("replace", {"preload": "face_replace"}),
    CALLED + "pair/16": ("pair", _called("pair")),
    CALLED + "malloc/16x100k": ("malloc", _called("malloc")),
    CALLED + "calloc/16x100k": ("calloc", _called("calloc")),
    CALLED + "free_random/16x1M": ("free_random", _called("free_random")),
    CALLED + "malloc_after/16x1M": ("malloc_after", _called("malloc_after")),
    "seed/Alloc16": ("calloc", _inlined("zeroed")),
    "seed/Alloc32": ("calloc_32", _inlined("zeroed_32")),
    "seed/Alloc64": ("calloc_64", _inlined("zeroed_64")),
    "seed/AllocWithPtr": ("calloc", _inlined("scan")),
}
Key = tuple[str, str]
"""A row and the label of who ran it."""


def row_of(bench: str, basis: str, who: str) -> str:
    """What the row is shown as: the same row of the programs has called and inlined prototypes.

    Args:
        bench: the row of the programs.
        basis: of the contender.
        who: the contender's name.
    """
    is_called = basis in CALLED_BASES or (basis == PROTOTYPE and who.startswith(CALLED_STEPS))
    return CALLED + bench if is_called and bench in CALLED_BENCHES else bench


def listed(program: Path) -> list[tuple[str, str]]:
    """The prototypes' (row, step), as the program has them: a row's steps in their order.

    Raises:
        BenchError: the program is missing or lists nothing.
    """
    mend = "build with -DSPANWISE_BENCH=ON, or run ./dev study limits"
    try:
        done = subprocess.run(
            [program, "--benchmark_list_tests"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BenchError(f"{program}: {error.strerror}; {mend}") from error
    names = [
        line.removesuffix("/manual_time").removesuffix("/iterations:1")
        for line in done.stdout.splitlines()
    ]
    parts = [(bench, step) for step, _, bench in (name.partition("/") for name in names) if bench]
    if done.returncode != 0 or not parts:
        raise BenchError(f"{program} --benchmark_list_tests ended with {done.returncode}; {mend}")
    return [(row_of(bench, PROTOTYPE, step), step) for bench, step in parts]


def beside(row: str) -> tuple[tuple[str, ...], str]:
    """The bases of ours in a row, and the basis of its peers ("": there are none)."""
    return next(found for prefix, found in _BESIDE.items() if row.startswith(prefix))


def peers_of(rows: Sequence[str]) -> set[str]:
    """The bases of the peers of some rows."""
    return {beside(row)[1] for row in rows}


def missing_of(missing: Mapping[str, str], rows: Sequence[str]) -> dict[str, str]:
    """The missing peers that some rows would have.

    Args:
        missing: name to mend, as Field has it.
        rows: as listed.
    """
    wanted = peers_of(rows)

    def basis(name: str) -> str:
        return "linked" if "(linked)" in name else "go" if name in GO_BUILDS else "preload"

    return {name: mend for name, mend in missing.items() if basis(name) in wanted}


def jobs_of(program: Path, field: Field, rows: Sequence[str]) -> list[Job]:
    """Prototypes, ours and peers of each row, next to each other.

    Args:
        program: bench_limits.
        field: everyone who was found.
        rows: as listed.
    """
    jobs = []
    prototypes = listed(program)
    for row in rows:
        bench = row.removeprefix(CALLED)
        bases, peers = beside(row)
        others = [own for basis in bases if (own := field.ours(basis)) is not None]
        others += field.peers(peers)
        steps = [step for has, step in prototypes if has == row]
        jobs += [Job(bench, Contender(step, PROTOTYPE, program, step)) for step in steps]
        jobs += [Job(bench, contender) for contender in others]
    return jobs


def _row(job: Job) -> str:
    return row_of(job.bench, job.contender.basis, job.contender.name)


def count_paths(build: Path, jobs: Sequence[Job]) -> dict[Key, counts.Counts]:
    """What an operation and its loop execute, of prototypes and of ours, where there is a path.

    Raises:
        BenchError: a program is missing or did not run under callgrind.
    """
    programs = {
        PROTOTYPE: counts.Program(build / "bench_paths_limits"),
        "inline": counts.Program(build / "bench_paths"),
        "bare": counts.Program(build / "bench_paths_bare"),
        "exported": counts.Program(build / "bench_paths"),
        "generic": counts.Program(build / "bench_paths"),
        "preload": counts.Program(build / "bench_paths_malloc", build / "libspanwise-malloc.so"),
    }
    wanted: list[tuple[Key, counts.Program, str]] = []
    for job in jobs:
        who = job.contender
        step_path, own = _PATHS.get(_row(job), ("", {}))
        if who.basis == PROTOTYPE and step_path:
            path = f"{who.name}/{step_path}"
        elif who.name == SPANWISE and who.basis in own:
            path = own[who.basis]
        else:
            continue
        wanted.append(((_row(job), who.label), programs[who.basis], path))
    found = counts.count_all([(program, path) for _, program, path in wanted])
    return {key: each for (key, _, _), each in zip(wanted, found, strict=True)}


@dataclass(frozen=True)
class Line:
    """One row of one prototype, of ours or of a peer.

    Attributes:
        bench: the row.
        who: what tables call it.
        kind: prototype, ours or peer.
        version: of a peer.
        values: ns, one a repetition; empty when it failed.
        peer: the best peer's name, "" without one.
        over_peer: ratio to that peer, within each repetition; None for itself or without one.
        before: the step that it adds to, "" if it adds to none.
        more: ns that it takes more than that step, within each repetition.
        counted: of an operation and its loop; None where nothing was.
    """

    bench: str
    who: str
    kind: str
    version: str
    values: list[float]
    peer: str
    over_peer: Interval | None
    before: str
    more: Interval | None
    counted: counts.Counts | None

    def as_json(self) -> dict[str, Any]:
        """Everything, ns and ratios with their intervals; null where there is none."""
        ns = interval(self.values) if self.values else None
        return {
            "bench": self.bench,
            "step": self.who,
            "kind": self.kind,
            "version": self.version,
            **_spread("ns", ns),
            "coverage": ns.coverage if ns else None,
            "values": self.values,
            "peer": self.peer or None,
            **_spread("over_peer", self.over_peer),
            "verdict": describe(self.over_peer) if self.over_peer else None,
            "before": self.before or None,
            **_spread("more", self.more),
            "instructions": self.counted.instructions if self.counted else None,
            "mispredicted": self.counted.mispredicted if self.counted else None,
            "missed": self.counted.missed if self.counted else None,
        }


def _spread(name: str, found: Interval | None) -> dict[str, float | None]:
    return {
        name: found.median if found else None,
        f"{name}_low": found.low if found else None,
        f"{name}_high": found.high if found else None,
    }


def _kind(contender: Contender) -> str:
    if contender.basis == PROTOTYPE:
        return PROTOTYPE
    return "ours" if contender.name == SPANWISE else "peer"


def _row_lines(run: Run, jobs: Sequence[Job], counted: Mapping[Key, counts.Counts]) -> list[Line]:
    """The lines of one row."""
    series = {job.contender.label: run.values(job.bench, job.contender, "op") for job in jobs}
    peers = [job.contender.label for job in jobs if _kind(job.contender) == "peer"]
    best = min((p for p in peers if series[p]), key=lambda p: median(series[p]), default="")
    lines = []
    last = ""
    for job in jobs:
        who, values = job.contender.label, series[job.contender.label]
        before, over, more = "", None, None
        if _kind(job.contender) == PROTOTYPE:
            before = _BEFORE.get(who, last)
            last = who
        if best and who != best and values:
            over = ratio(values, series[best])
        if before and values and series.get(before):
            more = interval([a - b for a, b in zip(values, series[before], strict=True)])
        lines.append(
            Line(
                *(_row(job), who, _kind(job.contender), job.contender.version, values),
                *(best.removesuffix(" (linked)"), over, before, more),
                counted.get((_row(job), who)),
            )
        )
    return lines


def lines_of(run: Run, counted: Mapping[Key, counts.Counts]) -> list[Line]:
    """What was measured, in the order of the jobs.

    Args:
        run: whole repetitions.
        counted: of each, as far as known.
    """
    rows = dict.fromkeys(_row(job) for job in run.jobs)
    return [
        line
        for row in rows
        for line in _row_lines(run, [job for job in run.jobs if _row(job) == row], counted)
    ]


def _cell(found: Interval | None, sign: str = "") -> str:
    if found is None:
        return "-"
    middle = f"{found.median:{sign}.2f}"
    return f"{middle} [{number(found.low)}, {number(found.high)}]"


def _counted_cells(counted: counts.Counts | None) -> list[str]:
    if counted is None:
        return ["-", "-", "-"]
    return [
        f"{counted.instructions:.1f}",
        f"{counted.mispredicted:.2f}",
        f"{counted.missed:.2f}",
    ]


def table(lines: Sequence[Line]) -> str:
    """One row: prototypes in their order, ours, peers."""
    peer = lines[0].peer
    header = (
        *(lines[0].bench, "", "ns [interval]"),
        *("more than the step before", f"over {peer or 'the best peer'}"),
        *("instr", "mispred", "D1 miss"),
    )
    rows = []
    for line in lines:
        ns = _cell(interval(line.values)) if line.values else "failed"
        said = [line.who, line.kind, ns, _cell(line.more, "+"), _cell(line.over_peer)]
        rows.append([*said, *_counted_cells(line.counted)])
    return text_table(header, rows)


def tables(lines: Sequence[Line]) -> str:
    """Every row's table, then what the steps are."""
    benches = dict.fromkeys(line.bench for line in lines)
    parts = [table([line for line in lines if line.bench == bench]) for bench in benches]
    shown = [line.who for line in lines if line.kind == PROTOTYPE]
    steps = "\n".join(f"  {name}: {what}" for name, what in STEPS.items() if name in shown)
    return "\n\n".join([*parts, f"steps:\n{steps}"])
