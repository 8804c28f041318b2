# SPDX-License-Identifier: Apache-2.0
"""Which rows and contenders a run of bench/run.py is about."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from runner.contenders import Field, find_field
from runner.patterns import choose
from runner.runs import Job

from scoreboard.scores import jobs_of
from scoreboard.targets import FIELD, Target, TargetFile

# The figures that a plain run shows; --all adds the others.
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
# Rows that --all leaves out: they need gigabytes, or give ratios instead of times.
HEAVY_FIGURES = ("growth/1G", "growth/8G")
RATIO_ROWS = ("replace_rss/8-1024",)
# Programs of bench/field; run when --rows names them.
FIELD_FIGURES = tuple(
    f"field/{name}"
    for name in (
        "random-100",
        "random-300",
        "random-1k",
        "random-5k",
        "random-10k",
        "random-100k",
        "random-1m",
        "handover-1",
        "handover-2",
        "long-lived",
        "big-numbers",
        "lifo-1",
        "lifo-2",
        "births",
        "cross-16k",
        "mailbox",
        "strings",
        "hash-map",
        "matrices",
        "arrays",
        "search-tree",
        "documents",
        "events",
        "small-programs",
        "latency",
        "phases",
    )
)


def figure_jobs(benches: Sequence[str], field: Field, *, linked: bool) -> list[Job]:
    """Ours in every way, and the preloaded peers, for each row."""
    left_out = ("bare", "special", "linked", "go")
    contenders = [c for c in field.contenders if c.basis not in left_out]
    if linked:
        contenders += field.peers("linked")
    return [
        Job(bench, contender)
        for bench in benches
        for contender in contenders
        if contender.basis == "preload" or not bench.startswith(FIELD)
    ]


def asks_for_field(options: argparse.Namespace) -> bool:
    """Whether --rows begins with `field`."""
    return (options.rows or "").startswith(FIELD)


def chosen_targets(
    file: TargetFile, options: argparse.Namespace, *, scripted: bool
) -> list[Target]:
    """The rows of a file that scripts measure, or the others, as far as --rows selects them.

    Those of the field are selected by a pattern that begins with `field`, and by no other.
    """
    every = [
        row
        for row in file.rows
        if bool(row.script) == scripted and row.is_field == asks_for_field(options)
    ]
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
        names = FIELD_FIGURES if asks_for_field(options) else names + HEAVY_FIGURES
    benches = choose(names, options.rows)
    field = find_field(options.build, bench, options.peer, options.linked, with_go=False)
    return [], field, figure_jobs(benches, field, linked=options.linked_peers)
