# SPDX-License-Identifier: Apache-2.0
"""Recordings made from execution traces that Go itself writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import spanwise as sw

from tests.python.recordings import independent

PROGRAM = """\
package main

import (
	"os"
	"runtime"
	"runtime/trace"
)

type node struct {
	next *node
	body [96]byte
}

var before, kept []*[255]*int
var nodes []*node
var bytes [][]byte

func main() {
	file, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	for i := 0; i < 700; i++ {
		before = append(before, new([255]*int))
	}
	if err := trace.Start(file); err != nil {
		panic(err)
	}
	done := make(chan bool)
	for g := 0; g < 4; g++ {
		go func() {
			var own []*node
			for i := 0; i < 20000; i++ {
				own = append(own, new(node))
			}
			done <- len(own) == 20000
		}()
	}
	for g := 0; g < 4; g++ {
		<-done
	}
	for i := 0; i < 3000; i++ {
		bytes = append(bytes, make([]byte, 1000))
	}
	for i := 0; i < 100; i++ {
		bytes = append(bytes, make([]byte, 50000))
	}
	bytes = bytes[:3050:3050]
	bytes = append([][]byte(nil), bytes...)
	before = nil
	runtime.GC()
	runtime.GC()
	for i := 0; i < 40; i++ {
		kept = append(kept, new([255]*int))
	}
	trace.Stop()
	file.Close()
	runtime.KeepAlive(bytes)
	runtime.KeepAlive(kept)
}
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Traces with the heap and without."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go on this machine")
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(PROGRAM)
    # Go's standard library stays in the user's cache: else it would be compiled for this test.
    env = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    build = [go, "build", "-o", str(folder / "program"), str(folder / "main.go")]
    built = subprocess.run(build, env=env, cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        pytest.skip(f"go cannot build it: {built.stderr.splitlines()[-1]}")
    found = {}
    for word in ("1", "0"):
        found[word] = folder / f"trace.{word}"
        env["GODEBUG"] = f"traceallocfree={word}"
        subprocess.run([folder / "program", found[word]], env=env, check=True, timeout=300)
    if found["1"].read_bytes()[:7] < b"go 1.23":
        pytest.skip("this go is older than 1.23, so its traces have no allocations")
    return found


def test_what_go_writes(traces: dict[str, Path], tmp_path: Path) -> None:
    """At least what the program allocates, of 104, 1000, 50000 and 2040 bytes, by their slots."""
    one = sw.convert(traces["1"], tmp_path / "go.swt")
    found = one.histogram()
    counts = dict(zip(found["size_bytes"].tolist(), found["count"].tolist(), strict=True))
    assert counts[112] >= 80_000 and counts[1024] >= 3000
    assert counts[57344] >= 100 and counts[2048] >= 740
    assert one.summary.frees >= 80_000 + 700 + 50
    assert "left out" not in one.remark
    assert (one.ops["time_ns"][:700] == 0).all()
    live = one.summary.end_requested_bytes
    assert 3000 * 1024 + 50 * 57344 + 40 * 2048 <= live < 12_000_000
    slots = set(sw.SizeClassTable.go().classes["size_bytes"].tolist())
    assert all(size in slots or size % 8192 == 0 for size in counts)


def test_a_trace_of_go_without_its_heap(traces: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(sw.InvalidError, match="ran without GODEBUG=traceallocfree=1"):
        sw.convert(traces["0"], tmp_path / "go.swt")
    assert not (tmp_path / "go.swt").exists()


@pytest.mark.slow  # newer versions of Go build the tool at its first use
def test_totals_are_those_of_go_tool_trace(traces: dict[str, Path], tmp_path: Path) -> None:
    one = sw.convert(traces["1"], tmp_path / "go.swt")
    slots = sw.SizeClassTable.go().classes["size_bytes"].tolist()
    found = independent.go_tool_trace(str(shutil.which("go")), traces["1"], slots)
    assert (one.summary.allocated_bytes, one.summary.end_requested_bytes) == found
