# SPDX-License-Identifier: Apache-2.0
"""gctrace lines, pause histograms, mutator utilisation, and events of a collected heap."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.gc.events import EVENT_DTYPE, as_events
from spanwise.gc.trace import parse_gctrace, read_gctrace

SAMPLES = Path(__file__).with_name("gctrace-samples.txt")


def test_every_field_of_the_samples() -> None:
    rows = read_gctrace(SAMPLES).array
    assert rows["number"].tolist() == [12, 1, 1, 2, 5]
    assert rows["at_s"].tolist() == [124.885, 0.452, 0.452, 0.004, 0.008]
    assert rows["gc_percent"].tolist() == [0, 3, 3, 5, 8]
    assert rows["start_ns"].tolist() == [20_000, 26_000, 11_000, 43_000, 110_000]
    assert rows["mark_ns"].tolist() == [2_100_000, 12_300_000, 2_100_000, 340_000, 380_000]
    assert rows["end_ns"].tolist() == [25_000, 12_000, 5_000, 65_000, 1_000]
    assert rows["cpu_ns"].tolist() == [2_200_000, 14_918_000, 2_718_000, 435_000, 341_000]
    assert rows["before_mb"].tolist() == [123, 12, 12, 3, 3]
    assert rows["peak_mb"].tolist() == [123, 13, 13, 3, 4]
    assert rows["after_mb"].tolist() == [56, 8, 8, 0, 0]
    assert rows["goal_mb"].tolist() == [128, 16, 16, 4, 4]
    assert np.array_equal(rows["processors"], [8, np.nan, np.nan, 2, 2], equal_nan=True)
    assert rows["arena_mb"][0] == 42.1
    assert np.isnan(rows["arena_mb"][1:]).all()


def test_pauses_are_starts_and_ends() -> None:
    trace = read_gctrace(SAMPLES)
    assert sorted(trace.pauses_ns) == sorted(
        [20e3, 26e3, 11e3, 43e3, 110e3, 25e3, 12e3, 5e3, 65e3, 1e3]
    )
    assert trace.to_dict()["pauses_ns"]["sum"] == 318e3
    assert trace.to_dict()["pauses_ns"]["p50"] == 22.5e3


def test_lines_of_the_program_are_left_out() -> None:
    lines = SAMPLES.read_text(encoding="utf-8").splitlines()
    assert len(parse_gctrace(["hello", lines[1], "", "gc is a word"]).array) == 1
    assert len(parse_gctrace([]).array) == 0
    assert "no gctrace line" in str(parse_gctrace([]))
    for end in range(8, len(lines[3]) - 5):
        cut = lines[3][:end]
        found = parse_gctrace([cut])
        whole = cut.endswith(("goal", "globals"))
        assert (len(found.array), found.torn_lines) == ((1, 0) if whole else (0, 1)), cut


ONE = (
    "gc 1 @0.012s 2%: 0.026+0.39+0.10 ms clock, 0.21+0.88/0.52/0+0.84 ms cpu, 4->4->0 MB,"
    " 5 MB goal, 8 P"
)
TWO = (
    "gc 2 @0.112s 1%: 0.020+0.40+0.011 ms clock, 0.16+0.08/0.52/0.1+0.09 ms cpu, 4->4->0 MB,"
    " 5 MB goal, 8 P (forced)"
)
THREE = TWO.replace("gc 2 @0.112s", "gc 3 @0.212s")


@pytest.mark.parametrize(
    "around",
    [
        "2024-05-01T10:00:00.123456789Z stderr F {}",
        "app-1  | {}",
        "\x1b[36mapp-1  | \x1b[0m{}",
        "[pod/app-7d4/main] {}",
        "I1126 13:00:00.1 7 main.go:12] request servedgc {}",
        '{{"log":"{}\\n","stream":"stderr","time":"2024-05-01T10:00:00Z"}}',
    ],
)
def test_lines_within_a_log(around: str) -> None:
    lines = [around.format(one) for one in (ONE, "GC forced", TWO)]
    lines[0] = lines[0].replace("servedgc gc 1", "servedgc 1")
    found = parse_gctrace(lines)
    assert found.array["number"].tolist() == [1, 2]
    assert found.array["start_ns"].tolist() == [26_000, 20_000]
    assert (found.torn_lines, len(found.processes)) == (0, 1)


def processes_of(*lines: str) -> list[int]:
    return list(parse_gctrace(lines).array["process"].tolist())


def test_processes_are_separated() -> None:
    assert processes_of(ONE, TWO, ONE, TWO) == [1, 1, 2, 2]  # numbers fall
    assert processes_of(TWO, THREE.replace("@0.212s", "@0.050s")) == [1, 2]  # a time falls
    assert processes_of(ONE, THREE) == [1, 1]  # a line between was lost
    # A process that runs two others, each with its own numbers and times.
    parent = [ONE.replace("@0.012s", "@0.500s"), TWO.replace("@0.112s", "@0.600s")]
    assert processes_of(parent[0], ONE, parent[1], TWO, THREE, ONE) == [1, 2, 1, 2, 2, 3]
    # The number before counts more than the nearest time.
    five, six = (TWO.replace("gc 2 @0.112s", f"gc {i} @0.{i}00s") for i in (5, 6))
    assert processes_of(five, ONE.replace("@0.012s", "@0.550s"), six) == [1, 2, 1]
    # A label counts more than both.
    late = ONE.replace("@0.012s", "@0.100s")
    both = [f"app-1  | {ONE}", f"app-2  | {late}", f"app-1  | {TWO}", f"app-2  | {TWO}"]
    assert processes_of(*both) == [1, 2, 1, 2]


def test_a_summary_of_several_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gc.txt"
    path.write_text("\n".join([ONE, TWO, ONE]), encoding="utf-8")
    found = read_gctrace(path)
    assert [len(one.array) for one in found.processes] == [2, 1]
    with pytest.raises(sw.InvalidError, match="lines of 2 processes, which have a time each"):
        found.utilisation()
    assert main(["gctrace", str(path), "--pauses"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{path}: 2 processes\nprocess 1: 2 cycles in 0.112 s, 1 %")
    assert "process 2: 1 cycle in 0.012 s, 2 %" in text
    assert "left to process 2:" in text
    assert main(["gctrace", str(path), "--pauses", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [row["process"] for row in value["cycles"]] == [1, 1, 2]
    assert {row["process"] for row in value["utilisation"]} == {1, 2}


def test_torn_lines_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = TWO.replace("0.011 ms", "0.0112026/11/26 13:00:00 request served\n ms")
    path = tmp_path / "gc.txt"
    path.write_text(f"{ONE}\n{torn}\n{THREE}\n", encoding="utf-8")
    found = read_gctrace(path)
    assert found.array["number"].tolist() == [1, 3]
    assert found.torn_lines == 1 and found.to_dict()["torn_lines"] == 1
    assert str(found).endswith("left out: 1 torn line")
    # A line that another one interrupted, and one with a number above 64 bits.
    assert parse_gctrace([f"{ONE[:60]}{TWO}"]).array["number"].tolist() == [2]
    huge = ONE.replace("2%", "18446744073709551616%")
    assert parse_gctrace([huge, ONE.replace("0.026", "9" * 30)]).torn_lines == 2
    path.write_text(torn, encoding="utf-8")
    assert main(["gctrace", str(path)]) == 2
    assert "no whole gctrace line, and 1 torn one; run the program" in capsys.readouterr().err


def test_the_five_phases_of_go_1_5() -> None:
    """Sweep termination; concurrent scan, synchronization and mark; mark termination."""
    line = (
        "gc 54 @1.573s 9%: 0.054+2.2+0.15+1.6+4.9 ms clock, 0.21+2.2+0+5.7/1.6/0+19 ms cpu,"
        " 10->11->5 MB, 10 MB goal, 4 P"
    )
    (row,) = parse_gctrace([line]).array.to_dicts()
    assert (row["start_ns"], row["mark_ns"], row["end_ns"]) == (54_000, 3_950_000, 4_900_000)
    assert row["cpu_ns"] == 28_710_000
    assert (row["before_mb"], row["peak_mb"], row["after_mb"], row["goal_mb"]) == (10, 11, 5, 10)
    assert parse_gctrace([line.replace("0.054+2.2+", "")]).torn_lines == 1  # three and seven


def test_ours_is_read() -> None:
    script = """if True:
        import spanwise as sw
        heap = sw.CollectedHeap()
        node = heap.add_type("node", 1 << 20)
        kept = [heap.new(node) for _ in range(3)]
        for _ in range(5):
            heap.new(node)
        heap.collect()
        heap.set_pace(300, limit_bytes=9 << 20)
        heap.start()
        heap.finish()
        heap.collect()
    """
    for wanted, cycles in (("gctrace=1", 3), ("other=1,gctrace=1", 3), ("gctrace=10", 0), ("", 0)):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"SPANWISE_DEBUG": wanted},
            capture_output=True,
            text=True,
            check=True,
        )
        rows = parse_gctrace(done.stderr.splitlines()).array
        assert rows["number"].tolist() == [1, 2, 3][:cycles]
        assert rows["goal_mb"].tolist() == [0, 9, 9][:cycles]  # 12 MB, but for the limit
        if cycles:
            assert rows["before_mb"].tolist() == [8, 3, 3]
            assert rows["after_mb"].tolist() == [3, 3, 3]


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["gctrace", str(SAMPLES)]) == 0
    text = capsys.readouterr().out
    assert f"{SAMPLES}: 4 processes\nprocess 1: 1 cycle in 124.885 s" in text
    assert "process 4: 2 cycles in 0.008 s" in text and "longest 110 µs" in text
    assert main(["gctrace", str(SAMPLES), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cycles"]) == 5
    assert main(["gctrace", str(tmp_path / "gone")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# --- pauses ---------------------------------------------------------------------------------------


STOPPED = (
    "gc 1 @0.010s 4%: 1.000+3.000+1.000 ms clock, 1.000+0/3.000/0+1.000 ms cpu, 8->8->3 MB,"
    " 4 MB goal, 1 P\n"
    "gc 2 @0.020s 4%: 0.000+2.000+0.000 ms clock, 0.000+0/2.000/0+0.000 ms cpu, 8->8->3 MB,"
    " 4 MB goal, 1 P\n"
)


def least_left(pauses: list[tuple[int, int]], total: int, window: int) -> float:
    """Return the smallest pause-free share, by trying every nanosecond as the window's start."""
    paused = [0] * total
    for start, length in pauses:
        for at in range(start, min(start + length, total)):
            paused[at] = 1
    worst = max(sum(paused[at : at + window]) for at in range(total - window + 1))
    return 1 - worst / window


