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

from spanwise import _start

# A command that is interrupted while all of what follows loads says one line.
if _start.is_command():
    _start.quiet()

from spanwise import plots, workloads
from spanwise._lib import OPS_DTYPE, version
from spanwise._run import RunStats
from spanwise._sweep_result import Sweep
from spanwise.block import Block
from spanwise.build import Build, BuildError, build
from spanwise.comparison import Comparison, compare
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
    ProgramError,
    RecordingIOError,
    SpanwiseError,
    StateError,
    TraceFormatError,
    UnsupportedError,
)
from spanwise.explanation import Explanation
from spanwise.frontier import Frontier
from spanwise.heap import Heap, HeapStats
from spanwise.ledger import Ledger, Measure
from spanwise.ledger_check import LedgerCheck, check_ledger
from spanwise.optimize import Constraint, Optimum, optimize
from spanwise.peers import PeerComparison, compare_peers
from spanwise.process_ledger import ProcessLedger
from spanwise.recorder import record
from spanwise.replay import Replay, replay
from spanwise.running import RunResult, run
from spanwise.sizeclass import SizeClassTable
from spanwise.summary import Site, Summary
from spanwise.sweeps import SweepInterrupted, sweep
from spanwise.trace import Recording, RecordingSet
from spanwise.trial import Trial
from spanwise.workloads import synthesize

__version__ = version()

__all__ = [
    "OPS_DTYPE",
    "Block",
    "BlockBusyError",
    "BlockFreedError",
    "Build",
    "BuildError",
    "Comparison",
    "Constraint",
    "CorruptionError",
    "Explanation",
    "Frontier",
    "HandleError",
    "Heap",
    "HeapClosedError",
    "HeapStats",
    "InvalidError",
    "Ledger",
    "LedgerCheck",
    "LimitError",
    "Measure",
    "MisuseError",
    "Optimum",
    "OutOfMemoryError",
    "PeerComparison",
    "ProcessLedger",
    "ProgramError",
    "Recording",
    "RecordingIOError",
    "RecordingSet",
    "Replay",
    "RunResult",
    "RunStats",
    "Site",
    "SizeClassTable",
    "SpanwiseError",
    "StateError",
    "Summary",
    "Sweep",
    "SweepInterrupted",
    "TraceFormatError",
    "Trial",
    "UnsupportedError",
    "build",
    "check_ledger",
    "compare",
    "compare_peers",
    "optimize",
    "plots",
    "record",
    "replay",
    "run",
    "sweep",
    "synthesize",
    "workloads",
]


def load_ipython_extension(shell: Any) -> None:
    """%load_ext spanwise: registers the %%record cell magic."""
    from spanwise import magic  # noqa: PLC0415  notebooks only

    magic.load_ipython_extension(shell)
