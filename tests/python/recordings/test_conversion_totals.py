# SPDX-License-Identifier: Apache-2.0
"""Each importer preserves the file's totals, which an independent reader computes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.recordings.conversion import FORMS

from tests.python.helpers import ROOT
from tests.python.recordings import independent

DATA = ROOT / "tests" / "data" / "profiles"


def totals(path: Path, content: bytes) -> tuple[int, int]:
    """Bytes allocated, and bytes that live at the end, of a recording of calls."""
    path.write_bytes(content)
    summary = sw.convert(path).summary
    return summary.allocated_bytes + summary.reallocated_bytes, summary.end_requested_bytes


def with_remainder(one: sw.Recording) -> int:
    """Return the bytes of a snapshot's objects, and the difference that its remark reports."""
    found = re.search(r"which is ([\d,]+) B (less|more) than the file's", one.remark)
    if found is None:
        return one.summary.allocated_bytes
    apart = int(found[1].replace(",", ""))
    return one.summary.allocated_bytes + (apart if found[2] == "less" else -apart)


# --- calls --------------------------------------------------------------------------------------


def calls(seed: int, count: int = 3000) -> Iterator[tuple[str, int, int]]:
    """Random calls: a word, an address and a size; a free and a realloc are of a live address."""
    rng = random.Random(seed)
    live: list[int] = []
    for i in range(count):
        word = rng.choice(["malloc", "malloc", "realloc", "free"]) if live else "malloc"
        address = 0x1000 + 16 * i
        if word == "malloc":
            live.append(address)
            yield word, address, rng.randrange(5000)
        elif word == "free":
            yield word, live.pop(rng.randrange(len(live))), 0
        else:
            place = rng.randrange(len(live))
            yield word, live[place], rng.randrange(1, 90_000)


def test_mtrace(tmp_path: Path) -> None:
    lines = ["= Start"]
    for word, address, size in calls(1):
        match word:
            case "malloc":
                lines.append(f"@ ./a:[0x11] + {address:#x} {size:#x}")
            case "free":
                lines.append(f"@ ./a:(f+0x2)[0x12] - {address:#x}")
            case _:
                lines += [f"@ ./a:[0x13] < {address:#x}", f"@ ./a:[0x13] > {address:#x} {size:#x}"]
    text = "\n".join(lines) + "\n"
    assert totals(tmp_path / "m", text.encode()) == independent.mtrace(text)


def test_memory_replay(tmp_path: Path) -> None:
    lines = []
    for i, (word, address, size) in enumerate(calls(2)):
        match word:
            case "malloc" if i % 3 == 0:
                lines.append(f"{i % 5}: calloc {address:#x} 3 {size}")
            case "malloc" if i % 3 == 1:
                lines.append(f"{i % 5}: memalign {address:#x} 64 {size}")
            case "malloc":
                lines.append(f"{i % 5}: malloc {address:#x} {size}")
            case "free":
                lines.append(f"{i % 5}: free {address:#x}")
            case _:
                lines.append(f"{i % 5}: realloc {address:#x} {address:#x} {size}")
    text = "\n".join(lines) + "\n"
    assert totals(tmp_path / "m", text.encode()) == independent.memory_replay(text)


def test_heaptrack_raw(tmp_path: Path) -> None:
    lines = ["v 10400 3"]
    for i, (word, address, size) in enumerate(calls(3)):
        if word != "malloc":
            lines.append(f"- {address:x}")
        if word != "free":
            lines.append(f"+ {size:x} {i % 7:x} {address:x}")
        if i % 100 == 0:
            lines.append(f"c {i:x}")
    text = "\n".join(lines) + "\n"
    assert totals(tmp_path / "h", text.encode()) == independent.heaptrack(text)


def test_heaptrack_of_pairs(tmp_path: Path) -> None:
    lines, pairs = ["v 10400 3"], 0
    of: dict[int, int] = {}
    for word, address, size in calls(4):
        if word != "malloc":
            lines.append(f"- {of.pop(address):x}")
        if word != "free":
            if pairs < 20:
                lines.append(f"a {size:x} {pairs:x}")
                pairs += 1
            of[address] = size % pairs
            lines.append(f"+ {size % pairs:x}")
    text = "\n".join(lines) + "\n"
    assert totals(tmp_path / "h", text.encode()) == independent.heaptrack(text)


