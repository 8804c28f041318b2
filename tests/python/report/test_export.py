# SPDX-License-Identifier: Apache-2.0
"""Exports, each read back by its documented fields; limits for CI; what grew."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.recordings.sites import Site
from spanwise.report import export, stacks
from spanwise.report.export import FORMATS
from spanwise.report.stacks import VALUES
from spanwise.results.rows import Rows

from tests.python.helpers import check_trace_events, make_ops, needs_recorder, random_ops

GO = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
PLAIN = sw.Recording.from_ops(random_ops(9, 4000), name="mine")
JOB = "import json; kept = json.loads(json.dumps([{'i': i} for i in range(2000)]))"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> sw.Recording:
    """CPython with call sites."""
    path = tmp_path_factory.mktemp("recorded") / "a.swt"
    return sw.record(["python3", "-c", JOB], path, stacks=5)


def exported(one: sw.Recording, to: str, folder: Path, **named: Any) -> bytes:
    """Return what an export writes; check that it leaves nothing else and is reproducible."""
    path = folder / "exported"
    one.export(path, to, "go", **named)
    content = path.read_bytes()
    one.export(path, to, "go", **named)
    assert path.read_bytes() == content
    assert [p.name for p in folder.iterdir()] == ["exported"]
    path.unlink()
    return content


# --- pprof ----------------------------------------------------------------------------------------


def fields(body: bytes) -> list[tuple[int, Any]]:
    """The fields of a message of Protocol buffers: numbers, and bytes."""
    found: list[tuple[int, Any]] = []
    at = 0

    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(body):
        key = take()
        assert key & 7 in (0, 2)
        value: Any = take()
        if key & 7 == 2:
            value, at = body[at : at + value], at + value
        found.append((key >> 3, value))
    return found


def numbers(body: bytes) -> list[int]:
    """Packed numbers: as fields whose keys are taken for values."""
    found, value, shift = [], 0, 0
    for byte in body:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def shown_name(function: str, file: str, line: int) -> str:
    """The name that spanwise prints for a call of a profile, without a reason for no name."""
    if line:
        return f"{function} ({'/'.join(Path(file).parts[-2:])}:{line})"
    return f"{function} in {file}" if file else function


def without_reason(name: str) -> str:
    """A name without the reason why it is an offset: "x.so+0x12 (stripped)"."""
    return re.sub(r"(\+0x[0-9a-f]+) \(.*\)", r"\1", name)


def test_numbers_of_variable_length() -> None:
    """The examples of the specification, and both ends."""
    assert stacks.varint(150) == b"\x96\x01" and stacks.varint(0) == b"\x00"
    assert stacks.varint(-1) == b"\xff" * 9 + b"\x01" and stacks.varint(127) == b"\x7f"
    assert stacks.content(2, b"testing") == b"\x12\x07testing"
    assert stacks.packed(6, (3, 270, 86942)) == bytes.fromhex("3206038e029ea705")
    assert stacks.number(1, 150) == b"\x08\x96\x01" and stacks.number(1, 0) == b""


def test_pprof_names_of_functions() -> None:
    """By hand: C++ and Rust as pprof shortens them, with the whole name; others as they are."""
    names = {
        "app::Index<std::string, long>::insert(std::string const&, long)": "app::Index::insert",
        "core::ptr::drop_in_place<alloc::vec::Vec<u8>>": "core::ptr::drop_in_place",
        "std::operator()": "std::operator()",
        "parse.<locals>.<listcomp>": "parse.<locals>.<listcomp>",
        "main.(*T).Method": "main.(*T).Method",
        "<module>": "<module>",
    }
    frames = tuple((stacks.Call(name, "a", 7),) for name in names)
    group = stacks.Group(stacks.Stack((*names,), frames, (1, 2, 3, 4, 5)), 16, 0)
    profile = fields(gzip.decompress(stacks.pprof([group], 9, "app", "comment")))
    strings = [text.decode() for number, text in profile if number == 6]
    found = [dict(fields(body)) for number, body in profile if number == 5]
    assert [strings[one[2]] for one in found] == [*names.values()]
    whole = [strings[one.get(3, 0)] for one in found]
    assert whole == [*[*names][:2], "", "", "", ""]


@needs_recorder()
def test_pprof_has_the_sites_and_sums(recorded: sw.Recording, tmp_path: Path) -> None:
    profile = fields(gzip.decompress(exported(recorded, "pprof", tmp_path)))
    of: dict[int, list[Any]] = {i: [v for k, v in profile if k == i] for i in range(1, 15)}
    strings = [text.decode() for text in of[6]]
    assert strings[0] == ""
    types = [[strings[v] for _, v in fields(one)] for one in of[1]]
    assert types == [list(names) for names in VALUES.values()]
    (mapping,) = (dict(fields(one)) for one in of[3])
    assert strings[mapping[5]] == Path(recorded.program).name and mapping[1] == 1
    assert all(mapping[field] for field in (7, 8, 9, 10))  # pprof looks for no binary
    functions = {}
    for one in of[5]:
        function = dict(fields(one))
        # With an equal system name, pprof strips what it takes for C++.
        assert function.get(3) != function[2]
        whole = strings[function.get(3, function[2])]
        functions[function[1]] = whole, strings[function.get(4, 0)]
    locations = {}
    for one in of[4]:
        lines = [dict(fields(line)) for number, line in fields(one) if number == 4]
        calls = [(*functions[line[1]], line.get(2, 0)) for line in lines]
        assert 2 not in dict(fields(one))  # no mapping, so nothing is disassembled
        locations[dict(fields(one))[1]] = [shown_name(*call) for call in calls]
    live, sites = recorded.live_sites("go").named(), recorded.sites
    wanted: Counter[tuple[str, ...]] = Counter()
    for site in live:
        wanted[tuple(map(without_reason, site.names)) or ("[unknown]",)] += site.requested_bytes
    found: Counter[tuple[str, ...]] = Counter()
    sums = np.zeros(5, np.int64)
    for one in of[2]:
        sample = dict(fields(one))
        values = numbers(sample[2])
        assert len(values) == 5
        output = [dict(fields(label)) for number, label in fields(one) if number == 3]
        assert [strings[label[1]] for label in output] == ["class", "thread"]
        sums += values
        found[tuple(name for i in numbers(sample[1]) for name in locations[i])] += values[3]
    assert {frames: size for frames, size in found.items() if size} == {
        frames: size for frames, size in wanted.items() if size
    }
    allocated = sum(site.allocs for site in sites), sum(site.allocated_bytes for site in sites)
    waste = live.ledger.waste_bytes - sum(live.no_site.values())
    ledger = live.ledger
    assert sums.tolist() == [*allocated, ledger.live_objects, ledger.requested_bytes, waste]
    assert of[10] == [recorded.summary.duration_ns]


INLINED = "/app/a.out+0x20"
NAMES = {
    "/app/a.out+0x10": ("operator new (new.cc:9)",),
    INLINED: ("std::string::grow (s.h:5)", "Box<int>::fill(int) (box.cc:7)"),
    "/app/libc.so.6+0x30": ("run in libc.so.6",),
    "/app/libc.so.6+0x40": ("libc.so.6+0x40 (stripped)",),
    "python: <module> (/app/lib/run me.py:6)": ("<module> (lib/run me.py:6)",),
}


def hand_made(*sites: tuple[int, tuple[str, ...], int]) -> list[stacks.Group]:
    """Groups of sites: id, frames, and how many of their leading names are folded."""
    rows = np.array([(i, 48, 0, 1, 33, 1, 33, 15) for i, _, _ in sites])
    full = [tuple(name for frame in frames for name in NAMES[frame]) for _, frames, _ in sites]
    made = [
        Site(i, 1, 33, frames, names[folded:], names)
        for (i, frames, folded), names in zip(sites, full, strict=True)
    ]
    return stacks.groups_of(cast("Rows", rows), made, NAMES)


def test_frames_by_hand() -> None:
    """Inlined calls stay together, also where folding ends among them; a Python file is whole."""
    chains = [
        group.stack.frames
        for group in hand_made((1, tuple(NAMES), 1), (2, (INLINED,), 1), (0, (), 0))
    ]
    fill = stacks.Call("Box<int>::fill(int)", "box.cc", 7)
    assert chains == [
        ((fill,),),
        ((stacks.Call("[unknown]"),),),
        (
            (stacks.Call("std::string::grow", "s.h", 5), fill),
            (stacks.Call("run", "libc.so.6"),),
            (stacks.Call("libc.so.6+0x40"),),
            (stacks.Call("<module>", "/app/lib/run me.py", 6),),
        ),
    ]


def go_pprof(path: Path, *more: str) -> str:
    """Return what `go tool pprof` prints, next to the file; skip the test if this Go has none."""
    words = [str(GO), "tool", "pprof", "-sample_index=inuse_space", "-unit=B", *more, str(path)]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=300, check=False, cwd=path.parent
    )
    if done.returncode and "no such tool" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_labels_by_hand(tmp_path: Path) -> None:
    """Two threads, two classes, one object of whole pages; the class is that of Go's table.

    33 and 40 bytes are of the slots of 48, 40,000 bytes take 40,960 of pages. Each thread
    has a span of its own, of 8,192 bytes: its object keeps 8192 - 48 bytes and its round-up.
    """
    ops = make_ops((0, 0, 33), (0, 1, 40), (0, 2, 40_000), (0, 3, 9), (1, 3, 0))
    ops["thread"] = (0, 1, 1, 1, 0)
    one = sw.Recording.from_ops(ops, name="mine")
    profile = fields(gzip.decompress(exported(one, "pprof", tmp_path, at="end")))
    strings = [text.decode() for number, text in profile if number == 6]
    found = {}
    for body in (body for number, body in profile if number == 2):
        labels: dict[str, Any] = {}
        for label in (dict(fields(each)) for number, each in fields(body) if number == 3):
            unit = strings[label.get(4, 0)]
            labels[strings[label[1]]] = (label[3], unit) if unit else strings[label[2]]
        key = labels["class"], labels["thread"]
        assert key not in found
        found[key] = numbers(dict(fields(body))[2])
    kept = 8192 - 48
    assert found == {
        ((48, "bytes"), "0"): [1, 33, 1, 33, 15 + kept],
        ((48, "bytes"), "1"): [1, 40, 1, 40, 8 + kept],
        ((16, "bytes"), "1"): [1, 9, 0, 0, 0],
        ("large", "1"): [1, 40_000, 1, 40_000, 960],
    }


@pytest.mark.slow  # newer versions of Go build the tool at its first use
@needs_recorder()
@pytest.mark.skipif(GO is None, reason="Go is not installed")
def test_go_reads_the_profile(recorded: sw.Recording, tmp_path: Path) -> None:
    path = tmp_path / "a.pb.gz"
    recorded.export(path, "pprof", "go")
    top = go_pprof(path, "-top", "-flat")
    assert f"File: {Path(recorded.program).name}\n" in top
    total = recorded.live_sites("go").ledger.requested_bytes
    (output,) = re.findall(r"of (\d+)B total", top)
    assert int(output) == total
    flat: Counter[str] = Counter()
    for site in recorded.live_sites("go").named():
        flat[without_reason(site.names[0]).split()[0] if site.names else "[unknown]"] += (
            site.requested_bytes
        )
    first, most = flat.most_common(1)[0]
    row = top.partition("cum%\n")[2].splitlines()[0]
    assert row.split()[0] == f"{most}B" and row.split()[5] == first.split()[0]
    # The view of sources, where a file with the name of the program must not be disassembled.
    shutil.copy(sys.executable, tmp_path / Path(recorded.program).name)
    page = tmp_path / "sources.html"
    go_pprof(path, f"-output={page}", f"-weblist=^{re.escape(first)}$")
    assert first.split()[0] in page.read_text(encoding="utf-8")
    groups = recorded.site_groups("go")
    small = groups["requested_bytes"][(groups["slot_bytes"] > 0) & (groups["slot_bytes"] <= 64)]
    words = ("-top", "-nodecount=100000", "-nodefraction=0", "-tagfocus=class=1b:64b")
    (output,) = re.findall(r"accounting for (\d+)B", go_pprof(path, *words))
    assert int(output) == int(small.sum())
    assert re.search(rf"thread: Total {total}B", go_pprof(path, "-tags"))


# --- stacks as text -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speedscope(recorded: sw.Recording, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The file for speedscope, which has every value."""
    return json.loads(exported(recorded, "speedscope", tmp_path_factory.mktemp("speedscope")))


