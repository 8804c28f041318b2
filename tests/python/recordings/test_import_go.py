# SPDX-License-Identifier: Apache-2.0
"""Execution traces of Go as recordings: by hand, damaged, and of real programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.recordings.import_tools import made, refused, rows

ALLOC, FREE = range(2)
NO_THREAD = (1 << 64) - 1
HEAP = 0xC000000000
SCAN, NOSCAN = 0, 1

# --- a writer ---------------------------------------------------------------------------------


def number(value: int, least: int = 1) -> bytes:
    """A number in 7 bits a byte, with `least` bytes at least, as Go pads lengths."""
    made: list[int] = []
    while value > 127 or len(made) < least - 1:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def numbers(*values: int) -> bytes:
    return b"".join(map(number, values))


def batch(generation: int, thread: int, ticks: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return b"\x01" + numbers(generation, thread, ticks) + number(len(data), 10) + data


def experiment(generation: int, data: bytes) -> bytes:
    head = b"\x31\x01" + numbers(generation, NO_THREAD, 1000)
    return head + number(len(data), 10) + data


def event(mark: int, *values: int) -> bytes:
    return bytes([mark]) + numbers(*values)


def header(version: int = 26) -> bytes:
    return b"go 1.%d trace\x00\x00\x00" % version


def sync(generation: int, ticks: int, frequency: int, version: int = 26) -> bytes:
    output = event(8, frequency)
    if version >= 25:
        output = b"\x32" + output + event(51, 1, 7_000_000, 1_700_000_000, 5)
    return batch(generation, NO_THREAD, ticks, output)


def units(generation: int = 1) -> bytes:
    return experiment(generation, b"\x01" + numbers(HEAP, 8192, 8, 2048))


def span(dt: int, page: int, pages: int, size_class: int, noscan: int = SCAN) -> bytes:
    return event(128, dt, page, pages, (size_class << 1 | noscan) << 1)


def span_alloc(dt: int, page: int, pages: int, size_class: int, noscan: int = SCAN) -> bytes:
    return event(129, dt, page, pages, (size_class << 1 | noscan) << 1)


def span_free(dt: int, page: int) -> bytes:
    return event(130, dt, page)


def there(dt: int, offset: int) -> bytes:
    return event(131, dt, offset // 8, 1)


def alloc(dt: int, offset: int) -> bytes:
    return event(132, dt, offset // 8, 0)


def free(dt: int, offset: int) -> bytes:
    return event(133, dt, offset // 8)


END = b"\x34"
PAGE = 8192

# --- by hand ----------------------------------------------------------------------------------

# Ticks are 64 ns in the first generation and 32 ns in the second. Class 5 has 48 B, class 2 16 B.
FIRST = [
    sync(1, 1000, 15_625_000),
    units(),
    batch(1, NO_THREAD, 1000, b"\x04", event(5, 1, 4), b"main"),
    batch(1, NO_THREAD, 1000, b"\x02", event(3, 1, 1, 0x401000, 1, 1, 9)),
    experiment(1, b"\x00" + numbers(1, 0x500000, 44, 0, 6) + b"main.T"),
    batch(
        1,
        70,
        1000,
        event(13, 2, 0, 1),  # a processor's status, and a goroutine's with a stack
        event(48, 1, 7, 70, 2, 1),
        span(1, 0, 1, 5),
        there(9, 48),
        span(1, 1, 1, 2, NOSCAN),
        event(128, 1, 2, 4, 1),  # a span of stacks
        event(134, 1, 8, 12),  # a goroutine's stack
        alloc(24, 0),  # at 1040
        free(10, 48),  # at 1050
    ),
    batch(
        1,
        71,
        1002,
        alloc(18, PAGE),  # at 1020: below 16 bytes
        alloc(1, PAGE + 8),  # in the same slot
        alloc(24, 48),  # at 1045: before the free of thread 70, so it waits
        span_alloc(15, 8, 5, 0),  # at 1060: a large object's
        alloc(1, 8 * PAGE),
    ),
    batch(1, 71, 1070, free(5, 8 * PAGE), span_free(1, 8)),  # at 1075
]
SECOND = [
    batch(2, 71, 1100, event(16, 3, 7, 1), free(7, PAGE)),  # at 1110
    sync(2, 1150, 31_250_000),
    batch(2, 72, 1101, span_alloc(19, 8, 3, 41), there(1, 0), alloc(1, 8 * PAGE + 3072)),  # at 1122
]
ROWS = [
    (0, ALLOC, 0, 48, 0),  # was there
    (1280, ALLOC, 1, 16, 1),
    (2560, ALLOC, 2, 48, 0),
    (3200, FREE, 0, 0, 0),
    (3200, ALLOC, 0, 48, 1),
    (3904, ALLOC, 3, 40960, 1),
    (4800, FREE, 3, 0, 1),
    (6720, FREE, 1, 0, 1),  # 6400 is the begin of the second generation
    (7104, ALLOC, 1, 3072, 2),
]
WHOLE = b"".join([header(), *FIRST, END, *SECOND, END])


def test_a_trace_by_hand(tmp_path: Path) -> None:
    one = made(tmp_path / "trace.out", WHOLE)
    assert rows(one) == ROWS
    assert one.remark.endswith("call sites are not known") and "left out" not in one.remark
    assert "round-up is not Go's" in one.remark and "time of its sweep" in one.remark
    assert one.ledger("go").remark == one.remark
    assert rows(made(tmp_path / "t", WHOLE, form="go-trace")) == ROWS


@pytest.mark.parametrize("version", [23, 25])
def test_older_versions_have_no_ends_of_generations(version: int, tmp_path: Path) -> None:
    parts = [sync(1, 1000, 15_625_000, version), *FIRST[1:]]
    parts += [SECOND[0], sync(2, 1150, 31_250_000, version), SECOND[2]]
    assert rows(made(tmp_path / "t", b"".join([header(version), *parts]))) == ROWS


def one_generation(*batches: bytes) -> bytes:
    return b"".join([header(), sync(1, 1000, 15_625_000), units(), *batches, END])


def test_what_does_not_fit_waits_and_is_left_out_at_last(tmp_path: Path) -> None:
    """A free of nothing and an object in no span: other events go on, and both are counted."""
    content = one_generation(
        batch(1, 70, 1000, free(1, 96), alloc(1, 5 * PAGE), alloc(1, 0)),
        batch(1, 71, 1000, span(1, 0, 1, 5), alloc(9, 48)),
    )
    one = made(tmp_path / "t", content)
    assert rows(one) == [(64 * 10, ALLOC, 0, 48, 0), (64 * 10, ALLOC, 1, 48, 1)]
    output = "left out: 1 free of objects that are not known, 1 allocation in spans that are not"
    assert output in one.remark
    far = 1_000_000_000 // 64  # a second in ticks: none waits so long
    content = one_generation(
        batch(1, 70, 1000, free(1, 96), alloc(1, 0)),
        batch(1, 71, 1000, span(1, 0, 1, 5), alloc(far, 48)),
    )
    assert [row[4] for row in rows(made(tmp_path / "t", content))] == [0, 1]


def test_a_span_waits_for_the_end_of_another(tmp_path: Path) -> None:
    """Thread 71 has the pages by its stamps before thread 70 gave them away, in another class."""
    content = one_generation(
        batch(1, 70, 1000, span(1, 0, 1, 5), there(1, 48), free(30, 48), span_free(1, 0)),
        batch(1, 71, 1010, span_alloc(1, 0, 1, 41), alloc(1, 0), alloc(1, 3072)),
    )
    assert rows(made(tmp_path / "t", content)) == [
        (0, ALLOC, 0, 48, 0),
        (64 * 32, FREE, 0, 0, 0),
        (64 * 33, ALLOC, 0, 3072, 1),
        (64 * 33, ALLOC, 1, 3072, 1),
    ]


# --- cut and wrong ----------------------------------------------------------------------------


def test_a_cut_trace(tmp_path: Path) -> None:
    """At each length an error of one line, but where a generation is whole."""
    path = tmp_path / "t"
    whole = len(WHOLE) - len(b"".join(SECOND)) - 1
    for length in range(len(WHOLE)):
        if length == whole:
            assert rows(made(path, WHOLE[:length])) == ROWS[:7]
            continue
        said = refused(path, WHOLE[:length])
        if length > 16:
            assert "is cut" in said, length
    assert "generation 2 has no end" in refused(path, WHOLE[:-1])
    older = b"".join([header(23), *FIRST[1:]])
    assert "generation 1 has no frequency; the file may be cut" in refused(path, older)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (header(21) + WHOLE[16:], "format of Go 1.21, which has no allocations; make one with Go"),
        (header(5) + b"\0", "format of Go 1.5, which has no allocations"),
        (header(22) + WHOLE[16:], "format of Go 1.22, which has no allocations"),
        (header(27) + WHOLE[16:], "format of Go 1.27; those of Go 1.23 to 1.26 are read"),
        (header(24) + WHOLE[16:], "format of Go 1.24; those"),
        (header(), "has no allocation; nothing to make"),
        (header() + sync(1, 1, 1) + END, "GODEBUG=traceallocfree=1 go test -trace trace.out"),
        (one_generation(), "has no allocation; nothing to make"),
        (header() + b"\x05", "byte 16: no batch begins with 5"),
        (header() + END, "byte 16: no batch begins with 52"),
        (header(25) + FIRST[0] + END, "no batch begins with 52"),
        (header() + FIRST[0] + SECOND[0], "generation 2 is within 1"),
        (header(25) + FIRST[0] + batch(3, 1, 1, b""), "generation 3 is within 1"),
        (header() + b"\x01" + b"\xff" * 11, "byte 17: a number is too long"),
        (header() + b"\x01" + numbers(1, 1, 1, 1 << 17), "131072 bytes, which is too many"),
        (one_generation(batch(1, 70, 1, b"\x7f\0\0")), "these events of a thread are damaged"),
        (one_generation(batch(1, 70, 1, b"\x85\0")), "these events of a thread are damaged"),
        (one_generation(batch(1, 70, 1, span(1, 0, 1, 68))), "class 68 is impossible"),
        (one_generation(batch(1, 70, 1, span(1, 0, 99, 5))), "of 99 pages with class 5"),
        (one_generation(batch(1, 70, 1, span(1, 0, 0, 0))), "a span without pages is impossible"),
        (one_generation(batch(1, 70, 1, span(1, 0, 1 << 60, 0))), "is too large"),
        (one_generation(batch(1, 70, 1, span_alloc(1 << 63, 0, 1, 5))), "ticks is too late"),
        (one_generation(experiment(1, b"\x01" + numbers(HEAP, 0, 8, 1))), "are impossible"),
        (one_generation(batch(1, 70, 1, b"\x32", event(9, 1))), "of a frequency is damaged"),
    ],
)
def test_what_is_wrong(content: bytes, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path / "t", content)


def test_another_file_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    assert "is not an execution trace of Go" in refused(path, b"= Start\n", form="go-trace")
    path.write_bytes(header(21) + WHOLE[16:])
    assert main(["convert", str(path), "-o", str(tmp_path / "out.swt")]) == 2
    captured = capsys.readouterr()
    assert "GODEBUG=traceallocfree=1" in captured.err and captured.err.count("\n") == 1


# --- real programs --------------------------------------------------------------------------------

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
