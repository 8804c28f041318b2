# SPDX-License-Identifier: Apache-2.0
"""Arenas and their trackers: arrays that keep their arena, collected heaps, leaks, events."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw

from tests.python.helpers import check_trace_events


def test_an_arena_with_arrays_is_not_freed() -> None:
    arena = sw.Arena()
    part = arena.zeros(100)[10:20]  # the array itself is gone, what was derived from it lives
    for end in (arena.close, arena.reset, lambda: arena.__exit__(None, None, None)):
        with pytest.raises(sw.BlockBusyError, match="1 view of arrays of the arena is alive"):
            end()
    part[:] = 3
    assert part.sum() == 30
    del part
    arena.reset()
    assert arena.stats().resets == 1
    arena.close()
    arena.close()
    assert arena.closed
    assert repr(arena) == "<Arena, closed>"
    with pytest.raises(sw.StateError, match="the Arena is closed"):
        arena.zeros(1)


def test_an_exception_of_the_body_is_not_hidden_by_live_views() -> None:
    """Its traceback keeps the body's arrays alive, so that the end of the block is refused."""

    def arena() -> None:
        with sw.Arena(tag="body") as made:
            kept = made.zeros(10)
            raise KeyError(len(kept))

    def savepoint() -> None:
        with sw.Arena() as made, made.savepoint():
            kept = made.zeros(10)
            raise KeyError(len(kept))

    def stack() -> None:
        with sw.Stack() as made, made.frame():
            view = made.push(10).view()
            raise KeyError(len(view))

    def borrow() -> None:
        with sw.ScalableAllocator() as made, made.borrow(10) as view:
            part = view[:10]
            raise KeyError(len(part))

    before = sw.Arena.pool_stats().arenas
    for body in (arena, savepoint, stack, borrow):
        with pytest.raises(KeyError, match="10") as caught:
            body()
        assert caught.value.__context__ is None
        del caught
    gc.collect()
    assert sw.Arena.pool_stats().arenas == before  # freed with the last array


def test_figures() -> None:
    with sw.Arena(chunk_bytes=4096, mode="auto") as arena:
        big = arena.zeros(5000, np.uint8)
        assert arena.stats().to_dict() | {"used_bytes": 0} == {
            "chunks": 0,
            "chunk_bytes": 0,
            "used_bytes": 0,
            "slack_bytes": 0,
            "own_objects": 1,
            "own_bytes": 5000,
            "fallbacks": 0,
            "resets": 0,
        }
        assert repr(arena) == "<Arena of 0 chunks, 0 of 0 B used, 1 object outside: 5,000 B>"
        del big
    with sw.Arena(chunk_bytes=4096, limit_bytes=4096, mode="force") as arena:
        arena.zeros(900, np.uint8)
        with pytest.raises(sw.LimitError, match="the limit is 4096"):
            for _ in range(10):
                arena.zeros(900, np.uint8)
        assert repr(arena).startswith("<Arena of 1 chunk, ")


BAD: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (sw.InvalidError, "mode 'x': must be one of", lambda: sw.Arena(mode="x")),
    (sw.InvalidError, "chunks of 5000 bytes", lambda: sw.Arena(chunk_bytes=5000)),
    (sw.InvalidError, "negative", lambda: sw.Arena(limit_bytes=-1)),
    (TypeError, "must be an integer", lambda: sw.Arena(chunk_bytes=True)),
    (sw.UnsupportedError, "its own chunks", lambda: sw.Arena(safe=True, mode="off")),
    (sw.InvalidError, "shape -1 is negative", lambda: sw.Arena().zeros(-1)),
    (sw.InvalidError, "size .* is too large", lambda: sw.Arena().zeros((1 << 40, 1 << 40))),
    (sw.OutOfMemoryError, "no memory", lambda: sw.Arena().zeros(1 << 59)),
    (sw.InvalidError, "Python objects", lambda: sw.Arena().zeros(3, object)),
    (TypeError, "must be an integer", lambda: sw.Arena().zeros((2.5,))),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("error", "words", "call"), BAD)