@pytest.mark.parametrize("seed", range(40))
def test_utilisation_is_that_of_every_window(seed: int) -> None:
    random = np.random.default_rng(seed)
    total, count = 120, int(random.integers(0, 9))
    pauses = [(int(random.integers(0, total)), int(random.integers(0, 30))) for _ in range(count)]
    windows = [1, 2, 3, 7, 20, 59, 119, 120]
    rows = sw.mutator_utilisation([p[0] for p in pauses], [p[1] for p in pauses], total, windows)
    assert rows["window_ns"].tolist() == windows
    expected = [least_left(pauses, total, window) for window in windows]
    assert rows["utilisation"] == pytest.approx(expected, abs=1e-12)


def test_nothing_left_is_exactly_zero() -> None:
    """1 - 0.3 / 0.3 in floating point, of pauses that add up to it, is 1e-16."""
    rows = sw.mutator_utilisation([0, 0.1, 0.2], [0.1, 0.1, 0.1], 1, [0.3])
    assert rows["utilisation"].tolist() == [0]


def test_wrong_times() -> None:
    for starts, lengths, total, windows in (
        ([1], [1], 0, [1]),
        ([1], [1, 2], 9, [1]),
        ([1], [1], 9, [0]),
        ([1], [1], 9, [10]),
    ):
        with pytest.raises(sw.InvalidError):
            sw.mutator_utilisation(starts, lengths, total, windows)
    for wrong in ([-1], [2.0**53], [float("nan")]):
        with pytest.raises(sw.InvalidError):
            sw.pause_histogram(wrong)


