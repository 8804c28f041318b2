# SPDX-License-Identifier: Apache-2.0
"""Which rows and contenders a run of bench/run.py is about."""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench_lib.contenders import Field, find_field
from bench_lib.errors import BenchError
from bench_lib.runner import Job
from bench_lib.scoreboard import jobs_of
from bench_lib.targets import Target, TargetFile

# The first figures: what a plain run shows. --all adds the rest.
FIGURES = (
    "pair/16",
    "pair/64",
    "pair/512",
    "zpair/16",
    "sized_pair/16",
    "sized_pair/64",
    "sized_pair/512",
    "sized_zpair/16",
    "malloc/16x100k",
    "calloc/16x100k",
    "free/16x100k",
    "free_random/16x100k",
    "free_random/16x1M",
    "malloc_after/16x1M",
    "replace/8-1024",
)
MORE_FIGURES = (
    "pair/32",
    "zpair/32",
    "zpair/64",
    "zpair/512",
    "sized_pair/32",
    "sized_zpair/32",
    "sized_zpair/64",
    "sized_zpair/512",
    "replace/8-1024x1k",
    "replace/8-1024x10k",
    "calloc/32x100k",
    "calloc/64x100k",
    "free_random/64x1M",
    "malloc_after/64x1M",
    "cold/16x1M",
    "producer_consumer/64",
    "cross_free/64",
    *(f"scaling_{row}/{n}" for row in ("pair", "replace", "cross") for n in (1, 2, 4, 8)),
    "false_sharing/handed",
    "false_sharing/reused",
    "growth/10M",
    "growth/100M",
    "seed/Alloc16",
    "seed/Alloc32",
    "seed/Alloc64",
    "seed/AllocWithPtr",
)
# Bytes of the smallest class that bench/go times: Go packs smaller objects into shared blocks.
GO_LEAST = 16
# Held back from --all: gigabytes, or ratios instead of times.
HEAVY_FIGURES = ("growth/1G", "growth/8G")
RATIO_ROWS = ("replace_rss/8-1024",)


def matches(name: str, pattern: str | None) -> bool:
    """Whether a row's name fits a shell pattern, or has the text in it when it is no pattern."""
    if pattern is None:
        return True
    if any(mark in pattern for mark in "*?["):
        return fnmatch.fnmatchcase(name, pattern)
    return pattern in name


def choose(names: Sequence[str], pattern: str | None) -> list[str]:
    """The names that a pattern selects; a name that it spells out is selected alone.

    Raises:
        BenchError: it selects none.
    """
    chosen = [name for name in names if name == pattern] or [
        name for name in names if matches(name, pattern)
    ]
    if not chosen:
        raise _none_match(pattern, names)
    return chosen


def _none_match(pattern: str | None, names: Sequence[str]) -> BenchError:
    shown = ", ".join(names[:4])
    return BenchError(f"--rows '{pattern}' matches no row; there are {len(names)}: {shown}, ...")


def figure_jobs(benches: Sequence[str], field: Field, *, linked: bool) -> list[Job]:
    """Ours in every way, and the preloaded peers, for each row."""
    left_out = ("bare", "special", "linked", "go")
    contenders = [c for c in field.contenders if c.basis not in left_out]
    if linked:
        contenders += field.peers("linked")
    return [Job(bench, contender) for bench in benches for contender in contenders]


def class_jobs(build: Path, field: Field) -> list[Job]:
    """Specialised beside generic: Go's four cases, each class of c16 and go, and Go's own.

    Raises:
        BenchError: the program does not list its rows.
    """
    listed = subprocess.run(
        [
            build / "bench_spanwise",
            "--benchmark_list_tests",
            "--benchmark_filter=/(class_[a-z0-9]+|kept|seed)/",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.split("/")[:3] for line in listed.stdout.splitlines() if line.count("/") >= 2]
    if listed.returncode != 0 or not any(kind == "kept" for _, kind, _ in rows):
        raise BenchError(f"{build / 'bench_spanwise'} lists no class; build it anew")
    jobs: dict[str, list[Job]] = {}
    for policy, kind, name in rows:
        ours = field.ours(policy)
        if ours is not None:
            jobs.setdefault(f"{kind}/{name}", []).append(Job(f"{kind}/{name}", ours))
    for bench, others in jobs.items():
        kind, _, name = bench.partition("/")
        if kind == "seed" or (kind == "kept" and int(name) >= GO_LEAST):
            others += [Job(bench, go) for go in field.peers("go")]
    order = sorted(jobs, key=_class_order)
    return [job for bench in order for job in jobs[bench]]


def _class_order(bench: str) -> tuple[int, str, int]:
    kind, _, name = bench.partition("/")
    return ["seed", "kept"].index(kind) if "_" not in kind else 2, kind, _number(name)


def _number(name: str) -> int:
    return int(name) if name.isdigit() else 0


def chosen_targets(
    file: TargetFile, options: argparse.Namespace, *, scripted: bool
) -> list[Target]:
    """The rows of a file that scripts measure, or the others, as far as --rows selects them."""
    every = [row for row in file.rows if bool(row.script) == scripted]
    chosen = choose([row.name for row in every], options.rows)
    return [row for row in every if row.name in chosen]


def plan(
    options: argparse.Namespace, bench: Path, file: TargetFile
) -> tuple[list[Target], Field, list[Job]]:
    """The targets (scoreboard only), everyone, and what is to be run.

    Args:
        options: of bench/run.py.
        bench: the folder bench/.
        file: of targets.
    """
    targets: list[Target] = []
    if options.scoreboard:
        targets = chosen_targets(file, options, scripted=False)
        field = find_field(
            options.build,
            bench,
            options.peer,
            options.linked,
            with_go=any(row.peers == "go" for row in targets),
        )
        return targets, field, jobs_of(targets, field)
    names = FIGURES if not (options.all or options.rows) else FIGURES + MORE_FIGURES
    if options.rows:
        names += HEAVY_FIGURES
    benches = [] if options.classes else choose(names, options.rows)
    field = find_field(options.build, bench, options.peer, options.linked, with_go=options.classes)
    if options.classes:
        jobs = class_jobs(options.build, field)
        chosen = choose([job.bench for job in jobs], options.rows)
        return [], field, [job for job in jobs if job.bench in chosen]
    return [], field, figure_jobs(benches, field, linked=options.linked_peers)
