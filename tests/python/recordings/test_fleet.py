# SPDX-License-Identifier: Apache-2.0
"""Fleets: sums over sampled recordings against the formula of one, by hand, and real programs."""

from __future__ import annotations

import json
import math
import platform
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.recordings.sources import write_ops

from tests.python.helpers import compiled, needs_recorder, spanwise

MEAN = 1000
FIELDS = ("value", "low", "high")


def make(path: Path, sizes: list[int], host: str, label: str) -> Path:
    """A recording of live objects that were sampled with a mean of MEAN bytes."""
    ops = np.zeros(len(sizes), sw.OPS_DTYPE)
    ops["object"], ops["size"] = np.arange(len(sizes)), sizes
    path.parent.mkdir(exist_ok=True)
    meta = [("sample_bytes", str(MEAN)), ("host", host), ("label", label)]
    write_ops(path, iter([ops]), meta)
    return path


def by_hand(sizes: list[int]) -> tuple[float, float, float]:
    """The estimate of requested bytes, and the quantiles of its gamma distribution."""
    p = [1 - math.exp(-n / MEAN) for n in sizes]
    value = sum(n / q for n, q in zip(sizes, p, strict=True))
    variance = sum(n * n * (1 - q) / q / q for n, q in zip(sizes, p, strict=True))
    k = max(n * math.sqrt(1 - q) / q for n, q in zip(sizes, p, strict=True))
    mean, spread = value + k / 2, (variance + k * k / 2) / (value + k / 2) ** 2 / 9
    low, high = (mean * (1 - spread + z * spread**0.5) ** 3 for z in (-1.959964, 1.959964))
    return value, min(low, value), max(high, value)


SIZES = {"a.swt": [100, 200, 300, 5000], "b.swt": [100, 100, 700], "in/c.swt": [64] * 9}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "a.swt", SIZES["a.swt"], "one", "v1")
    make(tmp_path / "b.swt", SIZES["b.swt"], "one", "v2")
    make(tmp_path / "in/c.swt", SIZES["in/c.swt"], "two", "v2")
    return tmp_path


def requested(found: sw.Fleet) -> dict[str, tuple[float, ...]]:
    names = [f"requested_bytes{end}" for end in ("", "_low", "_high")]
    rows = zip(found.callers, found.array.to_dicts(), strict=True)
    return {what[0]: tuple(row[name] for name in names) for what, row in rows}


def total(found: sw.Estimates) -> tuple[float, ...]:
    return tuple(getattr(found.total["requested_bytes"], name) for name in FIELDS)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("host", {"one": ("a.swt", "b.swt"), "two": ("in/c.swt",)}),
        ("version", {"v1": ("a.swt",), "v2": ("b.swt", "in/c.swt")}),
    ],
)
def test_sums_by_attribute(folder: Path, by: str, expected: dict[str, tuple[str, ...]]) -> None:
    found = sw.fleet(folder, by=by)
    rows = requested(found)
    assert list(rows) == sorted(expected, key=lambda name: -rows[name][0])
    for name, files in expected.items():
        sizes = [size for file in files for size in SIZES[file]]
        assert rows[name] == pytest.approx(by_hand(sizes), rel=1e-5)
    everything = [size for sizes in SIZES.values() for size in sizes]
    assert total(found) == pytest.approx(by_hand(everything), rel=1e-5)
    assert (found.processes, found.hosts, found.versions) == (3, ("one", "two"), ("v1", "v2"))
    assert "3 processes, 2 hosts, 2 versions, a sample" in repr(found)


def test_progress(folder: Path) -> None:
    seen: list[int] = []
    sw.fleet(folder, progress=seen.append)
    assert sum(seen) == 3


def test_sums_by_class(folder: Path) -> None:
    """Slots of 112 bytes are in two recordings."""
    rows = requested(sw.fleet([folder / "a.swt", folder / "b.swt"], by="class"))
    assert rows["112 B"] == pytest.approx(by_hand([100, 100, 100]), rel=1e-5)
    assert rows["208 B"] == pytest.approx(by_hand([200]), rel=1e-5)


def test_one_recording_is_its_own_fleet(folder: Path) -> None:
    one = sw.SampledRecording.open(folder / "a.swt")
    for by in ("class", "site"):
        found, alone = sw.fleet(folder / "a.swt", by=by), one.estimate(by)
        assert found.array.to_dicts() == [
            {**row, "group": found.array.to_dicts()[i]["group"]}
            for i, row in enumerate(alone.array.to_dicts())
        ]
        assert found.callers == alone.callers
        assert total(found) == total(alone)
    assert (one.host, one.version) == ("one", "v1")