@needs_recorder()
@pytest.mark.parametrize("value", VALUES)
def test_collapsed_and_speedscope_say_the_same(
    recorded: sw.Recording, speedscope: Any, value: str, tmp_path: Path
) -> None:
    lines = exported(recorded, "collapsed", tmp_path, value=value).decode().splitlines()
    assert lines
    wanted = []
    for line in lines:
        stack, _, count = line.rpartition(" ")
        assert re.fullmatch(r"[1-9]\d*", count)
        wanted.append((list(map(without_reason, stack.split(";"))), int(count)))
    content = speedscope
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [
        shown_name(frame["name"], frame.get("file", ""), frame.get("line", 0)).replace(";", ":")
        for frame in content["shared"]["frames"]
    ]
    (profile,) = (one for one in content["profiles"] if one["name"] == value)
    assert profile["type"] == "sampled" and profile["unit"] in ("bytes", "none")
    found = [[names[i] for i in chain] for chain in profile["samples"]]
    assert list(zip(found, profile["weights"], strict=True)) == wanted
    assert (profile["startValue"], profile["endValue"]) == (0, sum(profile["weights"]))
    assert 0 <= content["activeProfileIndex"] < len(content["profiles"])


def test_values_of_stacks_by_hand(tmp_path: Path) -> None:
    """Two objects of 33 bytes: in a span of 170 slots of 48 bytes they keep all that is free."""
    one = sw.Recording.from_ops(make_ops((0, 0, 33), (0, 1, 33), (0, 2, 9), (1, 2, 0)))
    found = {
        value: exported(one, "collapsed", tmp_path, value=value, at="end").decode()
        for value in VALUES
    }
    wanted = dict(zip(VALUES, (3, 75, 2, 66, 8192 - 66), strict=True))
    assert found == {value: f"[unknown] {count}\n" for value, count in wanted.items()}