def test_default_windows() -> None:
    """From a hundredth of the longest pause, or the shortest if that is longer; not from 0."""
    for lengths, first in (([0, 7, 9000], 90), ([0, 500, 9000], 500), ([0], 1000), ([], 1000)):
        windows = sw.mutator_utilisation([1] * len(lengths), lengths, 100_000)["window_ns"]
        assert windows[0] == pytest.approx(first) and windows[-1] == pytest.approx(100_000)
        assert len(windows) > 40 and (np.diff(windows) > 0).all()


def edges_by_hand(most: int) -> list[int]:
    """0, 1, 2, 3, then four steps in each doubling."""
    edges, step = [0, 1, 2, 3], 1
    while edges[-1] <= most:
        edges += [step * i for i in range(4, 8)]
        step *= 2
    return edges


def test_every_pause_is_in_its_bucket() -> None:
    edges = edges_by_hand(1 << 20)
    assert edges[:14] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    lengths = [0, 3, 4, 7, 8, 9, 10, 15, 16, 19, 20, 1023, 1024, 1279, 1280, (1 << 20) - 1]
    rows = sw.pause_histogram(lengths)
    assert rows["from_ns"].tolist() == edges[: len(rows)]
    assert rows["to_ns"].tolist() == edges[1 : len(rows) + 1]
    counted = [sum(low <= ns < high for ns in lengths) for low, high in itertools.pairwise(edges)]
    assert rows["calls"].tolist() == counted[: len(rows)]
    assert rows["calls"].sum() == len(lengths)
    assert len(sw.pause_histogram([])) == 0
    assert sw.pause_histogram([17]).tolist() == [(16, 20, 1)]
    assert sw.pause_histogram([2**53 - 1])["to_ns"].tolist() == [2**53]


