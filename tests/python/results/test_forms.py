# SPDX-License-Identifier: Apache-2.0
"""Forms of results: rows for other tools, equality and hash, texts of bounded length, files."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.measure.bench_result import ROW_FIELDS
from spanwise.measure.running import ProcessLedger
from spanwise.recordings.recorder import temporary_recording
from spanwise.recordings.sites import Site, Sites
from spanwise.recordings.sources import write_ops
from spanwise.results.rows import as_rows
from spanwise.tables.table import STOCK

from tests.python.helpers import random_ops

REPR_MAX = 4096

ROWS = np.array(
    [
        (1, -2, 0.5, True, "plain", (1, 2, 3), 7),
        (255, -(2**63), math.inf, False, "", (4, 5, 6), 2**64 - 1),
        (0, 2**63 - 1, -0.25, True, "grüße ☃", (0, 0, 0), 0),
    ],
    [
        ("byte", "u1"),
        ("signed", "<i8"),
        ("real", "<f8"),
        ("truth", "?"),
        ("text", "U20"),
        ("three", "<u4", (3,)),
        ("wide", "<u8"),
    ],
)
EXPECTED = {
    "byte": [1, 255, 0],
    "signed": [-2, -(2**63), 2**63 - 1],
    "real": [0.5, math.inf, -0.25],
    "truth": [True, False, True],
    "text": ["plain", "", "grüße ☃"],
    "three": [[1, 2, 3], [4, 5, 6], [0, 0, 0]],
    "wide": [7, 2**64 - 1, 0],
}


# --- rows -----------------------------------------------------------------------------------------


def test_columns_by_name() -> None:
    columns = as_rows(ROWS).to_columns()
    assert {n: c if isinstance(c, list) else c.tolist() for n, c in columns.items()} == EXPECTED
    assert np.shares_memory(columns["wide"], ROWS)
    assert [len(column) for column in as_rows(ROWS[:0]).to_columns().values()] == [0] * len(
        EXPECTED
    )


@pytest.mark.parametrize("tool", ["pyarrow", "polars", "pandas"])
def test_tools_that_are_installed_read_rows(tool: str) -> None:
    module = pytest.importorskip(tool)
    rows = as_rows(ROWS)
    if tool == "pyarrow":
        assert module.table(rows.to_columns()).to_pydict() == EXPECTED
        assert module.table(rows).to_pydict() == EXPECTED
    elif tool == "polars":
        frames = [module.DataFrame(rows.to_columns())]
        if importlib.util.find_spec("pyarrow"):
            frames += [module.DataFrame(rows), module.from_arrow(rows).struct.unnest()]
        for frame in frames:
            found = frame.to_dict(as_series=False)
            assert {name: [*map(_plain, values)] for name, values in found.items()} == EXPECTED
    else:
        assert rows.to_pandas().to_dict("list") == EXPECTED
        names = [name for name in EXPECTED if name != "three"]
        assert module.DataFrame(rows[names]).to_dict("list") == {n: EXPECTED[n] for n in names}
        assert list(module.DataFrame(rows[:0][names]).columns) == names


@pytest.mark.parametrize("tool", ["pyarrow", "polars"])
def test_tools_that_are_installed_read_results(tool: str) -> None:
    """A result's rows, without asking for them."""
    module = pytest.importorskip(tool)
    pytest.importorskip("pyarrow")
    recording = sw.workloads.steady_replacement(50, 200)
    for result in (recording.ledger(), recording.live_sites(), recording.span_pinning("size")):
        made = module.table(result) if tool == "pyarrow" else module.DataFrame(result)
        names = made.column_names if tool == "pyarrow" else made.columns
        assert list(names) == list(result.array.dtype.names)
        assert made.shape[0] == len(result.array)


def test_arrow_needs_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(sw.UnsupportedError, match="pip install pyarrow, or use rows"):
        as_rows(ROWS).__arrow_c_stream__()