def test_bad_arguments(error: type[Exception], words: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=words):
        call()


# --- collected arenas -----------------------------------------------------------------------------


def live(heap: sw.CollectedHeap) -> int:
    return heap.collect().marked_objects


def test_objects_live_as_long_as_the_arena_points_to_them() -> None:
    with sw.CollectedHeap() as heap, sw.Arena(chunk_bytes=4096) as arena:
        node = heap.add_type("node", 16, pointers=[0])
        arena.attach(heap)
        arena.attach(heap)
        kept = arena.pointers((2, 300))
        assert kept.shape == (2, 300)
        assert not kept.any()
        hidden = arena.zeros(10, np.uint64)
        for i in range(300):
            one, other = heap.new(node), heap.new(node)
            one[0] = other
            kept[i % 2, i] = one.address
        hidden[0] = heap.new(node).address
        del one, other
        assert live(heap) == 600
        kept[1, :] = 0
        assert live(heap) == 300
        arena.attach(None)
        assert live(heap) == 0
        del kept, hidden
        arena.attach(heap)
        again = arena.pointers(1)
        again[0] = heap.new(node).address + 8  # inside of it
        assert live(heap) == 1
        del again
        arena.reset()
        assert live(heap) == 0


def test_what_is_refused() -> None:
    first, second, arena = sw.CollectedHeap(), sw.CollectedHeap(), sw.Arena()
    arena.attach(first)
    with pytest.raises(sw.StateError, match=r"another heap is attached .*attach\(None\)"):
        arena.attach(second)
    with pytest.raises(TypeError, match="heap must be CollectedHeap or None, not int"):
        arena.attach(3)  # type: ignore[arg-type]
    first.close()
    assert not arena.zeros(3).any()
    assert arena.pointers(2).sum() == 0
    arena.attach(second)
    second.close()
    with pytest.raises(sw.HeapClosedError):
        arena.attach(second)
    arena.attach(None)
    arena.close()
    with pytest.raises(sw.StateError, match="the Arena is closed"):
        arena.attach(None)
    with pytest.raises(sw.StateError, match="the Arena is closed"), sw.ArenaAllocator(arena):
        pytest.fail("the body ran")


# --- views, savepoints, holds ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "auto", "force"])
def test_views_and_clones(mode: str) -> None:
    with sw.Arena(mode=mode) as arena:
        view = arena.alloc(100, align=4096, zero=True)
        assert (len(view), view.ctypes.data % 4096, bool(view.any())) == (100, 0, False)
        rows = arena.make_slice(10, "i2")
        rows[:] = np.arange(10)
        copy = arena.clone(rows[::2].reshape(5, 1))
        with pytest.raises(sw.InvalidError, match="Python objects"):
            arena.clone(np.array([None]))
        with pytest.raises(sw.InvalidError, match="power of two"):
            arena.alloc(1, align=3)
        with pytest.raises(sw.OutOfMemoryError):
            arena.make_slice(1 << 60, "u1")
        del view, rows
    assert copy.tolist() == [[0], [2], [4], [6], [8]]
    assert arena.closed


def test_a_savepoint_frees_what_came_after_it() -> None:
    with sw.Arena(chunk_bytes=4096, mode="force") as arena:
        kept = arena.zeros(10, "u1")
        with arena.savepoint():
            first = arena.make_slice(100, "u1").ctypes.data
            with arena.savepoint() as inner:
                arena.make_slice(1000, "u1")
        assert arena.make_slice(100, "u1").ctypes.data == first  # the same place again
        with pytest.raises(sw.StateError, match="freed before"):
            inner.rewind()
        outer, later = arena.savepoint(), arena.savepoint()
        array = arena.zeros(3)
        with pytest.raises(sw.BlockBusyError, match="after the savepoint"):
            outer.rewind()
        del array
        outer.rewind()
        with pytest.raises(sw.StateError):
            later.rewind()
        last = arena.savepoint()
        del kept
        arena.reset()
        with pytest.raises(sw.StateError):
            last.rewind()


