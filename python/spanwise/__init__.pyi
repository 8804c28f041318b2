# SPDX-License-Identifier: Apache-2.0
"""The public names of spanwise, each from the module that defines it.

Type checkers read this file, and `lazy_loader` reads it when `spanwise` is imported: this is the
only list of public names.
"""

import typing

from . import plots as plots
from . import workloads as workloads
from ._lib import OPS_DTYPE as OPS_DTYPE
from .arenas.arena import Arena as Arena
from .arenas.arena import ArenaPoolStats as ArenaPoolStats
from .arenas.arena import ArenaStats as ArenaStats
from .arenas.arena import Savepoint as Savepoint
from .arenas.tracker import ArenaTracker as ArenaTracker
from .arenas.tracker import TrackedArena as TrackedArena
from .arenas.tracker import TrackerTotals as TrackerTotals
from .builds.build import Build as Build
from .builds.build import build as build
from .builds.steps import BuildError as BuildError
from .errors import BlockBusyError as BlockBusyError
from .errors import BlockFreedError as BlockFreedError
from .errors import CorruptionError as CorruptionError
from .errors import EscapeError as EscapeError
from .errors import HandleError as HandleError
from .errors import HeapClosedError as HeapClosedError
from .errors import InvalidError as InvalidError
from .errors import LimitError as LimitError
from .errors import MisuseError as MisuseError
from .errors import OutOfMemoryError as OutOfMemoryError
from .errors import OverlapError as OverlapError
from .errors import OwnerError as OwnerError
from .errors import ProgramError as ProgramError
from .errors import ProgramNotFoundError as ProgramNotFoundError
from .errors import RecordingIOError as RecordingIOError
from .errors import RecordingNotFoundError as RecordingNotFoundError
from .errors import ShortError as ShortError
from .errors import SpanwiseError as SpanwiseError
from .errors import StackOverflowError as StackOverflowError
from .errors import StateError as StateError
from .errors import TraceFormatError as TraceFormatError
from .errors import UnsupportedError as UnsupportedError
from .gc.cycle import Cycle as Cycle
from .gc.events import CollectorEvents as CollectorEvents
from .gc.events import mutator_utilisation as mutator_utilisation
from .gc.events import pause_histogram as pause_histogram
from .gc.heap import CollectedHeap as CollectedHeap
from .gc.layouts import ObjectType as ObjectType
from .gc.layouts import binary_tree as binary_tree
from .gc.layouts import linked_list as linked_list
from .gc.layouts import random_graph as random_graph
from .gc.objects import CollectedObject as CollectedObject
from .gc.objects import Graph as Graph
from .gc.objects import WeakObject as WeakObject
from .gc.roots import RootRange as RootRange
from .gc.roots import ShadowFrame as ShadowFrame
from .gc.trace import GcTrace as GcTrace
from .gc.trace import parse_gctrace as parse_gctrace
from .gc.trace import read_gctrace as read_gctrace
from .heap.block import Block as Block
from .heap.block import ThreadCache as ThreadCache
from .heap.heap import Heap as Heap
from .heap.heap import HeapStats as HeapStats
from .heap.heap_map import HeapMap as HeapMap
from .heap.options import HeapOptions as HeapOptions
from .ledger.ledger import Comparison as Comparison
from .ledger.ledger import Ledger as Ledger
from .ledger.parts import Measure as Measure
from .ledger.parts import RunStats as RunStats
from .lessons.articles import Growth as Growth
from .lessons.articles import simulate_growth as simulate_growth
from .measure.bench import BenchFit as BenchFit
from .measure.bench import BenchInterrupted as BenchInterrupted
from .measure.bench import bench as bench
from .measure.bench import fit_cases as fit_cases
from .measure.bench_cases import BenchCase as BenchCase
from .measure.bench_result import BenchResult as BenchResult
from .measure.replay_result import Replay as Replay
from .measure.replay_result import Run as Run
from .measure.replays import LedgerCheck as LedgerCheck
from .measure.replays import check_ledger as check_ledger
from .measure.replays import replay as replay
from .measure.running import ProcessLedger as ProcessLedger
from .measure.running import RunResult as RunResult
from .measure.running import run as run
from .optimizer.evaluation import Evaluation as Evaluation
from .optimizer.pareto import ParetoFront as ParetoFront
from .optimizer.result import OptimizeResult as OptimizeResult
from .optimizer.search import optimize as optimize
from .pools.pool import Pool as Pool
from .pools.pool import PoolStats as PoolStats
from .pools.pool import SlabBlock as SlabBlock
from .pools.pool import SlabsStats as SlabsStats
from .pools.pool import TieredSlabs as TieredSlabs
from .ranges.allocators import BuddyAllocator as BuddyAllocator
from .ranges.allocators import RangeAllocator as RangeAllocator
from .ranges.allocators import RangeStats as RangeStats
from .ranges.blocks import ScalableBlock as ScalableBlock
from .ranges.memory import Memory as Memory
from .ranges.reader import Reader as Reader
from .ranges.scalable import MemoryAllocator as MemoryAllocator
from .ranges.scalable import RecyclableMemory as RecyclableMemory
from .ranges.scalable import ScalableAllocator as ScalableAllocator
from .ranges.scalable import ScalableStats as ScalableStats
from .ranges.stack import Stack as Stack
from .ranges.stack import StackBlock as StackBlock
from .ranges.stack import StackPointer as StackPointer
from .ranges.stack import StackStats as StackStats
from .recordings.conversion import convert as convert
from .recordings.live_sites import LiveSite as LiveSite
from .recordings.live_sites import LiveSites as LiveSites
from .recordings.recorder import record as record
from .recordings.recording import Recording as Recording
from .recordings.recording_set import RecordingSet as RecordingSet
from .recordings.recording_set import compare as compare
from .recordings.regions import RecordedPart as RecordedPart
from .recordings.regions import recording as recording
from .recordings.sampled import Estimates as Estimates
from .recordings.sampled import SampledRecording as SampledRecording
from .recordings.sites import Site as Site
from .recordings.sites import Sites as Sites
from .recordings.span_pinning import SpanPinning as SpanPinning
from .recordings.summary import Summary as Summary
from .recordings.timeline import AfterPeak as AfterPeak
from .results.rows import Rows as Rows
from .sweeps.result import Sweep as Sweep
from .sweeps.sweep import SweepInterrupted as SweepInterrupted
from .sweeps.sweep import sweep as sweep
from .tables.classes import Explanation as Explanation
from .tables.table import SizeClassTable as SizeClassTable
from .workloads import synthesize as synthesize

__all__: list[str]
__version__: str

def load_ipython_extension(shell: typing.Any) -> None: ...