def test_completion_of_rows_offers_few_names() -> None:
    rows = as_rows(ROWS)
    assert {"to_pandas", "to_columns", "dtype", "tolist"} <= set(dir(rows)) and len(dir(rows)) < 12
    assert all(hasattr(rows, name) and not name.startswith("_") for name in dir(rows))


def _plain(value: Any) -> Any:
    return value.to_list() if hasattr(value, "to_list") else value


def test_rows_are_read_as_numpy_arrays() -> None:
    array = ROWS.copy()
    rows = as_rows(array)
    assert np.shares_memory(np.asarray(rows), array) and rows.dtype == array.dtype
    assert np.asarray(rows, copy=True).base is None
    assert type(rows[:2]) is type(rows) and type(rows["wide"]) is np.ndarray
    assert type(rows[["byte", "wide"]]) is type(rows) and np.concatenate([rows, rows]).shape == (6,)
    assert (rows == array).all() and not (rows != as_rows(array)).any() and len(list(rows)) == 3
    assert not hasattr(rows, "__array_interface__") and not hasattr(rows, "no_such_name")
    assert isinstance(rows[0], np.void) and rows[rows["truth"]]["byte"].tolist() == [1, 0]
    assert rows["signed"].max() == 2**63 - 1
    with pytest.raises(ValueError, match=r"no column 'no'; the columns are byte, signed"):
        rows["no"]
    rows["byte"][0] = 9
    assert rows[0]["byte"] == 9
    assert json.loads(rows[:1].to_json())[0]["three"] == [1, 2, 3]
    assert pickle.loads(pickle.dumps(rows)).tobytes() == rows.tobytes()


def test_a_printed_row_names_its_columns() -> None:
    """It is still numpy's scalar, equal to the array's, and writes through to it."""
    array = np.zeros(2, [("size_bytes", "<i8"), ("share", "<f8"), ("name", "U4"), ("two", "i4", 2)])
    rows = as_rows(array)
    row = rows[1]
    row["size_bytes"], row["name"] = 24, "c16"
    assert repr(row) == "Row(size_bytes=24, share=0.0, name='c16', two=[0, 0])" == f"{row}"
    assert [repr(one) for one in rows][1] == repr(row) == repr(rows[-1])
    assert array[1]["size_bytes"] == 24 and row["two"].tolist() == [0, 0]
    assert as_rows(array[["name", "share"]])[1] == array[["name", "share"]][1]
    assert repr(rows[["name", "share"]][1]) == "Row(name='c16', share=0.0)"
    assert repr(pickle.loads(pickle.dumps(row))) == repr(row) and rows["share"][0] == 0.0
    assert f"live_objects={LEDGER.classes[1]['live_objects']}" in repr(LEDGER.classes[1])
    for one, name in ((row, "share"), (rows, "share"), (row, "absent")):
        meant = r"; its columns are items: \['share'\]" if name == "share" else ""
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'{meant}$"):
            getattr(one, name)


# --- results --------------------------------------------------------------------------------------

RECORDING = sw.Recording.from_ops(random_ops(2, 3000, threads=2), name="mine")
LEDGER = RECORDING.ledger("go")
LONG = "x" * 3000


def big_ledgers() -> list[sw.Ledger]:
    return [replace(LEDGER, table=f"a table with a long name {i}", source=LONG) for i in range(99)]


def big_process() -> ProcessLedger:
    return ProcessLedger(1, LONG, LEDGER, LEDGER, 5, 6, True, None)


def big_sites() -> Sites:
    return Sites(Site(i, i, i, (f"/{LONG[:300]}+{i:#x}",) * 3) for i in range(3000))


@functools.cache
def big_optimum() -> sw.OptimizeResult:
    tables = [sw.SizeClassTable.geometric(1.1 + i / 50) for i in range(30)]
    return sw.optimize(RECORDING, 4, tables=tables, waste_percent=100, progress=False)


def big_replay() -> sw.Replay:
    samples: Any = as_rows(np.zeros(4000, [("op", "i8"), ("rss_bytes", "i8")]))
    left = {float(i): i for i in range(99)}
    fields: Any = (*[1] * 13, left, LONG, None, samples, samples)
    run = sw.Run(*fields)
    return sw.Replay("mine", LONG, 1, 1, 0, 1, 1, "pages", None, (run,) * 100)


