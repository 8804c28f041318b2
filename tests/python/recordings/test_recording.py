# SPDX-License-Identifier: Apache-2.0
"""Recordings from Python: operations in and out, totals, slices, ends of threads, damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from spanwise.recordings.sources import own_ops

from tests.python.helpers import ALLOC, FREE, REALLOC, histories, make_ops, random_ops


def renamed(ops: NDArray[np.void]) -> NDArray[np.void]:
    """Renumber objects by birth, so that equal histories are equal."""
    out: NDArray[np.void] = ops.copy()
    names: dict[int, int] = {}
    births = 0
    for row in out:
        if row["kind"] == ALLOC:
            names[int(row["object"])] = births
            births += 1
        row["object"] = names[int(row["object"])]
    return out


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> sw.Recording:
    """A recording of 50,000 operations in a file."""
    path = tmp_path_factory.mktemp("stored") / "a.swt"
    return sw.Recording.from_ops(random_ops(1, 50_000), path)


# --- operations -----------------------------------------------------------------------------------


@given(histories())
def test_file_round_trip(tmp_path_factory: pytest.TempPathFactory, ops: NDArray[np.void]) -> None:
    path = tmp_path_factory.getbasetemp() / "trip.swt"
    again = sw.Recording.from_ops(ops, path)
    assert (renamed(np.asarray(again.ops)) == renamed(ops)).all()
    plain = sw.Recording.from_ops(ops)
    assert again.summary.to_dict() == plain.summary.to_dict()
    assert (again.histogram() == plain.histogram()).all()
    assert (again.threads == plain.threads).all()


def test_ops_are_the_array_itself() -> None:
    ops = random_ops(1, 100)
    recording = sw.Recording.from_ops(ops)
    assert recording.ops.ctypes.data == ops.ctypes.data
    assert not recording.ops.flags.writeable


def test_bad_rows(stored: sw.Recording) -> None:
    with pytest.raises(ValueError, match="rows 0: give at least 1"):
        stored.blocks(0)
    with pytest.raises(TypeError):
        stored.blocks(1.5)  # type: ignore[arg-type]


def test_time_must_not_fall() -> None:
    ops = make_ops((ALLOC, 0, 8), (FREE, 0, 0))
    ops["time_ns"] = [5, 4]
    with pytest.raises(ValueError, match=r"^operation 1: time 4 ns is before that of the"):
        sw.Recording.from_ops(ops)


def test_operations_must_be_operations() -> None:
    others: list[Any] = [[], np.zeros(3), None]
    for bad in others:
        with pytest.raises(TypeError, match=r"ops must be a numpy array of spanwise\.OPS_DTYPE"):
            sw.Recording.from_ops(bad)


def test_nothing_is_written_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="operation 0"):
        sw.Recording.from_ops(make_ops((FREE, 0, 0)), tmp_path / "a.swt")
    with pytest.raises(OSError, match="nowhere"):
        sw.Recording.from_ops(random_ops(1, 5), tmp_path / "nowhere/a.swt")
    with pytest.raises(ValueError, match="holds a NUL character"):
        sw.Recording.from_ops(random_ops(1, 5), str(tmp_path / "a\0b"))
    assert list(tmp_path.iterdir()) == []


# --- totals ---------------------------------------------------------------------------------------


def slow_summary(ops: NDArray[np.void]) -> dict[str, int]:
    """Compute the totals operation by operation."""
    sizes: dict[int, int] = {}
    live = peak = peak_op = peak_objects = 0
    for i, row in enumerate(ops.tolist()):
        _, size, object_id, _, _, kind, _, _ = row
        live -= sizes.pop(object_id, 0) if kind != ALLOC else 0
        if kind != FREE:
            sizes[object_id] = size
            live += size
        if live > peak:
            peak, peak_op = live, i + 1
        peak_objects = max(peak_objects, len(sizes))
    return {
        "peak_requested_bytes": peak,
        "peak_op": peak_op,
        "peak_live_objects": peak_objects,
        "end_requested_bytes": live,
        "end_live_objects": len(sizes),
    }


@given(histories())
def test_summary(ops: NDArray[np.void]) -> None:
    summary = sw.Recording.from_ops(ops).summary.to_dict()
    assert {name: summary[name] for name in slow_summary(ops)} == slow_summary(ops)
    kinds = [int((ops["kind"] == kind).sum()) for kind in (ALLOC, FREE, REALLOC)]
    assert [summary["allocs"], summary["frees"], summary["reallocs"]] == kinds
    assert summary["ops"] == sum(kinds) == len(ops)
    assert summary["threads"] == len(set(ops["thread"].tolist()))
    assert summary["largest_bytes"] == ops["size"].max()


def test_histogram(stored: sw.Recording) -> None:
    rows = stored.histogram()
    sizes, counts = np.unique(stored.ops["size"][stored.ops["kind"] != FREE], return_counts=True)
    assert rows["size_bytes"].tolist() == sizes.tolist()
    assert rows["count"].tolist() == counts.tolist()
    assert rows["total_bytes"].tolist() == (sizes * counts.astype(np.uint64)).tolist()


def test_histogram_of_what_lives() -> None:
    """By hand: sizes of live objects after an operation; a resized one has its last size."""
    rows = [(ALLOC, 0, 40), (ALLOC, 1, 40), (ALLOC, 2, 100_000), (REALLOC, 1, 48), (FREE, 2, 0)]
    recording = sw.Recording.from_ops(make_ops(*rows))

    def sizes(one: sw.Recording | sw.RecordingSet, at: str | float) -> list[tuple[int, ...]]:
        return [row.tolist() for row in one.live_histogram(at)]

    assert sizes(recording, "peak") == [(40, 1, 40), (48, 1, 48), (100_000, 1, 100_000)]
    assert sizes(recording, "end") == [(40, 1, 40), (48, 1, 48)]
    second = int(recording.ops["time_ns"][1]) * 1e-9
    assert sizes(recording, second) == [(40, 2, 80)]
    assert sizes(sw.RecordingSet([recording, recording]), second) == [(40, 4, 160)]
    with pytest.raises(sw.InvalidError, match="'peak-resident' depends on a table"):
        recording.live_histogram("peak-resident")
    with pytest.raises(sw.InvalidError, match="after its end"):
        recording.live_histogram(1e6)


def test_timeline(stored: sw.Recording) -> None:
    rows = stored.timeline("go", samples=200)
    assert 200 <= len(rows) <= 2048
    assert (np.diff(rows["op"].astype(np.int64)) > 0).all()
    assert (np.diff(rows["time_ns"].astype(np.int64)) >= 0).all()
    assert (rows["requested_bytes"] <= rows["slot_bytes"]).all()
    assert (rows["slot_bytes"] <= rows["held_bytes"]).all()
    at = int(rows["op"][100])
    model = sw.Recording.from_ops(np.ascontiguousarray(stored.ops[:at])).ledger("go", "end")
    assert (rows["requested_bytes"][100], rows["held_bytes"][100]) == (
        *(model.requested_bytes, model.held_bytes),
    )


def test_an_exception_in_progress_ends_the_ledger(stored: sw.Recording) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored.ledger("go", progress=stop)
    assert stored.ledger("go").held_bytes > 0


def test_texts(stored: sw.Recording) -> None:
    assert repr(stored).startswith("<Recording a.swt: 50,000 events, 3 threads, peak ")
    assert "operations" in str(stored.summary)
    assert stored._repr_html_().startswith("<table>")
    assert stored.program == "operations"
    assert stored.sites[0].frames == ()


# --- files that are no good -----------------------------------------------------------------------


def refused(path: Path, kind: type[Exception] = sw.TraceFormatError) -> str:
    """Return the message for a file that cannot be opened."""
    with pytest.raises(kind) as caught:
        sw.Recording.open(path)
    return str(caught.value)


def test_not_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.swt"
    path.write_bytes(b"")
    assert refused(path) == (
        f"{path}: not a spanwise recording: the file is empty; make one with spanwise record"
    )
    for raw in (b"hello\n", b"\x7fELF" + bytes(5000), b"x" * 100_000):
        path.write_bytes(raw)
        assert refused(path) == (
            f"{path}: not a spanwise recording: it does not begin with the .swt magic; make one"
            " with spanwise record"
        )
    for folder in (tmp_path, Path("/dev/shm")):  # two kinds of file systems
        assert not folder.is_dir() or "Is a directory" in refused(folder, sw.RecordingIOError)


def test_valid_prefix_is_a_prefix(stored: sw.Recording, tmp_path: Path) -> None:
    raw = Path(str(stored.path)).read_bytes()
    path = tmp_path / "cut.swt"
    for part in (0.3, 0.6, 0.9, 0.999):
        path.write_bytes(raw[: int(len(raw) * part)])
        message = refused(path)
        prefix = sw.Recording.open(path, valid_prefix=True)
        assert f"to read the {len(prefix)} operations before it" in message
        assert (prefix.ops == stored.ops[: len(prefix)]).all()
        assert prefix.ledger("go").events <= len(prefix)
    assert len(prefix) > 40_000


def test_path_forms(stored: sw.Recording) -> None:
    path = Path(str(stored.path))
    for form in (path, str(path)):
        assert len(sw.Recording.open(form)) == 50_000
    with pytest.raises(TypeError, match=r"spanwise\.Recording\.open\('a\.swt'\)"):
        sw.Recording("a.swt")  # type: ignore[arg-type]
    bad: Any
    for bad in (None, 3, "a\0b"):
        with pytest.raises((TypeError, ValueError)):
            sw.Recording.open(bad)


# --- slices ---------------------------------------------------------------------------------------


def live_after(ops: NDArray[np.void], count: int) -> dict[int, int]:
    """Return the sizes of live objects after some operations, by an independent model."""
    live: dict[int, int] = {}
    for row in ops[:count]:
        if row["kind"] in (ALLOC, REALLOC):
            live.pop(int(row["object"]), None)
            live[int(row["object"])] = int(row["size"])
        elif row["kind"] == FREE:
            del live[int(row["object"])]
    return live


def test_a_slice_by_hand() -> None:
    ops = make_ops((ALLOC, 0, 10), (ALLOC, 1, 20), (REALLOC, 0, 30), (FREE, 1, 0), (FREE, 0, 0))
    whole = sw.Recording.from_ops(ops, name="five")
    part = whole[3:5]
    assert part.name == "five[3:5]"
    # Object 1 was allocated before object 0 was resized.
    assert [(r["kind"], r["object"], r["size"]) for r in part.ops] == [
        (ALLOC, 1, 20),
        (ALLOC, 0, 30),
        (FREE, 1, 0),
        (FREE, 0, 0),
    ]
    assert len({int(time) for time in part.ops["time_ns"][:3]}) == 1
    assert (whole[:2].ops == ops[:2]).all() and whole[0]["size"] == 10
    assert len(whole[5:]) == 0 and len(whole[4:2]) == 1  # object 0 alone is live after four
    assert whole[-2:].ops.tolist() == part.ops.tolist()
    with pytest.raises(sw.InvalidError, match="has no step"):
        whole[::2]


@given(histories(), st.integers(0, 300), st.integers(0, 300))
def test_a_slice_is_a_possible_history(ops: NDArray[np.void], a: int, b: int) -> None:
    first, last = min(a, b, len(ops)), min(max(a, b), len(ops))
    part = sw.Recording.from_ops(ops)[first:last]  # from_ops checks it
    before = live_after(ops, first)
    sizes = sorted(live_after(part.ops, len(before)).values())
    assert sizes == sorted(before.values())
    end = sorted(live_after(part.ops, len(part)).values())
    assert end == sorted(live_after(ops, last).values())
    assert part.ledger("go", "end").requested_bytes == sum(end)


def test_a_set_adds_up() -> None:
    pair = [sw.Recording.from_ops(random_ops(seed, 700, threads=2)) for seed in (5, 6)]
    both = sw.RecordingSet(pair)
    totals = [one.summary for one in pair]
    assert both.summary.allocs == sum(one.allocs for one in totals)
    assert both.summary.duration_ns == max(one.duration_ns for one in totals)
    assert len(both.ops) == both.summary.ops == 1400
    assert len(np.unique(both.ops["thread"])) == both.summary.threads == len(both.threads)
    second = both.ops[700:]
    assert second["object"].min() > both.ops[:700]["object"].max()
    assert (second["size"] == pair[1].ops["size"]).all()
    assert sum(site.allocs for site in both.sites) == both.summary.allocs
    assert isinstance(both[:1], sw.RecordingSet) and both[0] is pair[0]
    assert both.highest() in pair
    assert both.histogram()["count"].sum() == sum(one.histogram()["count"].sum() for one in pair)


def test_time_lines_add_up_by_hand() -> None:
    one = make_ops((ALLOC, 0, 100), (ALLOC, 1, 200))
    two = make_ops((ALLOC, 0, 1000), (FREE, 0, 0))
    one["time_ns"], two["time_ns"] = [10, 30], [20, 40]
    lines = sw.RecordingSet([sw.Recording.from_ops(one), sw.Recording.from_ops(two)]).timeline("go")
    wanted = {10: 100, 20: 1100, 30: 1300, 40: 300}
    found = dict(zip(lines["time_ns"].tolist(), lines["requested_bytes"].tolist(), strict=True))
    assert found == {**found, **wanted}


@given(histories(), st.integers(0, 600), st.integers(0, 600))
def test_own_operations_are_a_history(ops: NDArray[np.void], a: int, b: int) -> None:
    """Compared with a model: objects live at the part's end and allocated or resized in it."""
    first, last = sorted((min(a, len(ops)), min(b, len(ops))))
    part = sw.Recording.from_ops(own_ops(ops, first, last))
    live: dict[int, int] = {}
    for row in ops[first:last]:
        if row["kind"] == FREE:
            live.pop(int(row["object"]), None)
        elif row["kind"] != 3:
            live[int(row["object"])] = int(row["size"])
    assert part.summary.end_requested_bytes == sum(live.values())
    assert part.summary.end_live_objects == len(live)