def test_a_held_arena_stays() -> None:
    arena = sw.Arena()
    with arena.hold():
        for end in (arena.close, arena.reset):
            with pytest.raises(sw.BlockBusyError, match="held"):
                end()
    arena.close()
    with pytest.raises(sw.StateError), arena.hold():
        pass


def test_the_rule_of_five_minutes() -> None:
    with sw.ArenaTracker(manual_clock=True) as tracker:
        first = sw.Arena(tag="request")
        tracker.set_time(10)
        second = sw.Arena(tag="batch", chunk_bytes=4096)
        kept = second.zeros(10)
        tracker.set_time(299.999)
        assert tracker.leaks(300) == []
        tracker.set_time(300)
        (old,) = tracker.leaks(300)
        assert (old.id, old.tag, old.made_ns, old.age_ns) == (1, "request", 0, 300 * 10**9)
        assert (old.chunk_bytes, old.own_bytes) == (0, 0)
        assert 1 <= len(old.frames) <= 8 and old.thread > 0
        tracker.set_time(310)
        assert [one.tag for one in tracker.leaks(300)] == ["request", "batch"]
        assert [one.chunk_bytes for one in tracker.leaks(300, "batch")] == [4096]
        assert tracker.leaks(300, "none") == []
        first.close()
        assert [one.id for one in tracker.leaks()] == [2]
        assert repr(tracker) == "<ArenaTracker of 1 arenas, 4,096 B of chunks>"
        del kept
        second.close()
        assert tracker.leaks() == []
    assert repr(tracker) == "<ArenaTracker, closed>"
    with pytest.raises(sw.StateError, match="the ArenaTracker is closed"):
        tracker.leaks()


def test_two_sources_and_what_one_of_them_lacks() -> None:
    before = sw.Arena(chunk_bytes=4096)
    array = before.zeros(10)
    with sw.ArenaTracker() as tracker:
        totals = tracker.totals()
        assert (totals.arenas - totals.tracked_arenas, totals.tracked_arenas) == (1, 0)
        assert totals.difference == "1 arenas with 4,096 bytes of chunks are not tracked"
        with pytest.raises(sw.StateError, match="they were created before the tracker"):
            tracker.check()
        del array
        before.close()
        tracker.check()
        assert tracker.totals().agree and tracker.totals().difference == ""
        with pytest.raises(sw.BlockBusyError, match="there is a tracker already"):
            sw.ArenaTracker()


def test_events_word_by_word() -> None:
    with sw.ArenaTracker(allocs=True, manual_clock=True, events=8) as tracker:
        arena = sw.Arena(chunk_bytes=4096)
        array = arena.zeros(4)
        place = array.ctypes.data
        del array
        tracker.set_time(1)
        arena.close()
        made, alloc, freed = tracker.events()
        names = [row["event"] for row in (made, alloc, freed)]
        assert names == ["arena.new", "arena.alloc", "arena.free"]
        assert [row["time_ns"] for row in (made, alloc, freed)] == [0, 0, 10**9]
        assert alloc["address"] + alloc["offset"] == place
        assert (alloc["length"], alloc["size"], made["size"]) == (32, 4096, 4096)
        assert freed["size"] == 4096
        assert len(tracker.events()) == 0
        for _ in range(10):
            sw.Arena().close()
        assert (len(tracker.events()), tracker.totals().lost) == (8, 12)


