# SPDX-License-Identifier: Apache-2.0
"""Sampled recordings: the estimator against its formula and a model, the recorder against counts.

Each random check allows six standard deviations, so it fails by chance once in 500 million runs.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.recordings.sampled import estimate_sum

from tests.python.helpers import compiled, needs_recorder, spanwise

pytestmark = needs_recorder()

MEAN = 16 << 10

PROGRAM = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void *small(void) { return malloc(48); }
__attribute__((noinline)) void *middle(void) { return malloc(3000); }
__attribute__((noinline)) void *large(void) { return malloc(1 << 20); }
__attribute__((noinline)) void *dropped(void) { return malloc(200); }
__attribute__((noinline)) void *grown(void *old, size_t n) { return realloc(old, n); }
static void *kept[420000];
static void *worker(void *arg) {
    for (int i = 0; i < 100000; i++) ((void **)arg)[i] = dropped();
    return NULL;
}
int main(int argc, char **argv) {
    (void)argc;
    for (int i = 0; i < 200000; i++) kept[i] = small();
    for (int i = 0; i < 2000; i++) kept[200000 + i] = middle();
    for (int i = 0; i < 40; i++) kept[210000 + i] = large();
    pthread_t threads[2];
    for (int t = 0; t < 2; t++)
        pthread_create(&threads[t], NULL, worker, &kept[220000 + t * 100000]);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    for (int i = 0; i < 200000; i++) free(kept[220000 + i]); /* by another thread */
    void *buffer = NULL;
    for (size_t n = 1; n <= 3000; n++) buffer = grown(buffer, n * 100);
    if (grown(buffer, (size_t)PTRDIFF_MAX + 1) != NULL) return 3; /* fails, and buffer lives on */
    if (argv[1][0] == 'f' && fork() == 0) {
        for (int i = 0; i < 200000; i++) free(kept[i]); /* the parent's: not in this recording */
        for (int i = 0; i < 50000; i++) kept[i] = small();
        _exit(0);
    }
    while (wait(NULL) > 0) {}
    return 0;
}
"""
LIVE = {"small": (200000, 48), "middle": (2000, 3000), "large": (40, 1 << 20)}


def spread(objects: int, size: int) -> float:
    """The standard deviation of an estimate of requested bytes, by the binomial distribution."""
    p = 1 - math.exp(-size / MEAN)
    return size * math.sqrt(objects * (1 - p) / p)


def of_function(found: sw.Estimates, function: str) -> dict[str, float]:
    """Sum the rows of a function's call sites."""
    rows = [
        row
        for row, names in zip(found.array.to_dicts(), found.callers, strict=True)
        if any(name.startswith(f"{function} ") or name.startswith(f"{function}(") for name in names)
        or any(name == function for name in names)
    ]
    assert rows, (function, found.callers)
    return {key: sum(row[key] for row in rows) for key in rows[0]}


# --- the estimator --------------------------------------------------------------------------------


def test_one_object_by_hand() -> None:
    """An object of ln 2 means is kept half of the time: it counts twice, with variance 2 x^2."""
    size = 1000 * math.log(2)
    found = estimate_sum(np.array([size]), np.array([size]), 1000)
    assert found.value == pytest.approx(2 * size)
    # The gamma distribution: mean 2x + k/2 and variance 2x^2 + k^2/2 with k = 2x sqrt(1/2).
    k = 2 * size * math.sqrt(0.5)
    mean, variance = 2 * size + k / 2, 2 * size**2 + k**2 / 2
    part = variance / mean**2 / 9
    assert found.low == pytest.approx(mean * (1 - part - 1.96 * math.sqrt(part)) ** 3, rel=1e-3)
    assert found.high == pytest.approx(mean * (1 - part + 1.96 * math.sqrt(part)) ** 3, rel=1e-3)


def test_objects_that_are_always_recorded_are_exact() -> None:
    sizes = np.array([1e9, 2e9])
    found = estimate_sum(sizes, sizes, 1 << 16)
    assert (found.value, found.low, found.high) == (3e9, 3e9, 3e9)


@pytest.mark.parametrize(
    ("objects", "size"), [(20_000, 64), (3000, 1000), (500, 8000), (60, 40_000)]
)
def test_intervals_hold_the_truth_in_93_to_97_percent(objects: int, size: int) -> None:
    """By drawing: an object is recorded with 1 - exp(-size / mean), as the recorder promises."""
    draws, random = 4000, np.random.default_rng(objects)
    p = 1 - math.exp(-size / MEAN)
    counts = random.binomial(objects, p, draws)
    found = [estimate_sum(np.full(n, size), np.full(n, size), MEAN) for n in counts.tolist()]
    truth = objects * size
    held = np.mean([one.low <= truth <= one.high for one in found])
    assert 0.93 <= held <= 0.975
    error = spread(objects, size) / math.sqrt(draws)
    assert abs(np.mean([one.value for one in found]) - truth) < 6 * error


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("sampled"), PROGRAM, "-g", "-pthread")


@pytest.fixture(scope="module")
def recording(program: Path) -> sw.SampledRecording:
    place = program.with_name("a.swt")
    return sw.SampledRecording.record([program, "-"], place, sample_bytes=MEAN)


# --- the recorder ---------------------------------------------------------------------------------


