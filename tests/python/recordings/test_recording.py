# SPDX-License-Identifier: Apache-2.0
"""Recordings from Python: operations in and out, totals, damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from hypothesis import given
from numpy.typing import NDArray

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


def test_no_such_file(tmp_path: Path) -> None:
    path = tmp_path / "none.swt"
    assert refused(path, sw.RecordingIOError) == (
        f"{path}: cannot open the recording: No such file or directory"
    )
    with pytest.raises(OSError, match="No such file"):
        sw.Recording.open(path)


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