@functools.cache
def big_sweep() -> sw.Sweep:
    tables = [sw.SizeClassTable.geometric(1.1 + i / 99) for i in range(60)]
    short = sw.Recording.from_ops(random_ops(4, 60), name=LONG[:900])
    return sw.sweep([short], tables, progress=False, workers=1)


GC_LINES = [
    "gc 1 @0.452s 3%: 0.026+12.3+0.012 ms clock, 0.21+0.21/2.1/12.3+0.098 ms cpu,"
    " 12MB->13MB->8MB (16MB goal)"
]

BENCH_ROW = dict.fromkeys(ROW_FIELDS) | {"program": "ls", "allocator": "glibc", "round": 0}


def stack_pointer() -> sw.StackPointer:
    stack = sw.Stack()
    return stack.register(stack.push(5))


def big_events() -> sw.CollectorEvents:
    with sw.CollectedHeap() as heap:
        heap.record_events()
        for _ in range(200):
            heap.collect()
        return heap.events()


BIG: dict[str, Callable[[], Any]] = {
    "Block": lambda: sw.Heap(dry=True).alloc(1 << 40),
    "BuddyAllocator": lambda: sw.BuddyAllocator(1 << 40),
    "Growth": lambda: sw.simulate_growth([1] * 100),
    "Memory": lambda: sw.Memory(*[b"x" * 1000] * 5000),
    "RecyclableMemory": lambda: sw.RecyclableMemory(sw.ScalableAllocator()),
    "ScalableAllocator": sw.ScalableAllocator,
    "ScalableBlock": lambda: sw.ScalableAllocator().alloc(1 << 20),
    "ScalableStats": lambda: sw.ScalableAllocator().stats(),
    "MemoryAllocator": lambda: sw.MemoryAllocator(1 << 40),
    "Stack": sw.Stack,
    "StackBlock": lambda: sw.Stack().push(5),
    "StackPointer": stack_pointer,
    "StackStats": lambda: sw.Stack().stats(),
    "Reader": lambda: sw.Reader(bytes(1 << 20)),
    "AfterPeak": RECORDING.after_peak,
    "Arena": sw.Arena,
    "ArenaAllocator": lambda: sw.ArenaAllocator(sw.Arena()),
    "ArenaPoolStats": sw.Arena.pool_stats,
    "ArenaStats": lambda: sw.Arena().stats(),
    "ArenaTracker": sw.ArenaTracker,
    "Build": lambda: sw.Build(Path("/x"), {"table": {"name": "a", "hash": "b"}, "flags": [LONG]}),
    "CollectedHeap": sw.CollectedHeap,
    "CollectedObject": lambda: big_graph()[1],
    "CollectorEvents": big_events,
    "Comparison": lambda: sw.Comparison(big_ledgers()),
    "Cycle": lambda: sw.CollectedHeap().collect(),
    "Explanation": lambda: sw.SizeClassTable.go().explain(33),
    "BenchResult": lambda: sw.BenchResult([BENCH_ROW] * 500),
    "BenchCase": lambda: sw.BenchCase("ls", "", ("ls", LONG)),
    "BenchFit": lambda: sw.BenchFit("ls", sw.SizeClassTable.c16(), False, LONG[:900], None),
    "ParetoFront": lambda: sw.ParetoFront(as_rows(np.repeat(pareto_rows(), 500))),
    "GcTrace": lambda: sw.parse_gctrace(GC_LINES * 500),
    "Graph": lambda: big_graph()[2],
    "Heap": sw.Heap,
    "HeapMap": RECORDING.map,
    "HeapOptions": lambda: sw.HeapOptions(1 << 60, "address", math.inf, 65535),
    "HeapStats": lambda: sw.Heap().stats(),
    "SpanPinning": RECORDING.span_pinning,
    "Ledger": lambda: big_ledgers()[0],
    "LedgerCheck": lambda: sw.LedgerCheck(dict.fromkeys(parts(), 1), LEDGER),
    "LiveSite": lambda: RECORDING.live_sites()[0],
    "LiveSites": RECORDING.live_sites,
    "Measure": lambda: LEDGER.measures["mean_occupancy"],
    "ObjectType": lambda: sw.CollectedHeap().add_type(LONG, 8000, range(1000)),
    "OptimizeResult": big_optimum,
    "Pool": lambda: sw.Pool(sw.Heap(), 1 << 40),
    "PoolStats": lambda: sw.Pool(sw.Heap(), 1 << 40).stats(),
    "ProcessLedger": big_process,
    "RangeAllocator": lambda: sw.RangeAllocator(1 << 60),
    "RangeStats": lambda: sw.RangeAllocator(1 << 60).stats(),
    "RecordedPart": sw.RecordedPart,
    "Recording": lambda: RECORDING,
    "RecordingSet": lambda: sw.RecordingSet([RECORDING] * 100),
    "Replay": big_replay,
    "Rows": lambda: RECORDING.ops,
    "Run": lambda: big_replay().runs[0],
    "RunResult": lambda: sw.RunResult(("ls", *[LONG] * 9), 0, big_process(), (big_process(),) * 99),
    "RootRange": lambda: sw.CollectedHeap().roots(1 << 16),
    "RunStats": lambda: LEDGER.stats,
    "Savepoint": lambda: sw.Arena().savepoint(),
    "ShadowFrame": lambda: sw.CollectedHeap().frame(1 << 16),
    "Site": lambda: big_sites()[0],
    "Sites": big_sites,
    "SizeClassTable": sw.SizeClassTable.tcmalloc,
    "SlabBlock": lambda: sw.TieredSlabs(sw.Heap(), capacity=4).alloc(5),
    "SlabsStats": lambda: sw.TieredSlabs(sw.Heap(), capacity=4).stats(),
    "Summary": lambda: RECORDING.summary,
    "Sweep": big_sweep,
    "ThreadCache": lambda: sw.Heap().open_cache(),
    "TieredSlabs": lambda: sw.TieredSlabs(sw.Heap(), range(16, 144, 16), capacity=4),
    "TrackedArena": lambda: sw.TrackedArena(1, LONG[:900], 0, 1, 2, 3, 4, (1 << 63,) * 8),
    "TrackerTotals": lambda: sw.TrackerTotals(*range(10)),
    "Estimates": lambda: sampled().estimate(),
    "Fleet": lambda: sw.fleet(str(sampled().path)),
    "SampledRecording": lambda: sampled(),  # noqa: PLW0108 - it is defined below
    "Ephemeron": lambda: big_pair(),  # noqa: PLW0108 - it is defined below
    "Evaluation": lambda: big_optimum().evaluation,
    "WeakObject": lambda: big_weak(),  # noqa: PLW0108 - it is defined below
}


