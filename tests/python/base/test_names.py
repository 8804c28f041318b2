# SPDX-License-Identifier: Apache-2.0
"""The page docs/design/python-api.md is what the package has, and its names follow its rules."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from types import ModuleType
from typing import Any

import pytest
import spanwise as sw
from spanwise.results.rows import Rows, Tabular
from spanwise.results.values import Result

from tests.python.helpers import ROOT

MIRRORS_OF_C = ("Recording.ops", "Heap.spans", "HeapMap.array")
"""Rows whose columns are C's where that breaks the rule of units: `size`, `bytes`."""

COUNTED_BYTES = re.compile(
    r"(^|_)(size|requested|roundup|rounded|tail|held|waste|usable|rss|limit|largest|smallest"
    r"|metadata|cached|quarantine|slack|returned|hole)(_|$)"
)
FINE = re.compile(r"(_bytes|_percent)$|_over_|^held_out")
OLD_WORDS = re.compile(
    r"^(objects|usable|rounded|tail_waste|waste_pct|max_(?!waste)\w+|largest|smallest|limit|batch|knobs|say"
    r"|plain|json|real|peak_live_bytes|held|partial_bytes|head|cells|rows)$"
)
ARGUMENTS_OF_REQUESTS = {"size", "waste"}  # alloc(size), table.waste(size): as in C
OF_ANY_UNIT = {("Constraint", "waste")}  # bytes or byte-seconds: Optimum.unit says which
OF_THE_CALLERS_UNIT = {"BuddyAllocator", "RangeAllocator", "RangeStats"}  # not always bytes
TEXT_OR_COUNT = {("workloads.draw", "count"), ("Recording.blocks", "rows")}
TRUTHS = {("plots.ledgers", "waste_only")}
EXCEPT = {
    *OF_ANY_UNIT,
    *TEXT_OR_COUNT,
    ("RecordingSet.blocks", "rows"),
    ("Sweep", "rows"),
    ("Field", "rows"),
    *TRUTHS,
}
PLOTS_OF_ROWS = tuple(
    f"plots.{name}"
    for name in (
        *("arena_lifetimes", "boundaries", "extents", "histogram", "ledgers", "lifetimes"),
        "replays",
    )
)


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_names", ROOT / "scripts/api_names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["api_names"] = module
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
NAMES: list[Any] = SCRIPT.public_names()
PUBLIC_TYPES = [getattr(sw, one.name) for one in NAMES if (one.owner, one.kind) == ("", "type")]


def broken_names(names: list[Any]) -> list[str]:
    """Names that break the rule of units, or are words that another word has replaced."""
    found = []
    for one in names:
        if one.kind not in ("data", "argument", "column") or not one.owner:
            continue
        if one.owner.split(".")[0] in OF_THE_CALLERS_UNIT:
            continue
        if one.owner in MIRRORS_OF_C or (one.owner, one.name) in EXCEPT:
            continue
        if one.owner in PLOTS_OF_ROWS and one.name == "rows":
            continue
        asked = one.kind == "argument" and one.name in ARGUMENTS_OF_REQUESTS
        bare = COUNTED_BYTES.search(one.name) and not FINE.search(one.name)
        if (bare or OLD_WORDS.match(one.name)) and not asked:
            found.append(f"{one.owner}: {one.name}")
    return found


def test_the_page_is_what_the_package_has() -> None:
    assert SCRIPT.main([]) == 0
    assert len(NAMES) > 600


def test_names_follow_the_rules() -> None:
    assert broken_names(NAMES) == []


@pytest.mark.parametrize("name", ["max_size", "limit", "held", "tail", "peak_live_bytes", "rows"])
def test_a_name_that_breaks_a_rule_is_found(name: str) -> None:
    assert broken_names([SCRIPT.Name("Ledger", name, "data")]) == [f"Ledger: {name}"]


@pytest.mark.parametrize(
    ("argument", "default"), [("progress", None), ("options", None), ("at", "peak"), ("ax", None)]
)
def test_an_argument_has_one_default(argument: str, default: object) -> None:
    given = [one for one in NAMES if one.kind == "argument" and one.name == argument]
    public = [one for one in given if one.default is not inspect.Parameter.empty]
    assert len(public) > 4
    assert {one.default for one in public} == {default}


def test_what_has_rows_has_all_forms_of_them() -> None:
    with_rows = [kind for kind in PUBLIC_TYPES if hasattr(kind, "to_pandas")]
    for kind in with_rows:
        assert hasattr(kind, "__arrow_c_stream__") and hasattr(kind, "to_json"), kind
    assert {kind.__name__ for kind in with_rows} >= {
        *("Comparison", "Frontier", "Ledger", "Optimum", "PeerComparison", "Recording"),
        *(
            "LiveSites",
            "RecordingSet",
            "Replay",
            "Rows",
            "Sites",
            "SizeClassTable",
            "Sweep",
            "Trial",
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
    """But it is opened of several files, and made of recordings instead of operations."""
    own = {one.name for one in NAMES if one.owner == "Recording" and one.kind in ("data", "method")}
    of_set = {one.name for one in NAMES if one.owner == "RecordingSet"}
    assert own - of_set == {"from_ops"}
    for call in ("ledger", "compare", "timeline", "plot_timeline", "histogram", "blocks"):
        of_one = inspect.signature(getattr(sw.Recording, call))
        assert of_one == inspect.signature(getattr(sw.RecordingSet, call)), call