def test_estimates_of_a_program_are_its_counts(
    program: Path, recording: sw.SampledRecording
) -> None:
    found = recording.estimate(at="end")
    for function, (objects, size) in LIVE.items():
        row = of_function(found, function)
        truth, allowed = objects * size, 6 * spread(objects, size)
        assert row["requested_bytes"] == pytest.approx(truth, abs=allowed + 1), function
        assert row["live_objects"] * size == pytest.approx(truth, abs=allowed + 1), function
        if size * 40 > MEAN * 100:
            assert row["recorded"] == objects  # 1 - p is e^-64
    dropped = of_function(found, "dropped")
    assert dropped["live_objects"] == 0  # both threads' objects are freed
    made = dropped["allocated_bytes"]
    assert made == pytest.approx(200_000 * 200, abs=6 * spread(200_000, 200))
    grown = of_function(found, "grown")
    assert grown["live_objects"] == pytest.approx(1, abs=1e-6)  # 300,000 bytes: always recorded
    total = sum(100 * n for n in range(1, 3001))
    allowed = 6 * math.sqrt(
        sum((100 * n) ** 2 / math.expm1(100 * n / MEAN) for n in range(1, 3001))
    )
    assert grown["allocated_bytes"] == pytest.approx(total, abs=allowed)
    assert recording.gaps == []
    assert recording.sample_bytes == MEAN and recording.program == str(program)


def test_groups_add_up_and_the_peak_is_before_the_frees(recording: sw.SampledRecording) -> None:
    whole = recording.estimate().total["requested_bytes"].value
    for by in ("site", "class", "thread"):
        found = recording.estimate(by)
        assert sum(found.array["requested_bytes"]) == pytest.approx(whole)
        assert found.total["requested_bytes"].low < whole < found.total["requested_bytes"].high
    truth = sum(objects * size for objects, size in LIVE.values()) + 200_000 * 200
    allowed = 6 * (spread(200_000, 48) + spread(2000, 3000) + spread(200_000, 200)) + 300_000
    assert whole == pytest.approx(truth, abs=allowed)
    classes = {row["group"]: row for row in recording.estimate("class", "end").array.to_dicts()}
    of_48 = classes[48]  # of c16, which has no round-up for 48 bytes
    assert of_48["roundup_bytes"] == pytest.approx(0, abs=0.2 * of_48["requested_bytes"])


def test_a_fork_child_has_its_own_sample(program: Path, tmp_path: Path) -> None:
    done = spanwise(
        "record", "--sample", str(MEAN), "--children", "-o", tmp_path / "a.swt", "--", program, "f"
    )
    assert done.returncode == 0, done.stderr
    (child,) = [one for one in tmp_path.glob("a.*.swt") if one.name != "a.swt"]
    found = sw.SampledRecording.open(child).estimate(at="end")
    small = of_function(found, "small")
    assert small["requested_bytes"] == pytest.approx(50_000 * 48, abs=6 * spread(50_000, 48))
    parent = of_function(sw.SampledRecording.open(tmp_path / "a.swt").estimate(at="end"), "small")
    assert parent["requested_bytes"] == pytest.approx(200_000 * 48, abs=6 * spread(200_000, 48))


def test_too_many_live_objects_for_the_table_are_a_gap(tmp_path: Path) -> None:
    """Every object is recorded, 400,000 are live, and the table has room for 262,144."""
    code = """
        #include <stdlib.h>
        int main(void) {
            for (int i = 0; i < 400000; i++) if (malloc(1000) == NULL) return 1;
            return 0;
        }"""
    program = compiled(tmp_path, code)
    recording = sw.SampledRecording.record([program], tmp_path / "a.swt", sample_bytes=16)
    assert 200_000 < recording.recorded_objects <= 262_144
    (gap,) = recording.gaps
    assert "137," in gap or "138," in gap or "calls" in gap, gap


# --- what is refused ------------------------------------------------------------------------------


def test_commands_say_what_a_sample_cannot_answer(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.swt"
    recorded = spanwise("record", "--sample=64K", "-o", file, "--", program, "-")
    assert recorded.returncode == 0 and "a sample of one point per 64.0 KiB" in recorded.stderr
    for command in ("ledger", "advise", "report", "optimize", "check --max-waste 20%"):
        refused = spanwise(*command.split(), file)
        assert refused.returncode == 2, command
        assert "has a sample of the objects" in refused.stderr
        assert "spanwise estimate" in refused.stderr
    shown = spanwise("estimate", file, "--at", "end")
    assert shown.returncode == 0 and "large (program.c:" in shown.stdout
    assert "\n  40.0 MiB   " in shown.stdout  # without an interval: always recorded
    rows = json.loads(spanwise("estimate", file, "--by", "class", "--json").stdout)
    assert rows["by"] == "class" and rows["sample_bytes"] == 64 << 10
    late = spanwise("estimate", file, "--at", "1000s")
    assert late.returncode == 2 and "after its end" in late.stderr
    unknown = spanwise("estimate", file, "--at", "#5")
    assert unknown.returncode == 2 and "not known from a sample" in unknown.stderr


def test_a_whole_recording_is_not_estimated(tmp_path: Path) -> None:
    program = compiled(tmp_path, "int main(void) { return 0; }")
    sw.record([program], tmp_path / "a.swt")
    with pytest.raises(sw.InvalidError, match="all objects are recorded"):
        sw.SampledRecording.open(tmp_path / "a.swt")
    with pytest.raises(sw.InvalidError, match="at least 1"):
        sw.SampledRecording.record([program], sample_bytes=0)