def test_pauses_of_a_heap() -> None:
    with sw.CollectedHeap() as heap:
        kind = heap.add_type("pair", 16, [0, 1])
        heap.build(kind, sw.binary_tree(9))
        for _ in range(5):
            heap.collect()
        pauses, histogram = heap.pauses, heap.pause_histogram()
        assert histogram["calls"].sum() == len(pauses) == 5
        ends = pauses["at_ns"] + pauses["ns"]
        assert (pauses["at_ns"][1:] >= ends[:-1]).all()
        longest = float(pauses["ns"].max())
        rows = heap.utilisation([longest / 2, longest])
        assert rows["utilisation"].tolist() == [0, 0]
        share = heap.utilisation()["utilisation"]
        assert 0 < share[-1] < 1


def test_allocations_that_only_sweep_are_no_pauses() -> None:
    """In steps, the sweep goes on in allocations; each call that works takes more than 0 ns."""
    with sw.CollectedHeap() as heap:
        kind = heap.add_type("pair", 64, [0, 1])
        graph = heap.build(kind, sw.random_graph(60_000, 2))
        heap.set_pace(100, in_steps=True)
        for _ in range(60_000):
            heap.new(kind, 3)
        pauses = heap.pauses
    assert graph.nodes == 60_000
    assert (pauses["phase"] == "sweeping").any() and pauses["ns"].min() > 0


