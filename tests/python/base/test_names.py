# SPDX-License-Identifier: Apache-2.0
"""Public types of the same kind have the same methods."""

from __future__ import annotations

import inspect

import spanwise as sw
from spanwise.results.rows import Result, Rows, Tabular

PUBLIC_TYPES = [
    found
    for name in sw.__all__
    if inspect.isclass(found := getattr(sw, name)) and not issubclass(found, BaseException)
]


def test_what_has_rows_has_all_forms_of_them() -> None:
    with_rows = [kind for kind in PUBLIC_TYPES if hasattr(kind, "to_pandas")]
    for kind in with_rows:
        assert hasattr(kind, "to_columns") and hasattr(kind, "to_json"), kind
    assert {kind.__name__ for kind in with_rows} >= {
        *(
            "Comparison",
            "Evaluation",
            "Ledger",
            "OptimizeResult",
            "ParetoFront",
            "PeerComparison",
            "Recording",
        ),
        *(
            "LiveSites",
            "RecordingSet",
            "Replay",
            "Rows",
            "Sites",
            "SizeClassTable",
            "Sweep",
        ),
    }
    assert all(issubclass(kind, Tabular | Rows) for kind in with_rows)


def test_every_result_becomes_json() -> None:
    """All public types but memory, a context, and two plain tuples of a name and a number."""
    others = {
        "Block",
        "Heap",
        "Rows",
        "Measure",
        "Constraint",
        "RecordedPart",
        "Arena",
        "ArenaTracker",
        "Savepoint",
        "ThreadCache",
        "RootRange",
        "ShadowFrame",
        "BuddyAllocator",
        "CollectedHeap",
        "CollectedObject",
        "Graph",
        "ObjectType",
        "WeakObject",
        "Pool",
        "RangeAllocator",
        "Memory",
        "Reader",
        "RecyclableMemory",
        "ScalableAllocator",
        "MemoryAllocator",
        "Stack",
        "StackBlock",
        "StackPointer",
        "ScalableBlock",
        "SlabBlock",
        "TieredSlabs",
    }
    for kind in PUBLIC_TYPES:
        assert (kind.__name__ in others) or issubclass(kind, Result), kind


def test_a_set_answers_all_that_a_recording_answers() -> None:
    """Except that it is opened from several files."""
    own = {name for name in dir(sw.Recording) if not name.startswith("_")}
    assert own - set(dir(sw.RecordingSet)) == {
        "from_ops",
        *("allocator", "memory", "missing", "runtimes", "switched_off"),
        *("live_objects", "site_frames", "site_labels"),
    }
    for call in ("ledger", "compare", "timeline", "plot_timeline", "histogram", "blocks"):
        of_one = inspect.signature(getattr(sw.Recording, call))
        assert of_one == inspect.signature(getattr(sw.RecordingSet, call)), call
