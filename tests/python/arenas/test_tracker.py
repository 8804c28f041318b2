# SPDX-License-Identifier: Apache-2.0
"""Trackers of arenas in Python: the leak rule with a manual clock, sources, events, alerts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw

from tests.python.helpers import check_trace_events


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


def test_bad_arguments() -> None:
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


def test_a_picture_of_lifetimes() -> None:
    with sw.ArenaTracker(manual_clock=True) as tracker:
        tracker.set_alert(period_seconds=1, min_age_seconds=1, threshold_bytes=0)
        kept = sw.Arena(chunk_bytes=4096)
        array = kept.zeros(1)
        for second in (1, 2, 3):
            arena = sw.Arena()
            tracker.set_time(second)
            arena.close()
        ax = sw.plots.arena_lifetimes(tracker.events())
        labels = ax.get_legend_handles_labels()[1]
        assert labels == ["freed (3)", "not freed (1)", "alert"]
        lines = [np.asarray(path.vertices) for path in ax.collections[0].get_paths()]
        assert [line[:, 0].tolist() for line in lines] == [[0, 1], [1, 2], [2, 3]]
        del array
        kept.close()


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
