# SPDX-License-Identifier: Apache-2.0
"""Figures of replays and benchmarks, by hand from made-up runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spanwise.measure.replay_result import SAMPLES_DTYPE, Replay, Run, describe
from spanwise.measure.replays import _run

TIMELINE = np.dtype([("wall_ns", "<i8"), ("rss_bytes", "<i8")])


def run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        **dict.fromkeys(Run.__dataclass_fields__, 0),
        "cpu_ns": 1000,
        "elapsed_ns": 7777,
        "waited_ns": 90,
        "waits": 2,
        "overhead_ns": 300,
        "failed": 0,
        "minor_faults": 5,
        "own_bytes": 4096,
        "plan_bytes": 1024,
        "startup_rss_bytes": 50_000,
        "peak_rss_bytes": 150_000,
        "rss_at_peak_bytes": 140_000,
        "drained_rss_bytes": 60_000,
        "left_bytes": {0.5: 50_000, 5.0: 40_000},
        "malloc": "/libc.so",
        "addresses": None,
        "samples": np.zeros(1, SAMPLES_DTYPE),
        "timeline": np.zeros(0, TIMELINE),
    }
    return Run(**{**values, **changes})


def replay(*runs: Run, **changes: Any) -> Replay:
    values: dict[str, Any] = {
        **dict.fromkeys(Replay.__dataclass_fields__, 0),
        "source": "mine",
        "allocator": "glibc",
        "ops": 100,
        "threads": 2,
        "crossings": 4,
        "peak_requested_bytes": 100_000,
        "ideal_bytes": 125_000,
        "touch": "pages",
        "above_table": None,
        "runs": runs,
    }
    return Replay(**{**values, **changes})


THREE = (
    run(cpu_ns=1000, overhead_ns=300, peak_rss_bytes=150_000),
    run(cpu_ns=3000, overhead_ns=100, peak_rss_bytes=100_000, failed=7, waits=9),
    run(cpu_ns=1200, overhead_ns=200, peak_rss_bytes=190_000, failed=3),
)


@pytest.mark.parametrize(
    ("name", "changes", "value"),
    [
        ("ns_per_op", {}, 12.0),  # the median
        ("ns_range", {}, (10.0, 30.0)),
        ("overhead_ns_per_op", {}, 2.0),
        ("peak_rss_bytes", {}, 150_000),
        ("fragmentation", {}, 1.5),  # over peak live bytes; start-up is included
        ("fragmentation", {"peak_requested_bytes": 0}, None),
        ("blowup", {"ideal_bytes": 120_000}, 1.25),  # over the ideal allocator
        ("blowup", {"ideal_bytes": 0}, None),
        ("failed", {}, 7),  # of the worst run
    ],
)
def test_figures_by_hand(name: str, changes: dict[str, Any], value: Any) -> None:
    assert getattr(replay(*THREE, **changes), name) == value


def test_notes() -> None:
    assert replay(*THREE).notes == ("7 allocations refused: the numbers are of a smaller history",)
    above = replay(run(), above_table=2).notes
    assert above == ("2 requests above the largest class took whole pages",)


def test_text() -> None:
    lines = describe([replay(*THREE)]).splitlines()
    assert lines[0].startswith("replay of mine: 100 operations, 2 threads, peak live ")
    assert "12.0 (10.0..30.0)" in lines[3] and " 1.500 " in lines[3] and " 1.200 " in lines[3]
    assert lines[4] == "  of ns/op the replayer's own loop: 2.0"
    assert lines[5].endswith("at most 9 waits, left out of ns/op")


def test_json_has_the_same_numbers() -> None:
    value = replay(*THREE).to_dict()
    assert (value["ns_per_op"], value["ns_range"], value["blowup"]) == (12.0, [10.0, 30.0], 1.2)
    assert (value["fragmentation"], value["ideal_bytes"]) == (1.5, 125_000)
    assert (value["peak_rss_bytes"], value["overhead_ns_per_op"]) == (150_000, 2.0)
    assert value["left_bytes"] == {"0.5": 50_000, "5": 40_000}
    assert [one["elapsed_ns"] for one in value["runs"]] == [7777] * 3


# --- from the output of the program ---------------------------------------------------------------


def output(**changes: Any) -> dict[str, Any]:
    samples = [(1, 0, 10, 1, 100, 5000), (4, 3, 40, 2, 200, 9000), (6, 5, 20, 1, 300, 900)]
    values: dict[str, Any] = {
        **{"cpu_ns": 11, "elapsed_ns": 22, "waited_ns": 33, "waits": 44, "overhead_ns": 55},
        **{"failed": 66, "minor_faults": 77, "plan_bytes": 88, "own_rss_bytes": 1000},
        **{"startup_rss_bytes": 600, "drained_rss_bytes": 2500, "first_ns": 50},
        "returned": [(100, 1800), (5000, 700)],
        "malloc": "/lib/x.so",
        "threads": 1,
        **{"address_digest_peak": 123, "address_digest_end": 456},
        "samples": samples,
    }
    return {**values, **changes}


def seen_from_outside(*rows: tuple[int, int]) -> Any:
    return np.array(list(rows), TIMELINE)


def test_a_run_is_the_output_minus_the_replayers_own() -> None:
    """Samples before the first operation are not counted; start-up is."""
    one = _run(output(), seen_from_outside((40, 99_999), (50, 8000), (70, 12_000)), 4)
    assert (one.cpu_ns, one.elapsed_ns, one.waited_ns, one.waits) == (11, 22, 33, 44)
    assert (one.overhead_ns, one.failed, one.minor_faults, one.plan_bytes) == (55, 66, 77, 88)
    assert (one.own_bytes, one.startup_rss_bytes) == (1000, 600)
    assert one.samples["rss_bytes"].tolist() == [4000, 8000, 0]
    assert one.timeline["wall_ns"].tolist() == [0, 20]
    assert one.timeline["rss_bytes"].tolist() == [7000, 11_000]
    assert one.peak_rss_bytes == 11_000
    assert one.rss_at_peak_bytes == 8000
    assert one.drained_rss_bytes == 1500
    assert one.left_bytes == {0.1: 800, 5.0: 0}
    assert one.addresses == (123, 456)


def test_a_peak_that_only_a_sample_saw() -> None:
    one = _run(output(threads=2), seen_from_outside((60, 3000)), 5)
    assert one.peak_rss_bytes == 8000
    assert one.rss_at_peak_bytes == 0  # no sample there
    assert one.addresses is None  # threads make them differ