# --- ends of threads ------------------------------------------------------------------------------

END = 3


def births(threads: int, at_once: int, each: int = 300, *, ends: bool = True) -> NDArray[np.void]:
    """Return waves of threads that allocate, free nine tenths of it, and end.

    Args:
        threads: total number of threads.
        at_once: threads per wave, all of which allocate before the first frees.
        each: objects per thread.
        ends: include the ends of threads.
    """
    rows = []
    for first in range(0, threads, at_once):
        wave = range(first, first + at_once)
        rows += [(ALLOC, i, t, i * 37 % 800 + 1) for t in wave for i in _own(t, each)]
        rows += [(FREE, i, t, 0) for t in wave for i in _own(t, each) if i % 10]
        rows += [(END, 0, t, 0) for t in wave] if ends else []
    ops = np.zeros(len(rows), sw.OPS_DTYPE)
    ops["kind"], ops["object"], ops["thread"], ops["size"] = np.array(rows).T
    ops["time_ns"] = np.arange(len(ops))
    return ops


def _own(thread: int, each: int) -> range:
    return range(thread * each, (thread + 1) * each)


# --- what they change -----------------------------------------------------------------------------


def test_a_ledger_has_the_caches_of_living_threads_only() -> None:
    """What 200 threads, four at a time, hold is about what four hold, and what they left."""
    few = sw.Recording.from_ops(births(4, 4)).ledger("c16", "peak")
    many = sw.Recording.from_ops(births(200, 4)).ledger("c16", "peak")
    unrecorded = sw.Recording.from_ops(births(200, 4, ends=False)).ledger("c16", "peak")
    left = 196 * 30 * (800 + 16)  # at most: 196 threads, 30 objects each
    assert few.held_bytes < many.held_bytes < few.held_bytes + left
    assert unrecorded.held_bytes > 10 * many.held_bytes
    assert many.events == unrecorded.events