def test_pauses_of_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = sw.parse_gctrace(STOPPED.splitlines())
    # Stopped: 5 ms that end at 10 ms, 2 ms that end at 20 ms. Else 1 + 1 ms and twice 0.
    assert trace.pause_histogram(stopped=True)["calls"].sum() == 2
    assert trace.pause_histogram()["calls"].sum() == 4
    windows = [2e6, 10e6, 20e6]
    left = trace.utilisation(windows, stopped=True)["utilisation"]
    assert left == pytest.approx([0, 0.5, 0.65], abs=1e-9)
    # From 10 ms on: 1 ms of pause, 3 of marking, 1 of pause; the time ends at 22 ms.
    left = trace.utilisation([1e6, 5e6, 10e6])["utilisation"]
    assert left == pytest.approx([0, 0.6, 0.8])
    (tmp_path / "gc.txt").write_text(STOPPED, encoding="utf-8")
    assert main(["gctrace", str(tmp_path / "gc.txt"), "--pauses", "--stopped"]) == 0
    printed = capsys.readouterr().out
    assert "least share of a window" in printed
    assert "65.0 %" in printed
    assert main(["gctrace", str(tmp_path / "gc.txt"), "--pauses", "--stopped", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["utilisation"][-1]["utilisation"] == pytest.approx(0.65)
    assert sum(row["calls"] for row in found["pause_histogram"]) == 2
    with pytest.raises(sw.InvalidError, match="no gctrace line"):
        sw.parse_gctrace([]).utilisation()


# --- events ---------------------------------------------------------------------------------------


def events_by_hand(
    rows: list[tuple[str, int, int, int, int]], total: int = 0
) -> sw.CollectorEvents:
    return as_events("by hand", [np.array(rows, EVENT_DTYPE)], 0, total)


EVENTS = events_by_hand(
    [
        ("mark", 1, 7, 110, 20),
        ("sweep", 1, 7, 130, 30),
        ("pause", 1, 7, 100, 70),
        ("assist", 1, 7, 90, 90),
        ("cycle", 1, 7, 100, 70),
        ("sweep", 1, 8, 300, 10),
        ("pause", 2, 7, 400, 50),
    ],
    1000,
)


def test_sums_and_what_is_left_to_the_program() -> None:
    assert [tuple(row) for row in np.asarray(EVENTS.sums()).tolist()] == [
        ("cycle", 1, 70),
        ("pause", 2, 120),
        ("mark", 1, 20),
        ("sweep", 2, 40),
        ("assist", 1, 90),
        ("wait", 0, 0),
        ("finalize", 0, 0),
    ]
    runs = [tuple(row) for row in np.asarray(EVENTS.mutator()).tolist()]
    assert runs == [(0, 100), (170, 230), (450, 550)]
    assert sum(length for _, length in runs) + 120 == EVENTS.total_ns
    # The worst window of 350 ns has both pauses: 100 to 450.
    least = EVENTS.utilisation([70, 350, 1000])["utilisation"]
    assert least == pytest.approx([0, 1 - 120 / 350, 0.88])


def test_no_events() -> None:
    none = events_by_hand([], 50)
    assert [tuple(row) for row in np.asarray(none.mutator()).tolist()] == [(0, 50)]
    assert none.sums()["events"].sum() == 0
    assert (none.utilisation([10])["utilisation"] == 1).all()
    assert "0 events" in str(none)


def test_lost_events_move_the_start_of_the_program() -> None:
    """Events before the loss, one that spans it, and one that follows: only what follows counts."""
    given = [("pause", 1, 7, 100, 50), ("cycle", 2, 7, 90, 360), ("pause", 3, 7, 500, 60)]
    events = as_events("by hand", [np.array(given, EVENT_DTYPE)], 9, 600, 450)
    assert [tuple(row) for row in np.asarray(events.mutator()).tolist()] == [(450, 50), (560, 40)]
    assert events.utilisation([150])["utilisation"] == pytest.approx([1 - 60 / 150])
    assert "9 lost" in str(events)


def test_without_recording_no_time_is_claimed() -> None:
    with sw.CollectedHeap() as heap:
        heap.collect()
        for _ in range(2):
            events = heap.events()
            assert len(events.array) == len(events.mutator()) == 0
            with pytest.raises(sw.InvalidError, match=r"call record_events\(\) first"):
                events.utilisation()
            assert events.plot().get_title()
            heap.record_events(0)


def test_a_ring_that_overflows() -> None:
    with sw.CollectedHeap() as heap:
        heap.record_events(capacity=6)
        heap.collect()
        assert heap.events().lost == 0
        for _ in range(5):
            heap.collect()
        events = heap.events()
    rows = np.asarray(events.array)[-6:]  # of the last cycle: cycle, pause, mark, mark, sweep, ...
    assert events.lost > 0 and events.begin_ns == (rows["start_ns"] + rows["ns"]).min()
    assert events.mutator()["start_ns"].min() >= events.begin_ns


def test_lanes_of_perfetto(tmp_path: Path) -> None:
    path = tmp_path / "lanes.json"
    EVENTS.to_perfetto(path)
    found = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert list(names.values()) == [
        *("mutator", "assist", "mark", "sweep, thread 7", "sweep, thread 8"),
        *("pause", "wait", "finalize", "cycle"),
    ]
    spans = [e for e in found if e["ph"] == "X"]
    assert all(names[e["tid"]].split(",")[0] == e["name"] for e in spans)
    lanes = [names[e["tid"]] for e in spans if e["name"] == "sweep"]
    assert lanes == ["sweep, thread 7", "sweep, thread 8"]
    assert [(e["name"], e["ts"], e["dur"]) for e in spans] == [
        ("mutator", 0, 0.1),
        ("mutator", 0.17, 0.23),
        ("mutator", 0.45, 0.55),
        ("assist", 0.09, 0.09),
        ("pause", 0.1, 0.07),
        ("cycle", 0.1, 0.07),
        ("mark", 0.11, 0.02),
        ("sweep", 0.13, 0.03),
        ("sweep", 0.3, 0.01),
        ("pause", 0.4, 0.05),
    ]
    assert spans[-2]["args"] == {"cycle": 1, "thread": 8}
    with pytest.raises(OSError, match="nowhere"):
        EVENTS.to_perfetto(tmp_path / "nowhere" / "lanes.json")


def test_what_happened_before_recording_is_not_claimed() -> None:
    """A pause before `record_events` is neither the program's time nor in the utilisation."""
    with sw.CollectedHeap() as heap:
        kind = heap.add_type("pair", 16, [0, 1])
        graph = heap.build(kind, sw.random_graph(20_000, 2))
        heap.collect()
        heap.record_events()
        time.sleep(0.001)
        heap.collect()
        before, recorded = heap.pauses
        events = heap.events()
    assert graph.nodes == 20_000
    runs, (pause,) = events.mutator(), events.of("pause")
    assert before["at_ns"] + before["ns"] <= runs["start_ns"].min() < recorded["at_ns"]
    assert runs["start_ns"].min() == events.begin_ns
    assert runs["ns"].sum() + pause["ns"] == events.total_ns - events.begin_ns
    whole = events.utilisation()
    assert whole["window_ns"][-1] == events.total_ns - events.begin_ns
    assert whole["utilisation"][-1] == pytest.approx(1 - pause["ns"] / whole["window_ns"][-1])
