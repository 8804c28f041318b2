# SPDX-License-Identifier: Apache-2.0
"""Record the allocations of any program, and account for every byte under any size-class table.

import spanwise as sw

recording = sw.record(["python3", "-c", "import json"])
print(recording.ledger("go"), recording.ledger("c16"))

with sw.Heap(table=sw.SizeClassTable.go()) as heap:
    block = heap.alloc(100)
    view = block.view()

Objects for experiments; `help(sw.Heap)` and so on have the details:

    allocator       SizeClassTable, Heap, HeapOptions, Ledger, Comparison, HeapMap
    collector       CollectedHeap, ObjectType, CollectedObject, linked_list, random_graph
    arenas, pools   Arena, ArenaAllocator, ArenaTracker, Pool, TieredSlabs
    ranges          RangeAllocator, BuddyAllocator, ScalableAllocator, MemoryAllocator, Stack
    buffers         Memory, Reader, RecyclableMemory
    recordings      record, recording, Recording, workloads, compare, sweep, optimize
    measurements    replay, run, bench, check_ledger
    lessons         lessons.placement, lessons.service, lessons.cases, lessons.articles
    pictures        plots, and the `plot` methods

`__init__.pyi` lists the public names. A module is loaded when one of its names is first used,
because loading all of them takes longer than most commands run.
"""

from __future__ import annotations

from typing import Any

from spanwise.commands import _start

# Ctrl-C while a command loads its modules prints one line instead of a traceback.
if _start.is_command():
    _start.quiet()

import lazy_loader

_load, _public_names, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from spanwise import _lib  # noqa: PLC0415  loads the C library

        return _lib.version()
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*_public_names(), "__version__"})


def load_ipython_extension(shell: Any) -> None:
    """Register the %%record cell magic for `%load_ext spanwise`."""
    from spanwise.recordings import regions  # noqa: PLC0415  notebooks only

    regions.load_ipython_extension(shell)