def test_real_memory_equals_the_simulator_to_the_byte() -> None:
    recording = sw.Recording.from_ops(births(60, 4))
    for at in ("peak", "end"):
        assert sw.check_ledger(recording, "c16", at).different == {}


# --- what they leave ------------------------------------------------------------------------------


def test_counts_are_of_events() -> None:
    output = sw.Recording.from_ops(births(20, 4))
    unrecorded = sw.Recording.from_ops(births(20, 4, ends=False))
    assert len(output) == len(output.ops) == len(unrecorded) + 20
    assert output.events == unrecorded.events == len(unrecorded)
    assert repr(output) == repr(unrecorded)
    assert (output.histogram() == unrecorded.histogram()).all()
    assert (output.threads == unrecorded.threads).all()
    assert output.sites == unrecorded.sites
    ends = {"ops": len(output), "thread_ends": 20}
    times = ("peak_op", "duration_ns")
    same = {name: unrecorded.summary.to_dict()[name] for name in output.summary.to_dict()}
    same.update(ends, **{name: output.summary.to_dict()[name] for name in times})
    assert output.summary.to_dict() == same
    peak = output.ops[: output.summary.peak_op]
    assert unrecorded.summary.peak_op == int((peak["kind"] != END).sum())


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 1}, "operation 9: an end of a thread has a time and a thread, nothing else"),
        ({"object": 1}, "operation 9: an end of a thread has a time and a thread, nothing else"),
        ({"thread": 5}, "operation 9: thread 5 ends, and made no operation before"),
        (
            {"kind": 4},
            "operation 9: kind 4 is unknown;"
            " use 0 (alloc), 1 (free), 2 (realloc) or 3 (end of a thread)",
        ),
    ],
)
def test_impossible_ends(change: dict[str, int], message: str) -> None:
    ops = np.concatenate([random_ops(1, 9, threads=1), births(1, 1, 0)])
    ops["time_ns"] = np.arange(10)
    for name, value in change.items():
        ops[name][9] = value
    with pytest.raises(sw.InvalidError) as caught:
        sw.Recording.from_ops(ops)
    assert str(caught.value) == message
