# SPDX-License-Identifier: Apache-2.0
"""Every study: the name that ./dev study takes, its question, its module, and what it needs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

BENCHES, PACKAGE, COMPILER = "benches", "package", "compiler"


@dataclass(frozen=True)
class Study:
    """One study.

    Attributes:
        module: has `main(arguments)`, which returns the exit status.
        question: one line.
        needs: BENCHES: the programs of build/bench and the Python package; PACKAGE: the package
            alone; COMPILER: a C compiler, and the package only for --plot.
    """

    module: str
    question: str
    needs: str

    def run(self, arguments: Sequence[str]) -> int:
        """Runs it; returns the exit status."""
        status: int = importlib.import_module(self.module).main(arguments)
        return status


STUDIES = {
    "limits": Study(
        "studies.limits.cli",
        "what each requirement of an allocator costs: prototypes, beside ours and peers",
        BENCHES,
    ),
    "ablations": Study(
        "studies.ablations.cli",
        "what each part of an allocation saves, beside what could stand in its place",
        COMPILER,
    ),
    "check-grades": Study(
        "studies.check_grades",
        "what each grade of checks costs: instructions of every path, and code",
        COMPILER,
    ),
    "anatomy": Study(
        "studies.anatomy.cli", "one allocation taken apart, instruction by instruction", BENCHES
    ),
    "seed-claim": Study(
        "studies.seed_claim.cli",
        "what specialised paths save: each size class beside the generic path, and Go's own",
        BENCHES,
    ),
    "held-out": Study(
        "studies.held_out.cli",
        "what fitted tables gain on inputs that they were not fitted to",
        PACKAGE,
    ),
    "tables-save": Study(
        "studies.tables_save.cli",
        "what size-class tables save of real programs' memory, and of what, on unseen inputs",
        PACKAGE,
    ),
    "policies": Study(
        "studies.policies.cli",
        "what policies beside size classes save of real programs' memory, and cost in time",
        PACKAGE,
    ),
    "loop-check": Study(
        "studies.loop_check", "whether what the simulator predicts is what is measured", PACKAGE
    ),
    "model-error": Study(
        "studies.model_error",
        "how far the simulated peaks of other allocators are from their real ones",
        PACKAGE,
    ),
    "resident": Study(
        "studies.resident.cli",
        "how far predicted resident bytes are from measured ones, and where they are",
        PACKAGE,
    ),
    "causes": Study(
        "studies.causes.cli",
        "where the resident bytes of programs go, by cause, beside other allocators",
        PACKAGE,
    ),
    "ledger-speed": Study(
        "studies.ledger_speed",
        "how fast ledgers, time lines and named call sites of long recordings are",
        PACKAGE,
    ),
    "report-speed": Study(
        "studies.report_speed",
        "how long reports, call sites of waste and heap maps of long recordings take",
        PACKAGE,
    ),
    "record-cost": Study(
        "studies.record_cost",
        "what recording costs: a program plain, recorded, and under heaptrack",
        PACKAGE,
    ),
    "replace-floor": Study(
        "studies.replace_floor",
        "the least memory that random replacement costs where a slot keeps its class",
        PACKAGE,
    ),
    "fragmentation": Study(
        "studies.fragmentation",
        "how much room placements need beyond what is live, beside Robson's bound",
        PACKAGE,
    ),
    "holes": Study(
        "studies.holes",
        "what a request costs in a pool of 10,000 holes, by back end, beside plain references",
        BENCHES,
    ),
    "original-cases": Study(
        "studies.original_cases",
        "what the benchmark cases of the Go library GoMem take on ours, beside its figures",
        BENCHES,
    ),
    "gc-headroom": Study(
        "studies.gc_figures.headroom",
        "what the collector's headroom buys: time, peak and pauses at 25 to 400 percent",
        BENCHES,
    ),
    "gc-growth": Study(
        "studies.gc_figures.growth",
        "how the time of a collection grows from 1 to 50 million objects",
        BENCHES,
    ),
    "gc-ablation": Study(
        "studies.gc_figures.ablation",
        "what parts of marking save: prefetch distance, order, pages of spans, huge pages",
        BENCHES,
    ),
    "arena-matrix": Study(
        "studies.arenas.matrix",
        "when an arena pays beside a heap and pools: size of objects, lifetime, threads",
        BENCHES,
    ),
    "arena-chunks": Study(
        "studies.arenas.chunks",
        "how large an arena's chunks should be: time of an object, dead bytes that it holds",
        BENCHES,
    ),
    "arena-latency": Study(
        "studies.arenas.latency",
        "latencies of the message server at a fixed rate, by strategy, beside Go",
        PACKAGE,
    ),
    "places": Study(
        "studies.places.cli",
        "how often a pair is slow because of where its pages lie in memory",
        BENCHES,
    ),
}