def sampled() -> sw.SampledRecording:
    place = temporary_recording()
    ops = np.asarray(random_ops(2, 3000))
    write_ops(place, iter([ops[ops["kind"] != 2]]), [("sample_bytes", "4096")])
    return sw.SampledRecording.open(place)


def big_graph() -> tuple[sw.CollectedHeap, sw.CollectedObject, sw.Graph]:
    heap = sw.CollectedHeap()
    kind = heap.add_type(LONG, 16, [0, 1])
    return heap, heap.new(kind, 1 << 20), heap.build(kind, sw.binary_tree(10), keep=range(2047))


def big_weak() -> sw.WeakObject:
    heap, target, _ = big_graph()
    return heap.weak(target)


def big_pair() -> sw.Ephemeron:
    heap, target, _ = big_graph()
    return heap.ephemeron(target, target)


def pareto_rows() -> np.ndarray[Any, np.dtype[np.void]]:
    return np.asarray(big_optimum().make_pareto((4,), (0, 1), (1,), progress=False).array)


def parts() -> tuple[str, ...]:
    from spanwise.ledger.parts import PARTS  # noqa: PLC0415

    return (*PARTS, "held_bytes")


def test_every_public_type_has_an_example() -> None:
    types = {name for name in sw.__all__ if isinstance(getattr(sw, name), type)}
    plain = {name for name in types if not issubclass(getattr(sw, name), BaseException)}
    assert set(BIG) == plain


