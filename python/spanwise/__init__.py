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

from typing import Any

from spanwise.commands import _start

# A command that is interrupted while the imports below run says one line.
if _start.is_command():
    _start.quiet()

from spanwise import plots, workloads
from spanwise._lib import OPS_DTYPE, version
from spanwise.arenas.arena import Arena, ArenaStats
from spanwise.builds.build import Build, build
from spanwise.builds.programs import BuildError
from spanwise.errors import (
    BlockBusyError,
    BlockFreedError,
    CorruptionError,
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
    StateError,
    TraceFormatError,
    UnsupportedError,
)
from spanwise.gc.cycle import Cycle
from spanwise.gc.graphs import binary_tree, linked_list, random_graph
from spanwise.gc.heap import CollectedHeap
from spanwise.gc.objects import CollectedObject, Graph, ObjectType
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
from spanwise.lessons.growth import Growth, simulate_growth
from spanwise.measure.ledger_check import LedgerCheck, check_ledger
from spanwise.measure.peers import PeerComparison, PeerRow, compare_peers
from spanwise.measure.process_ledger import ProcessLedger
from spanwise.measure.replay_result import Replay, Run
from spanwise.measure.replays import replay
from spanwise.measure.running import RunResult, run
from spanwise.optimizer.frontier import Frontier
from spanwise.optimizer.optimum import Constraint, Optimum
from spanwise.optimizer.search import optimize
from spanwise.optimizer.trial import Trial
from spanwise.ranges.allocators import BuddyAllocator, RangeAllocator
from spanwise.ranges.handle import RangeStats
from spanwise.ranges.memory import Memory
from spanwise.ranges.reader import Reader
from spanwise.ranges.scalable import RecyclableMemory, ScalableAllocator, ScalableStats
from spanwise.recordings.compare import compare
from spanwise.recordings.live_sites import LiveSite, LiveSites
from spanwise.recordings.recorder import record
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.recordings.sites import Site, Sites
from spanwise.recordings.summary import Summary
from spanwise.recordings.within import RecordedPart, recording
from spanwise.results.rows import Rows
from spanwise.sweeps.result import Sweep
from spanwise.sweeps.sweep import SweepInterrupted, sweep
from spanwise.tables.explanation import Explanation
from spanwise.tables.table import SizeClassTable
from spanwise.workloads import synthesize

__version__ = version()

__all__ = [
    "OPS_DTYPE",
    "Arena",
    "ArenaStats",
    "Block",
    "BlockBusyError",
    "BlockFreedError",
    "BuddyAllocator",
    "Build",
    "BuildError",
    "CollectedHeap",
    "CollectedObject",
    "Comparison",
    "Constraint",
    "CorruptionError",
    "Cycle",
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
    "MisuseError",
    "ObjectType",
    "Optimum",
    "OutOfMemoryError",
    "OverlapError",
    "OwnerError",
    "PeerComparison",
    "PeerRow",
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
    "ScalableStats",
    "ShortError",
    "Site",
    "Sites",
    "SizeClassTable",
    "SpanwiseError",
    "StateError",
    "Summary",
    "Sweep",
    "SweepInterrupted",
    "TraceFormatError",
    "Trial",
    "UnsupportedError",
    "binary_tree",
    "build",
    "check_ledger",
    "compare",
    "compare_peers",
    "linked_list",
    "optimize",
    "parse_gctrace",
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


def load_ipython_extension(shell: Any) -> None:
    """%load_ext spanwise: registers the %%record cell magic."""
    from spanwise.recordings import magic  # noqa: PLC0415  notebooks only

    magic.load_ipython_extension(shell)