def test_an_alert_lists_what_is_old() -> None:
    with sw.ArenaTracker(manual_clock=True) as tracker:
        tracker.set_alert(period_seconds=60, min_age_seconds=300, threshold_bytes=4095)
        arena = sw.Arena(tag="kept", chunk_bytes=4096)
        array = arena.zeros(1)
        tracker.set_time(299)
        assert tracker.look() is None
        tracker.set_time(360)
        old = tracker.look()
        assert old is not None and [one.tag for one in old] == ["kept"]
        assert tracker.look() is None
        tracker.set_time(420)
        sw.Arena().close()  # looks as well
        assert tracker.look() is not None
        assert tracker.events()["event"].tolist().count("arena.alert") == 2
        del array
        arena.close()


def test_bad_arguments_of_trackers() -> None:
    for frames, events in ((9, 0), (0, 2**24 + 1), (-1, 0)):
        with pytest.raises(sw.InvalidError):
            sw.ArenaTracker(frames=frames, events=events)
    with sw.ArenaTracker() as tracker:
        with pytest.raises(sw.InvalidError, match="the clock is the system's"):
            tracker.set_time(1)
        with pytest.raises(sw.InvalidError, match="give seconds, 0 or more"):
            tracker.leaks(-1)
        with pytest.raises(sw.InvalidError, match="a period of 0 ns"):
            tracker.set_alert(period_seconds=0)
    with pytest.raises(sw.InvalidError, match="NUL"):
        sw.Arena(tag="a\0b")


def test_lanes_of_arenas_by_hand(tmp_path: Path) -> None:
    """Two arenas; the first one's creation is not among the rows, the second is not freed."""
    with sw.ArenaTracker(allocs=True, manual_clock=True) as tracker:
        first = sw.Arena(chunk_bytes=4096)
        tracker.events()
        tracker.set_time(1)
        second = sw.Arena(chunk_bytes=4096)
        tracker.set_time(2)
        array = second.zeros(4)
        first.close()
        rows = tracker.events()
        names = {int(rows["arena"][0]): "second", int(rows["arena"][-1]): "first"}
        path = tmp_path / "arenas.json"
        sw.ArenaTracker.to_perfetto(rows, path)
        del array
        second.close()
    content = json.loads(path.read_text())
    lives = [
        (names[event["id"]], event["ph"], event["ts"])
        for event in content["traceEvents"]
        if event.get("cat") == "arena"
    ]
    assert lives == [
        ("second", "b", 0.0),
        ("second", "n", 1e6),
        ("first", "b", 1e6),
        ("first", "e", 1e6),
        ("second", "e", 1e6),
    ]
    args = [event["args"] for event in content["traceEvents"] if event["ph"] in "be"]
    assert args == [
        {"creation_seen": True},
        {"creation_seen": False},
        {"freed": True, "bytes": 0},
        {"freed": False},
    ]
    counts = {"live arenas": [1, 1, 1], "bytes of live arenas": [0, 32, 32]}
    for name, wanted in counts.items():
        found = [one for one in content["traceEvents"] if one["name"] == name]
        assert [next(iter(one["args"].values())) for one in found] == wanted
    check_trace_events(content["traceEvents"])


def test_lanes_of_an_alert_and_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "arenas.json"
    with sw.ArenaTracker(manual_clock=True) as tracker:
        sw.ArenaTracker.to_perfetto(tracker.events(), path)
        assert len(json.loads(path.read_text())["traceEvents"]) == 1
        tracker.set_alert(period_seconds=1, min_age_seconds=1, threshold_bytes=0)
        arena = sw.Arena(chunk_bytes=4096)
        array = arena.zeros(1)
        tracker.set_time(3)
        assert tracker.look() is not None
        sw.ArenaTracker.to_perfetto(tracker.events(), path)
        del array
        arena.close()
    events = json.loads(path.read_text())["traceEvents"]
    check_trace_events(events)
    (alert,) = [event for event in events if event["ph"] == "i"]
    assert alert["ts"] == 3e6 and alert["args"] == {"untracked_bytes": 0, "old_bytes": 4096}
    with pytest.raises(FileNotFoundError):
        sw.ArenaTracker.to_perfetto([], tmp_path / "none" / "x.json")  # type: ignore[arg-type]
