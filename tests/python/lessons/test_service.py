# SPDX-License-Identifier: Apache-2.0
"""The message server: replies against a model in Python, latencies, bad arguments, a picture."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.lessons.service import BIN_FLOORS, STRATEGIES, serve

MASK = (1 << 64) - 1
MOST = 960


class Draws:
    """splitmix64, as the load draws its numbers."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def __call__(self, bound: int) -> int:
        """A number below the bound."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 32) * bound >> 32


def fnv(data: bytes) -> int:
    """FNV-1a over words of eight bytes."""
    total = 0xCBF29CE484222325
    for at in range(0, len(data), 8):
        total = (total ^ int.from_bytes(data[at : at + 8], "little")) * 0x100000001B3 & MASK
    return total


def replies_of(messages: int, connections: int, mean: int, churn: int) -> tuple[int, int]:
    """Checksum of all replies, and bytes of all objects."""
    draw, checksum, requested = Draws(1), 0, 0
    text = bytes((i * 7 + i // 251) % 256 for i in range(2 * MOST))
    for number in range(messages):
        if churn and (number + 1) % churn == 0:
            draw(connections)
        sender, receiver, size = draw(connections), draw(connections), draw(mean + 1)
        if draw(4) == 0:
            size = draw(4 * mean + 1) + mean // 2
        size = min(size, MOST)
        head = b"".join(n.to_bytes(4, "little") for n in (size, sender, receiver, number))
        start = number % MOST
        checksum = (checksum + fnv(head + text[start : start + size])) & MASK
        checksum = (checksum - fnv(head)) & MASK
        requested += 32 + 72 + max(size, 1) + 16 + size
    return checksum, requested


@pytest.mark.parametrize(("mean", "churn"), [(128, 0), (240, 7), (1, 1)])
def test_replies_are_those_of_the_model(mean: int, churn: int) -> None:
    model = replies_of(600, 9, mean, churn)
    for strategy in STRATEGIES:
        run = serve(strategy, messages=600, connections=9, payload_bytes=mean, churn=churn, batch=5)
        assert (run.checksum, run.requested_bytes) == model
        assert (run.allocs, run.opened) == (2400, 9 + (600 // churn if churn else 0))
        assert run.latency_bins.sum() == 600


@pytest.mark.parametrize("rate", [None, 50_000.0])
def test_threads_serve_the_same_messages(rate: float | None) -> None:
    """Each message once, whichever thread serves it; connections are replaced meanwhile."""
    load: dict[str, Any] = {"messages": 3000, "connections": 3, "churn": 5, "rate": rate}
    for strategy in STRATEGIES:
        alone, shared = (serve(strategy, threads=threads, **load) for threads in (1, 4))
        for field in ("checksum", "allocs", "requested_bytes", "opened"):
            assert getattr(shared, field) == getattr(alone, field)
        assert alone.latency_bins.sum() == shared.latency_bins.sum() == 3000
        assert "4 threads" in str(shared) and "threads" not in str(alone)


def test_threads_stop_for_the_collector() -> None:
    run = serve("collected", messages=60_000, connections=5, threads=3, live_bytes=1 << 20)
    assert run.collections > 0 and run.scanned_bytes > run.collections << 20
    assert "the longest" in str(run)


def test_percentiles_are_those_of_the_bins() -> None:
    run = serve("batch", messages=500, connections=5)
    times = np.repeat(BIN_FLOORS, run.latency_bins.astype(np.int64))
    for percent, rank in ((0, 1), (50, 250), (99, 495), (99.9, 500), (100, 500)):
        assert run.latency_ns(percent) == times[rank - 1]
    assert "batch, closed loop" in str(run) and "P99.9" in str(run)
    reported = json.loads(run.to_json())
    assert sum(count for _, count in reported["latencies"]) == 500
    assert "latency_bins" not in reported


def test_an_open_loop_counts_from_the_intended_arrival() -> None:
    run = serve("heap", messages=300, connections=5, rate=1e9)
    assert run.rate == 1e9 and run.latency_ns(100) <= run.elapsed_ns
    assert run.latency_ns(100) > run.latency_ns(1)  # the last one waits for all others


def test_a_collector_finds_the_messages() -> None:
    run = serve("collected", messages=30_000, connections=5, live_bytes=1 << 20, latencies=False)
    assert run.collections > 0 and run.scanned_bytes > run.collections << 20
    assert 0 < run.longest_pause_ns <= run.pause_ns
    assert "collection" in str(run)
    with pytest.raises(sw.InvalidError, match="latencies were not measured"):
        run.latency_ns(50)


def test_bad_arguments() -> None:
    good = (10, 10, 10, 128)
    for numbers in ((0, *good[1:]), (10, 0, *good[2:]), (*good[:2], 0, 128), (*good[:3], 241)):
        messages, connections, batch, mean = numbers
        with pytest.raises(sw.InvalidError, match="1 or more"):
            serve(
                "heap",
                messages=messages,
                connections=connections,
                batch=batch,
                payload_bytes=mean,
            )
    for threads in (0, 65):
        with pytest.raises(sw.InvalidError, match="threads: 1 to 64"):
            serve("heap", threads=threads)
    with pytest.raises(sw.InvalidError, match="must be one of static"):
        serve("stack")
    for rate in (0, -1, float("inf"), float("nan")):
        with pytest.raises(sw.InvalidError, match="messages per second"):
            serve("heap", rate=rate)


def test_a_picture_of_latencies() -> None:
    ax = serve("static", messages=200, connections=5).plot_latencies()
    assert ax.get_xlabel() == "messages that took no longer, %"
    assert len(ax.get_lines()) == 1