def test_what_cannot_be_read_is_listed(folder: Path) -> None:
    whole = (folder / "b.swt").read_bytes()
    (folder / "cut.swt").write_bytes(whole[:-40])
    (folder / "text.swt").write_text("none")
    found = sw.fleet(folder, by="host")
    assert found.processes == 3
    assert [Path(path).name for path, _ in found.failed] == ["cut.swt", "text.swt"]
    assert "not a spanwise recording" in found.failed[1][1]
    done = spanwise("fleet", folder, "--by", "host")
    assert done.returncode == 1
    assert "spanwise: " in done.stderr and "text.swt: not a spanwise recording" in done.stderr
    with pytest.raises(sw.TraceFormatError, match="text"):
        sw.fleet(folder / "text.swt")


def test_arguments(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(sw.InvalidError, match=r"empty: no .*\.swt\); spanwise record --sample"):
        sw.fleet(tmp_path / "empty")
    with pytest.raises(sw.InvalidError, match="by 'thread' is unknown; give one of site, class"):
        sw.fleet(folder, by="thread")
    with pytest.raises(sw.InvalidError, match="all objects are recorded"):
        ops = np.zeros(1, sw.OPS_DTYPE)
        ops["size"] = 1
        write_ops(tmp_path / "empty/full.swt", iter([ops]), [])
        sw.fleet(tmp_path / "empty")


class Counting(Executor):
    """Runs a task when it is waited for, and counts those that were submitted meanwhile."""

    def __init__(self) -> None:
        self.waiting = self.most = 0
        self.lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Starts the task a little later."""
        future: Future[Any] = Future()
        with self.lock:
            self.waiting += 1
            self.most = max(self.most, self.waiting)

        def work() -> None:
            result = fn(*args, **kwargs)
            with self.lock:
                self.waiting -= 1
            future.set_result(result)

        threading.Timer(0.01, work).start()
        return future


def test_few_recordings_are_read_at_a_time(tmp_path: Path) -> None:
    """So the memory does not depend on how many there are."""
    for i in range(40):
        make(tmp_path / f"{i}.swt", [100 + i], "one", "")
    counting = Counting()
    found = sw.fleet(tmp_path, by="class", executor=counting, workers=2)
    assert found.processes == 40 and 2 <= counting.most <= 8


def test_workers_in_other_processes(folder: Path) -> None:
    with ProcessPoolExecutor(2) as executor:
        found = sw.fleet(folder, by="site", executor=executor)
    assert total(found) == pytest.approx(total(sw.fleet(folder, by="site")))  # another order


PROGRAM = """\
#include <stdlib.h>
__attribute__((noinline)) void *entry(void) { return malloc(3000); }
static void *volatile kept[1000];
int main(int argc, char **argv) {
    (void)argv;
    for (int i = 0; i < 250 * argc; i++) kept[i] = entry();
    return 0;
}
"""


@needs_recorder()
def test_recorded_processes(tmp_path: Path) -> None:
    """Of two versions of a program, and one without a label."""
    program = compiled(tmp_path, PROGRAM, "-g", "-O1", "-Wl,--build-id", name="app.c")
    for name, words in (("1", ["--label", "v1"]), ("2", ["--label", "v2"]), ("3", [])):
        more = ["x"] * (int(name) - 1)
        output = tmp_path / f"{name}.swt"
        spanwise("record", "--sample", "4K", *words, "-o", output, "--", program, *more)
    found = json.loads(spanwise("fleet", tmp_path, "--by", "version", "--json").stdout)
    rows = {row["what"][0]: row for row in found["groups"]}
    build_id = sw.SampledRecording.open(tmp_path / "3.swt").version
    assert len(build_id) == 12 and set(rows) == {"v1", "v2", build_id}
    assert found["hosts"] == [platform.node()]
    for number, version in enumerate(("v1", "v2", build_id), 1):
        objects = 250 * number
        p = 1 - math.exp(-3000 / 4096)
        spread = 3000 * math.sqrt(objects * (1 - p) / p)
        assert abs(rows[version]["requested_bytes"] - objects * 3000) < 6 * spread + 2000
    site = sw.fleet(tmp_path)
    assert site.callers[0][0] == "entry (app.c:2)"
    assert len(site.array) < 6


@needs_recorder()
def test_a_label_that_is_too_long(tmp_path: Path) -> None:
    done = spanwise("record", "--label", "x" * 201, "--", "true")
    assert done.returncode == 2 and "give at most 200 bytes" in done.stderr