# --- numbers --------------------------------------------------------------------------------------


def test_perfetto_has_the_time_line(tmp_path: Path) -> None:
    content = json.loads(exported(PLAIN, "perfetto", tmp_path))
    rows = PLAIN.timeline("go", samples=1000, detail="parts")
    events = content["traceEvents"]
    assert events[0] == {
        **{"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "mine"}}
    }
    assert {event["ph"] for event in events[1:]} == {"C", "M", "X"}
    ledgers = [event for event in events if event["name"] == "ledger, bytes"]
    assert [event["ts"] for event in ledgers] == (rows["time_ns"] / 1000).tolist()
    assert [sum(event["args"].values()) for event in ledgers] == rows["held_bytes"].tolist()
    growth = [event for event in events if event["name"] == "growth, bytes/s"]
    assert growth and all(isinstance(event["args"]["requested"], int) for event in growth)


def test_lanes_of_threads_by_hand(tmp_path: Path) -> None:
    """Windows of 2 ns over 1999 ns: two calls of thread 0 in neighbours, then one far away."""
    ops = np.zeros(6, sw.OPS_DTYPE)
    ops["time_ns"] = [0, 3, 3, 100, 1998, 1999]
    ops["thread"] = [0, 0, 1, 1, 0, 1]
    ops["kind"] = [0, 2, 0, 1, 0, 3]  # the last is the end of a thread, which is no call
    ops["object"] = [0, 0, 1, 1, 1, 0]
    ops["size"] = [10, 30, 7, 0, 5, 0]
    one = sw.Recording.from_ops(ops, name="lanes")
    events = json.loads(exported(one, "perfetto", tmp_path))["traceEvents"]
    check_trace_events(events)
    names = [(one["tid"], one["args"]["name"]) for one in events if one["ph"] == "M"]
    assert names == [(0, "lanes"), (1, "thread 0"), (2, "thread 1")]
    boxes = [
        (one["tid"], one["ts"], one["dur"], *one["args"].values())
        for one in events
        if one["ph"] == "X"
    ]
    assert boxes == [
        (1, 0.0, 0.004, 2, 40, 0),
        (1, 1.998, 0.002, 1, 5, 0),
        (2, 0.002, 0.002, 1, 7, 0),
        (2, 0.1, 0.002, 0, 0, 1),
    ]
    rates = [
        (one["ts"], one["args"]["requested"])
        for one in events
        if one["name"] == "allocated, bytes/s"
    ]
    # 10 bytes in 2 ns, then 37, then none until the last window.
    assert rates == [(0.0, 5 * 10**9), (0.002, 37 * 10**9 // 2), (0.004, 0), (1.998, 25 * 10**8)]


def test_lanes_add_up_to_the_summary(tmp_path: Path) -> None:
    for one in (PLAIN, sw.Recording.from_ops(np.zeros(0, sw.OPS_DTYPE))):
        events = json.loads(exported(one, "perfetto", tmp_path))["traceEvents"]
        check_trace_events(events)
        args = [event["args"] for event in events if event["ph"] == "X"]
        summary = one.summary
        requests = summary.allocs + summary.reallocs
        assert sum(one["requests"] for one in args) == requests
        assert sum(one["frees"] for one in args) == summary.frees
        asked = summary.allocated_bytes + summary.reallocated_bytes
        assert sum(one["requested_bytes"] for one in args) == asked


def test_openmetrics_follows_the_specification(tmp_path: Path) -> None:
    text = exported(PLAIN, "openmetrics", tmp_path).decode()
    lines = text.splitlines()
    assert lines[-1] == "# EOF" and text.endswith("# EOF\n") and "" not in lines
    ledger, seen = PLAIN.ledger("go"), 0
    for line in lines[:-1]:
        if line.startswith("#"):
            assert re.match(r"# (TYPE|UNIT|HELP) spanwise_[a-z_]+ \S", line)
            continue
        match = re.fullmatch(r'spanwise_([a-z_]+)\{table="go",source="mine"\} (\d+)', line)
        assert match and getattr(ledger, match[1]) == int(match[2])
        at = lines.index(line)
        assert f"# TYPE spanwise_{match[1]} gauge" in lines[:at]
        if match[1].endswith("_bytes"):
            assert f"# UNIT spanwise_{match[1]} bytes" in lines[:at]
        seen += 1
    assert seen == 13
    with sw.Heap("go") as heap:
        heap.alloc(33)
        assert 'spanwise_requested_bytes{table="go",source=""} 33' in heap.ledger().to_openmetrics()


def test_names_are_escaped_in_labels(tmp_path: Path) -> None:
    one = sw.Recording.from_ops(make_ops((0, 0, 33)), name='a"b\\c\nd')
    assert b'source="a\\"b\\\\c\\nd"' in exported(one, "openmetrics", tmp_path)


def test_npz_has_the_operations(tmp_path: Path) -> None:
    one = sw.Recording.from_ops(PLAIN.ops, name="mine")
    (tmp_path / "x.npz").write_bytes(exported(one, "npz", tmp_path))
    with np.load(tmp_path / "x.npz") as arrays:
        assert set(arrays) == {*(sw.OPS_DTYPE.names or ()), "meta"}
        for name in sw.OPS_DTYPE.names or ():
            assert np.array_equal(arrays[name], one.ops[name])
        assert json.loads(str(arrays["meta"])) == one.meta


@pytest.mark.parametrize("rows", [0, 1, 4000])
def test_parquet_has_the_operations(rows: int, tmp_path: Path, monkeypatch: Any) -> None:
    """In several row groups, the last of them not full, with the metadata."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(export, "PARQUET_ROWS", 1500)
    swt, path = tmp_path / "a.swt", tmp_path / "a.parquet"
    one = sw.Recording.from_ops(random_ops(5, 4000)[:rows], swt)
    one.export(path, "parquet")
    file = parquet.ParquetFile(path)
    assert file.metadata.num_row_groups == (rows + 1499) // 1500
    table = file.read()
    assert table.column_names == list(sw.OPS_DTYPE.names or ())
    for name in table.column_names:
        assert np.array_equal(table[name].to_numpy(), one.ops[name])
        assert str(table.schema.field(name).type) == str(sw.OPS_DTYPE[name])
    assert json.loads(table.schema.metadata[b"spanwise.meta"]) == [list(pair) for pair in one.meta]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.parquet", "a.swt"]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(sw.UnsupportedError, match="pip install 'spanwise"):
        PLAIN.export(tmp_path / "x", "parquet")
    assert list(tmp_path.iterdir()) == []


def needs(to: str) -> None:
    """Skip a format whose library is missing."""
    if to == "parquet":
        pytest.importorskip("pyarrow")


@pytest.mark.parametrize("to", FORMATS)
def test_an_empty_recording_and_one_without_sites(to: str, tmp_path: Path) -> None:
    needs(to)
    nothing = sw.Recording.from_ops(PLAIN.ops[:0], name="nothing")
    assert len(exported(nothing, to, tmp_path)) < len(exported(PLAIN, to, tmp_path))


# --- commands -------------------------------------------------------------------------------------


def test_what_export_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swt, cut = tmp_path / "a.swt", tmp_path / "cut.swt"
    sw.Recording.from_ops(random_ops(3, 2000), swt)
    cut.write_bytes(swt.read_bytes()[:-900])
    out = str(tmp_path / "x")
    for words, said in (
        ([str(cut), "--to", "pprof", "-o", out], "cut.swt"),
        ([str(swt), "--to", "pprof", "-o", str(swt)], "is a recording"),
        ([str(swt), "--to", "npz", "-o", "/proc/x"], "cannot be written"),
        ([str(swt), "--to", "collapsed", "-o", out, "--at", "99s"], "after its end"),
    ):
        assert main(["export", *words]) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.swt", "cut.swt"]
    with pytest.raises(sw.InvalidError, match="format 'svg': use one of pprof"):
        PLAIN.export(out, "svg")
    with pytest.raises(sw.InvalidError, match="value 'size': use one of alloc-objects"):
        PLAIN.export(out, "collapsed", value="size")
    assert main(["export", str(swt), "--to", "openmetrics", "-o", out, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output == {"file": out, "format": "openmetrics", "bytes": Path(out).stat().st_size}


def test_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the limit is kept, a byte above is not."""
    swt = str(tmp_path / "a.swt")
    one = sw.Recording.from_ops(random_ops(3, 900), swt)
    ledger = one.ledger("go")
    for field in ("resident", "held", "requested"):
        value = getattr(ledger, f"peak_{field}_bytes")
        for limit, status in ((value, 0), (value - 1, 1)):
            words = ["check", swt, "--table", "go", f"--max-{field}", str(limit)]
            assert main(words) == status
            said = capsys.readouterr().out
            assert said.startswith("ok: " if status == 0 else f"TOO MUCH: peak {field} ")
            assert f"({value:,} bytes)" in said
    early = one.ledger("go", "peak").held_bytes  # of one moment, less than of the whole run
    assert early < (ledger.peak_held_bytes or 0)
    assert main(["check", swt, "--table", "go", f"--max-held={early}", "--at", "peak"]) == 0
    assert "(a.swt at peak, table go)" in capsys.readouterr().out
    percent = 100 * ledger.waste_bytes / ledger.held_bytes
    for limit_percent, status in ((percent + 0.01, 0), (percent - 0.01, 1)):
        words = ["check", swt, "--table", "go", "--max-waste", f"{limit_percent}%", "--json"]
        assert main(words) == status
        assert json.loads(capsys.readouterr().out)["kept"] is (status == 0)
    fixed = sum(getattr(ledger, f"{part}_bytes") for part in ("metadata", "cached"))
    most = (ledger.peak_held_bytes or 0) - fixed
    for limit in (most, most - 1):
        words = ["check", swt, "--table", "go", f"--max-held={limit}", "--ignore-fixed", "--json"]
        assert main(words) == int(limit < most)
        assert json.loads(capsys.readouterr().out)["ledger"]["held_bytes"] == ledger.held_bytes
    assert main(["check", swt]) == 2
    assert "nothing to check" in capsys.readouterr().err
    for bad in ("101%", "much", "-1", "nan"):
        with pytest.raises(SystemExit):
            main(["check", swt, f"--max-waste={bad}"])
        assert "is not a percentage" in capsys.readouterr().err


def test_what_grew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: 10 objects of 100 bytes at site 1, then 50; one of 40,000 at site 2 in both."""
    paths = []
    for count in (10, 50):
        ops = make_ops(*((0, i, 100) for i in range(count)), (0, count, 40_000))
        paths.append(str(tmp_path / f"{count}.swt"))
        sw.Recording.from_ops(ops, paths[-1])
    assert main(["diff", *paths, "--table", "go", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    terms = {row["term"]: row["change"] for row in output["ledger"]}
    assert terms["requested_bytes"] == 4000 and terms["live_objects"] == 40
    assert terms["roundup_bytes"] == 40 * 12  # a slot of 112
    assert terms["large_rounding_bytes"] == 0
    assert output["classes"] == [
        {"size_bytes": 112, "before": 8192, "after": 8192, "change": 0, "waste_change": -4000}
    ]
    assert output["sites"] == [
        {
            **{"frames": [], "names": [], "full_names": [], "through": ""},
            **{"before": 41_000, "after": 45_000, "change": 4000, "waste_change": -4000},
        }
    ]
    assert main(["diff", *paths, "--table", "go"]) == 0
    said = capsys.readouterr().out
    assert "from 10.swt to 50.swt, at peak-resident, table go" in said and "+4,000" in said
    assert main(["diff", paths[0], paths[0], "--json"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert same["classes"] == same["sites"] == [] and not any(r["change"] for r in same["ledger"])