def test_arguments_of_a_class_are_explained_in_its_own_docstring() -> None:
    """So `print(cls.__doc__)` has them, and there is one place to look."""
    types = [one for name in sw.__all__ if isinstance(one := getattr(sw, name), type)]
    apart = [one for one in types if "Args:" in (vars(one).get("__init__").__doc__ or "")]
    assert apart == []
    explained = {one.__name__ for one in types if "\n    Args:\n" in (one.__doc__ or "")}
    assert {"Heap", "Arena", "RangeAllocator", "ScalableAllocator", "Pool"} <= explained


@pytest.mark.parametrize("name", sorted(BIG))
def test_a_repr_is_short_and_says_what_it_is(name: str) -> None:
    text = repr(BIG[name]())
    assert 0 < len(text.encode()) <= REPR_MAX
    assert "object at 0x" not in text


@pytest.mark.parametrize("name", sorted(BIG))
def test_a_result_becomes_json_and_rows_become_columns(name: str, tmp_path: Path) -> None:
    made = BIG[name]()
    if hasattr(made, "to_json"):
        text = made.to_json(tmp_path / "x.json")
        assert (tmp_path / "x.json").read_text(encoding="utf-8") == text
        json.loads(text)
    if hasattr(made, "array"):
        columns = made.to_columns()
        assert list(columns) == list(made.array.dtype.names)
        assert all(len(values) == len(made.array) for values in columns.values())


VALUES = ("Build", "Comparison", "Ledger", "ProcessLedger", "Run", "Replay", "RunResult", "Sites")


@pytest.mark.parametrize("name", VALUES)
def test_equal_results_are_equal_and_hash_alike(name: str) -> None:
    one, other = BIG[name](), BIG[name]()
    assert one == other and hash(one) == hash(other) and len({one, other}) == 1
    assert one != 3 and one is not other


def test_different_results_differ() -> None:
    assert LEDGER == RECORDING.ledger("go") != RECORDING.ledger("c16")
    assert replace(LEDGER, held_bytes=1) != LEDGER
    classes = LEDGER.classes.copy()
    classes["live_objects"][3] += 1
    assert replace(LEDGER, classes=classes) != LEDGER
    assert sw.Comparison([LEDGER]) != sw.Comparison([LEDGER, LEDGER])


def test_comparisons_have_a_row_a_ledger() -> None:
    made = sw.compare(RECORDING, STOCK)
    assert made.array["table"].tolist() == ["go", "c16"]
    assert made.array["held_bytes"].tolist() == [one.held_bytes for one in made.ledgers]
    assert np.isnan(made.array["rss_bytes"]).all()  # simulated: nothing is resident
    assert made == RECORDING.compare() == RECORDING.compare(["go", "c16"])
    assert made.best("waste_bytes") in made.ledgers
    with pytest.raises(sw.InvalidError, match="field 'table' is not a number of a ledger"):
        made.best("table")


def test_without_pandas_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(sw.UnsupportedError, match="pip install pandas"):
        LEDGER.to_pandas()


# --- progress -------------------------------------------------------------------------------------


def test_progress_steps_add_up() -> None:
    for call in (
        lambda tell: RECORDING.ledger("go", progress=tell),
        lambda tell: RECORDING.timeline("go", progress=tell),
        lambda tell: sw.RecordingSet([RECORDING]).ledger("go", progress=tell),
    ):
        steps: list[int] = []
        call(steps.append)
        assert sum(steps) == len(RECORDING)
    both: list[int] = []
    sw.compare(RECORDING, ["go", "c16"], progress=both.append)
    assert sum(both) == 2 * len(RECORDING)
