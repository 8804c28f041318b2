# SPDX-License-Identifier: Apache-2.0
"""Record what any program allocates, and account every byte under any size-class table.

import spanwise as sw

recording = sw.record(["python3", "-c", "import json"])
print(recording.ledger("go"), recording.ledger("c16"))

with sw.Heap(table=sw.SizeClassTable.go()) as heap:
    block = heap.alloc(100)
    view = block.view()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spanwise.commands import _start

# If Ctrl-C comes while a command loads its modules, the command prints one line, no traceback.
if _start.is_command():
    _start.quiet()

from spanwise.errors import (
    BlockBusyError,
    BlockFreedError,
    CorruptionError,
    EscapeError,
    HandleError,
    HeapClosedError,
    InvalidError,
    LimitError,
    MisuseError,
    OutOfMemoryError,
    OverlapError,
    OwnerError,
    ProgramError,
    ProgramNotFoundError,
    RecordingIOError,
    RecordingNotFoundError,
    ShortError,
    SpanwiseError,
    StackOverflowError,
    StateError,
    TraceFormatError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from spanwise import plots, workloads
    from spanwise._lib import OPS_DTYPE
    from spanwise.arenas.arena import Arena, ArenaStats
    from spanwise.arenas.tracker import ArenaTracker, TrackedArena, TrackerTotals
    from spanwise.builds.build import Build, build
    from spanwise.builds.programs import BuildError
    from spanwise.gc.cycle import Cycle
    from spanwise.gc.events import CollectorEvents
    from spanwise.gc.finalizers import WeakObject
    from spanwise.gc.graphs import binary_tree, linked_list, random_graph
    from spanwise.gc.heap import CollectedHeap
    from spanwise.gc.objects import CollectedObject, Graph, ObjectType
    from spanwise.gc.pauses import mutator_utilisation, pause_histogram
    from spanwise.gc.trace import GcTrace, parse_gctrace, read_gctrace
    from spanwise.heap.block import Block
    from spanwise.heap.heap import Heap
    from spanwise.heap.heap_map import HeapMap
    from spanwise.heap.options import HeapOptions
    from spanwise.heap.stats import HeapStats
    from spanwise.ledger.comparison import Comparison
    from spanwise.ledger.ledger import Ledger
    from spanwise.ledger.measures import Measure
    from spanwise.ledger.run_stats import RunStats
    from spanwise.lessons.articles import Growth, simulate_growth
    from spanwise.measure.bench import BenchInterrupted, bench
    from spanwise.measure.bench_cases import BenchCase
    from spanwise.measure.bench_fits import BenchFit, fit_cases
    from spanwise.measure.bench_result import BenchResult
    from spanwise.measure.ledger_check import LedgerCheck, check_ledger
    from spanwise.measure.peers import PeerComparison, PeerRow, compare_peers
    from spanwise.measure.process_ledger import ProcessLedger
    from spanwise.measure.replay_result import Replay, Run
    from spanwise.measure.replays import replay
    from spanwise.measure.running import RunResult, run
    from spanwise.optimizer.cross_validation import cross_validate
    from spanwise.optimizer.frontier import Frontier
    from spanwise.optimizer.optimum import Constraint, OptimizeResult
    from spanwise.optimizer.search import optimize
    from spanwise.optimizer.trial import Trial
    from spanwise.pools.pool import Pool, PoolStats
    from spanwise.pools.slabs import SlabBlock, SlabsStats, TieredSlabs
    from spanwise.ranges.allocators import BuddyAllocator, RangeAllocator
    from spanwise.ranges.handle import RangeStats
    from spanwise.ranges.memory import Memory
    from spanwise.ranges.memory_allocator import MemoryAllocator
    from spanwise.ranges.reader import Reader
    from spanwise.ranges.recyclable import RecyclableMemory
    from spanwise.ranges.scalable import ScalableAllocator, ScalableBlock, ScalableStats
    from spanwise.ranges.stack import Stack, StackBlock, StackPointer, StackStats
    from spanwise.recordings.compare import compare
    from spanwise.recordings.conversion import convert
    from spanwise.recordings.live_sites import LiveSite, LiveSites
    from spanwise.recordings.recorder import record
    from spanwise.recordings.recording import Recording
    from spanwise.recordings.recording_set import RecordingSet
    from spanwise.recordings.sites import Site, Sites
    from spanwise.recordings.span_pinning import SpanPinning
    from spanwise.recordings.summary import Summary
    from spanwise.recordings.within import RecordedPart, recording
    from spanwise.results.rows import Rows
    from spanwise.sweeps.result import Sweep
    from spanwise.sweeps.sweep import SweepInterrupted, sweep
    from spanwise.tables.explanation import Explanation
    from spanwise.tables.table import SizeClassTable
    from spanwise.workloads import synthesize

__version__: str

__all__ = [
    "OPS_DTYPE",
    "Arena",
    "ArenaStats",
    "ArenaTracker",
    "BenchCase",
    "BenchFit",
    "BenchInterrupted",
    "BenchResult",
    "Block",
    "BlockBusyError",
    "BlockFreedError",
    "BuddyAllocator",
    "Build",
    "BuildError",
    "CollectedHeap",
    "CollectedObject",
    "CollectorEvents",
    "Comparison",
    "Constraint",
    "CorruptionError",
    "Cycle",
    "EscapeError",
    "Explanation",
    "Frontier",
    "GcTrace",
    "Graph",
    "Growth",
    "HandleError",
    "Heap",
    "HeapClosedError",
    "HeapMap",
    "HeapOptions",
    "HeapStats",
    "InvalidError",
    "Ledger",
    "LedgerCheck",
    "LimitError",
    "LiveSite",
    "LiveSites",
    "Measure",
    "Memory",
    "MemoryAllocator",
    "MisuseError",
    "ObjectType",
    "OptimizeResult",
    "OutOfMemoryError",
    "OverlapError",
    "OwnerError",
    "PeerComparison",
    "PeerRow",
    "Pool",
    "PoolStats",
    "ProcessLedger",
    "ProgramError",
    "ProgramNotFoundError",
    "RangeAllocator",
    "RangeStats",
    "Reader",
    "RecordedPart",
    "Recording",
    "RecordingIOError",
    "RecordingNotFoundError",
    "RecordingSet",
    "RecyclableMemory",
    "Replay",
    "Rows",
    "Run",
    "RunResult",
    "RunStats",
    "ScalableAllocator",
    "ScalableBlock",
    "ScalableStats",
    "ShortError",
    "Site",
    "Sites",
    "SizeClassTable",
    "SlabBlock",
    "SlabsStats",
    "SpanPinning",
    "SpanwiseError",
    "Stack",
    "StackBlock",
    "StackOverflowError",
    "StackPointer",
    "StackStats",
    "StateError",
    "Summary",
    "Sweep",
    "SweepInterrupted",
    "TieredSlabs",
    "TraceFormatError",
    "TrackedArena",
    "TrackerTotals",
    "Trial",
    "UnsupportedError",
    "WeakObject",
    "bench",
    "binary_tree",
    "build",
    "check_ledger",
    "compare",
    "compare_peers",
    "convert",
    "cross_validate",
    "fit_cases",
    "linked_list",
    "mutator_utilisation",
    "optimize",
    "parse_gctrace",
    "pause_histogram",
    "plots",
    "random_graph",
    "read_gctrace",
    "record",
    "recording",
    "replay",
    "run",
    "simulate_growth",
    "sweep",
    "synthesize",
    "workloads",
]

# The public names by the module that defines them, as the imports above tell type checkers; the
# names of "" are modules themselves. A module is loaded when one of its names is first used,
# because loading all of them takes longer than most commands run.
_HOMES: dict[str, tuple[str, ...]] = {
    "": ("plots", "workloads"),
    "_lib": ("OPS_DTYPE",),
    "arenas.arena": ("Arena", "ArenaStats"),
    "arenas.tracker": ("ArenaTracker", "TrackedArena", "TrackerTotals"),
    "builds.build": ("Build", "build"),
    "builds.programs": ("BuildError",),
    "gc.cycle": ("Cycle",),
    "gc.events": ("CollectorEvents",),
    "gc.finalizers": ("WeakObject",),
    "gc.graphs": ("binary_tree", "linked_list", "random_graph"),
    "gc.heap": ("CollectedHeap",),
    "gc.objects": ("CollectedObject", "Graph", "ObjectType"),
    "gc.pauses": ("mutator_utilisation", "pause_histogram"),
    "gc.trace": ("GcTrace", "parse_gctrace", "read_gctrace"),
    "heap.block": ("Block",),
    "heap.heap": ("Heap",),
    "heap.heap_map": ("HeapMap",),
    "heap.options": ("HeapOptions",),
    "heap.stats": ("HeapStats",),
    "ledger.comparison": ("Comparison",),
    "ledger.ledger": ("Ledger",),
    "ledger.measures": ("Measure",),
    "ledger.run_stats": ("RunStats",),
    "lessons.articles": ("Growth", "simulate_growth"),
    "measure.bench_cases": ("BenchCase",),
    "measure.bench_fits": ("BenchFit", "fit_cases"),
    "measure.bench_result": ("BenchResult",),
    "measure.bench": ("BenchInterrupted", "bench"),
    "measure.ledger_check": ("LedgerCheck", "check_ledger"),
    "measure.peers": ("PeerComparison", "PeerRow", "compare_peers"),
    "measure.process_ledger": ("ProcessLedger",),
    "measure.replay_result": ("Replay", "Run"),
    "measure.replays": ("replay",),
    "measure.running": ("RunResult", "run"),
    "optimizer.cross_validation": ("cross_validate",),
    "optimizer.frontier": ("Frontier",),
    "optimizer.optimum": ("Constraint", "OptimizeResult"),
    "optimizer.search": ("optimize",),
    "optimizer.trial": ("Trial",),
    "pools.pool": ("Pool", "PoolStats"),
    "pools.slabs": ("SlabBlock", "SlabsStats", "TieredSlabs"),
    "ranges.allocators": ("BuddyAllocator", "RangeAllocator"),
    "ranges.handle": ("RangeStats",),
    "ranges.memory": ("Memory",),
    "ranges.memory_allocator": ("MemoryAllocator",),
    "ranges.reader": ("Reader",),
    "ranges.recyclable": ("RecyclableMemory",),
    "ranges.scalable": ("ScalableAllocator", "ScalableBlock", "ScalableStats"),
    "ranges.stack": ("Stack", "StackBlock", "StackPointer", "StackStats"),
    "recordings.compare": ("compare",),
    "recordings.conversion": ("convert",),
    "recordings.span_pinning": ("SpanPinning",),
    "recordings.live_sites": ("LiveSite", "LiveSites"),
    "recordings.recorder": ("record",),
    "recordings.recording": ("Recording",),
    "recordings.recording_set": ("RecordingSet",),
    "recordings.sites": ("Site", "Sites"),
    "recordings.summary": ("Summary",),
    "recordings.within": ("RecordedPart", "recording"),
    "results.rows": ("Rows",),
    "sweeps.result": ("Sweep",),
    "sweeps.sweep": ("SweepInterrupted", "sweep"),
    "tables.explanation": ("Explanation",),
    "tables.table": ("SizeClassTable",),
    "workloads": ("synthesize",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name

    def __getattr__(name: str) -> Any:
        """A public name, when it is first used."""
        if name == "__version__":
            value = importlib.import_module("spanwise._lib").version()
        elif name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        elif _HOME_OF[name]:
            value = getattr(importlib.import_module(f"spanwise.{_HOME_OF[name]}"), name)
        else:
            value = importlib.import_module(f"spanwise.{name}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names, used already or not."""
    return sorted({*globals(), *__all__, "__version__"})


def load_ipython_extension(shell: Any) -> None:
    """%load_ext spanwise: registers the %%record cell magic."""
    from spanwise.recordings import magic  # noqa: PLC0415  notebooks only

    magic.load_ipython_extension(shell)