# --- snapshots ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["go.pb.gz", "go-delta.pb.gz"])
def test_pprof(name: str) -> None:
    """What Go wrote; the difference has no inuse."""
    allocated, in_use = independent.pprof((DATA / name).read_bytes())
    assert with_remainder(sw.convert(DATA / name, value="alloc")) == allocated > 10_000_000
    if "delta" not in name:
        assert with_remainder(sw.convert(DATA / name)) == in_use > 200_000_000


def test_a_profile_without_labels(tmp_path: Path) -> None:
    """The sums are exact, for any sizes."""
    rng = random.Random(8)
    rows = [rng.randrange(100_000) for _ in range(500)]
    content = b"".join(
        b"\x12" + bytes([len(body)]) + body for body in (_sample(size) for size in rows)
    )
    names = ["", "objects", "count", "space", "bytes"]
    types = b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04"
    strings = b"".join(b"\x32" + bytes([len(name)]) + name.encode() for name in names)
    path = tmp_path / "x.pb"
    path.write_bytes(types + content + strings)
    one = sw.convert(path)
    assert "whole objects" not in one.remark
    assert one.summary.allocated_bytes == independent.pprof(path.read_bytes())[1] == sum(rows)


def _sample(size: int) -> bytes:
    """A sample of seven objects."""
    number = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    return b"\x10\x07\x10" + number


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("go.txt", ("inuse", "alloc")),
        ("gperftools.heap", ("inuse", "alloc")),
        ("growth.heap", ("inuse",)),
        ("jemalloc.heap", ("inuse", "alloc")),
    ],
)
def test_heap_texts(name: str, values: tuple[str, ...]) -> None:
    """What Go, gperftools and jemalloc wrote."""
    allocated, in_use = independent.heap_text((DATA / name).read_text(encoding="utf-8"))
    for value in values:
        wanted = in_use if value == "inuse" else allocated
        assert with_remainder(sw.convert(DATA / name, value=value)) == wanted > 9_000_000


def test_go_writes_the_same_as_text() -> None:
    """Both files are of one moment, so that sizes and sites are the same, but for addresses."""
    binary, text = sw.convert(DATA / "go.pb.gz"), sw.convert(DATA / "go.txt")
    assert binary.histogram().tolist() == text.histogram().tolist()
    found = [
        {site.names: site.allocs for site in one.sites.named() if "main.main" in str(site.names)}
        for one in (binary, text)
    ]
    assert found[0] == found[1] and len(found[0]) >= 3


def test_jemalloc(tmp_path: Path) -> None:
    """Random statistics, of arenas that are added up."""
    rng = random.Random(6)
    sizes = [16 * i for i in range(1, 30)], [16384 * i for i in range(1, 9)]
    arenas: dict[str, Any] = {}
    for number in range(3):
        bins = [{"curregs": rng.randrange(50), "nrequests": rng.randrange(99)} for _ in sizes[0]]
        extents = [{"curlextents": rng.randrange(5)} for _ in sizes[1]]
        live = sum(one["curlextents"] for one in extents)
        arenas[str(number)] = {"large": {"nmalloc": live}, "bins": bins, "lextents": extents}
    classes = {"bin": [{"size": s} for s in sizes[0]], "lextent": [{"size": s} for s in sizes[1]]}
    text = json.dumps({"jemalloc": {"arenas": classes, "stats.arenas": arenas}})
    path = tmp_path / "j.json"
    path.write_text(text)
    requested, live = independent.jemalloc_json(text)
    assert sw.convert(path).summary.allocated_bytes == live
    small = sw.convert(path, value="alloc")
    large = sum(
        16384 * i * one["curlextents"]
        for arena in arenas.values()
        for i, one in enumerate(arena["lextents"], 1)
    )
    assert small.summary.allocated_bytes == requested + large


def test_every_importer_has_a_test_here() -> None:
    """A new importer is not complete without one."""
    assert set(FORMS) == {
        *("heaptrack", "heap-text", "pprof", "jemalloc", "memory-replay", "mtrace"),
        "go-trace",  # test_import_go
    }
