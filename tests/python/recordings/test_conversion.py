# SPDX-License-Identifier: Apache-2.0
"""Recordings from other tools' files: by hand, real, truncated and invalid."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.recordings.converted import refused, rows, sizes
from tests.python.recordings.profile_writer import profile, sample

JEMALLOC = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")


# --- pprof ----------------------------------------------------------------------------------------


def test_a_heap_profile_by_hand(tmp_path: Path) -> None:
    """Three objects of 48 bytes by their label, four that share 101 bytes, none of the last."""
    path = tmp_path / "heap.pb.gz"
    body = profile(sample(3, 150, label=48), sample(4, 101, packed=False), sample(0, 0))
    for content in (body, gzip.compress(body)):
        path.write_bytes(content)
        one = sw.convert(path)
        assert sizes(one) == {25: 3, 26: 1, 48: 3}
        assert one.summary.end_live_objects == 7 and one.summary.peak_op == 7
        assert one.program == "heap.pb.gz"
        assert "estimates from samples" in one.remark and "no frees" in one.remark
        assert one.ledger("go").remark == one.remark
    four = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
    path.write_bytes(profile(sample(10, 1000, 2, 200), types=four))
    assert sizes(sw.convert(path)) == {100: 2}
    made = sw.convert(path, value="alloc")
    assert sizes(made) == {100: 10} and made.summary.end_live_objects == 0
    assert made.summary.peak_requested_bytes == 100


def test_our_own_profile_comes_back(tmp_path: Path) -> None:
    """What lives, by the mean size of each site: here each site has one size."""
    ops = np.zeros(300, sw.OPS_DTYPE)
    ops["object"] = np.arange(300)
    ops["site"] = 1 + np.arange(300) % 3
    ops["size"] = np.array([100, 33, 5000])[ops["site"] - 1]
    path = tmp_path / "x.pb.gz"
    for site in (1, 2, 3):  # without frames all sites are one stack, so one profile each
        part = ops[ops["site"] == site].copy()
        part["object"] = np.arange(100)
        sw.Recording.from_ops(part).export(path, "pprof", "go", "end")
        assert sizes(sw.convert(path)) == {int(part["size"][0]): 100}


def test_profiles_that_are_cut_damaged_or_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "heap.pb"
    body = profile(*(sample(3, 150, label=48) for _ in range(20)))
    path.write_bytes(gzip.compress(body)[:-12])
    assert "gzip stream is truncated or damaged" in refused(path)
    path.write_bytes(body[:-3])
    assert "is cut short" in refused(path)
    path.write_bytes(profile(sample(3, 150, 9)))
    assert "a sample has 3 values, and 2 are declared" in refused(path)
    path.write_bytes(profile(sample(1, 10**6), types=("samples", "cpu")))
    assert "not a heap profile with inuse_objects and inuse_space; it has samples, cpu" in refused(
        path
    )
    path.write_bytes(profile(sample((1 << 64) - 1, 100)))
    assert "is the difference of two profiles (a sample has -1), not a heap" in refused(path)
    path.write_bytes(profile(sample(1, 100, label=(1 << 64) - 48)))
    assert "objects of a sample have -48 B" in refused(path)
    path.write_bytes(profile())
    assert "has no object of inuse" in refused(path)
    rng = random.Random(5)
    for _ in range(150):  # one byte at a time: an answer, or one of our errors
        damaged = bytearray(body)
        damaged[rng.randrange(len(body))] = rng.randrange(256)
        path.write_bytes(damaged)
        with suppress(sw.TraceFormatError, sw.InvalidError):
            sw.convert(path, form="pprof", most_objects=1000)


def test_more_objects_than_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "heap.pb"
    path.write_bytes(profile(sample(3_000_000, 300_000_000), sample(1_000_000, 32_000_000)))
    one = sw.convert(path, most_objects=4000)
    assert sizes(one) == {32: 1000, 100: 3000}
    assert one.remark.endswith("one object stands for 1,000")
    for wrong in (0, -1, 10**9):
        with pytest.raises(sw.InvalidError, match="most_objects"):
            sw.convert(path, most_objects=wrong)


# --- jemalloc -------------------------------------------------------------------------------------


def statistics(**arenas: object) -> str:
    classes = {"bin": [{"size": 8}, {"size": 16}], "lextent": [{"size": 16384}, {"size": 20480}]}
    return json.dumps({"jemalloc": {"arenas": classes, "stats.arenas": arenas}})


def arena(
    *live: int,
    requests: tuple[int, int] = (9, 9),
    large: tuple[int, ...] = (0, 0),
    nmalloc: int = 0,
    nrequests: int = 0,
) -> dict[str, object]:
    bins = [{"curregs": n, "nrequests": asked} for n, asked in zip(live, requests, strict=True)]
    return {
        "large": {"nmalloc": nmalloc, "nrequests": nrequests},
        "bins": bins,
        "lextents": [{"curlextents": count} for count in large],
    }


def test_statistics_of_jemalloc_by_hand(tmp_path: Path) -> None:
    """Arenas are added up, unless their sum is there; what was printed before does not matter."""
    path = tmp_path / "stats.json"
    path.write_text(
        "{1} hello\n" + statistics(**{"0": arena(2, 3), "1": arena(1, 0, large=(2, 0))})
    )
    one = sw.convert(path)
    assert sizes(one) == {8: 3, 16: 3, 16384: 2}
    assert "its classes, not requested sizes" in one.remark
    path.write_text(statistics(merged=arena(5, 0, requests=(7, 4)), **{"0": arena(1, 1)}))
    assert sizes(sw.convert(path)) == {8: 5}
    assert sizes(sw.convert(path, value="alloc")) == {8: 7, 16: 4}


def test_large_allocations_of_jemalloc(tmp_path: Path) -> None:
    """Of 1,010 only ten live, three in one class and seven in the other: the rest is shared out."""
    path = tmp_path / "stats.json"
    few = arena(0, 0, requests=(0, 0), large=(1, 4), nmalloc=500, nrequests=400)
    many = arena(0, 0, requests=(0, 0), large=(2, 3), nmalloc=10, nrequests=510)
    path.write_text(statistics(**{"0": few, "1": many}))
    assert sizes(sw.convert(path)) == {16384: 3, 20480: 7}
    one = sw.convert(path, value="alloc")
    assert sizes(one) == {16384: 303, 20480: 707} and one.summary.allocs == 1010
    assert "1,000 of its 1,010 large allocations were freed, and are taken to have" in one.remark
    gone = arena(0, 0, requests=(2, 0), nmalloc=1000)
    path.write_text(statistics(merged=gone))
    one = sw.convert(path, value="alloc")
    assert sizes(one) == {8: 2}
    assert "1,000 of its 1,000 large allocations are left out" in one.remark


def test_the_last_of_several_dumps_of_jemalloc(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, last = statistics(merged=arena(1, 0)), statistics(merged=arena(0, 5))
    path.write_text(f"begin\n{first}\nwork\n{last}\nend\n")
    one = sw.convert(path)
    assert sizes(one) == {16: 5} and "it is the last of 2 dumps in the file" in one.remark
    path.write_text(f"{first}\n{last[:-30]}")
    said = refused(path)
    assert "the last of 2 dumps in the file may be cut" in said
    assert int(said.split("byte ")[1].split(":")[0]) > len(first)


def test_statistics_that_are_cut_or_lack_parts(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    whole = statistics(merged=arena(5, 1))
    path.write_text(whole[:-20])
    assert "it may be cut" in refused(path)
    for wrong in ('{"jemalloc": {}}', '{"jemalloc": 3}', statistics(), whole.replace("bins", "x")):
        path.write_text(wrong)
        assert "jemalloc" in refused(path)
    path.write_text(whole.replace('"curregs": 5', '"curregs": -5'))
    assert "impossible" in refused(path)
    path.write_text('{"some": "json"}')
    assert "is not a heap profile of pprof, JSON of jemalloc's statistics" in refused(path)
    assert "is not JSON of jemalloc's statistics" in refused(path, form="jemalloc")


@pytest.mark.skipif(not JEMALLOC.is_file(), reason="jemalloc is not installed")
def test_statistics_that_jemalloc_prints(tmp_path: Path) -> None:
    """Objects that a program keeps are among them; a table can be fitted to them."""
    text = "import ctypes; m = ctypes.CDLL(None).malloc; [m(3000) for _ in range(500)]"
    env = {
        **os.environ,
        "LD_PRELOAD": str(JEMALLOC),
        "MALLOC_CONF": "stats_print:true,stats_print_opts:J",
    }
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, env=env, check=True)
    path = tmp_path / "stats.json"
    path.write_bytes(done.stderr)
    one = sw.convert(path)
    assert sizes(one)[3072] >= 500
    found = sw.optimize(one, 32, objective="peak")
    assert (found.table.classes["size_bytes"] == 3072).any()


# --- memory_replay --------------------------------------------------------------------------------

TRACE = """\
100: malloc 0x1000 20
100: calloc 0x2000 4 25
101: memalign 0x3000 64 300
101: free 0x1000
100: realloc 0x4000 0x2000 500
101: realloc 0x5000 0x0 7
101: free 0x999
101: thread_done 0x0
100: realloc 0x6000 0x888 8
100: malloc 0x6000 9
101: malloc 0x0 9
101: malloc 0x7000 1
"""
ALLOC, FREE, REALLOC, END = range(4)


def test_a_trace_of_memory_replay_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "app.txt"
    path.write_text(TRACE)
    one = sw.convert(path)
    assert rows(one) == [
        (0, ALLOC, 0, 20, 0),
        (1000, ALLOC, 1, 100, 0),
        (2000, ALLOC, 2, 300, 1),
        (3000, FREE, 0, 0, 1),
        (4000, REALLOC, 1, 500, 0),
        (5000, ALLOC, 0, 7, 1),
        # 6000: free of an address that nobody has
        (7000, END, 0, 0, 1),
        (8000, ALLOC, 3, 8, 0),  # realloc of an address that nobody has
        (9000, FREE, 3, 0, 0),  # it is given out again
        (9000, ALLOC, 3, 9, 0),
        # 10000: a call that failed
        (11000, ALLOC, 4, 1, 2),  # 101 is another thread now
    ]
    assert one.remark == "" and one.ops["align_log2"][2] == 6
    assert one.ops["flags"].tolist() == [0, 1, *[0] * 9]
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("app.txt", TRACE)
    assert rows(sw.convert(tmp_path / "app.zip")) == rows(one)


def test_traces_that_are_cut_or_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for text, said in (
        (TRACE[:-3], "line 12 is cut short: '101: malloc 0x7000'"),
        ("1: malloc 0x10 8\nhello\n", "line 2 is not a call: 'hello'"),
        ("1: malloc 0x10\n", "line 1: malloc has 0 numbers"),
        ("1: malloc 0x10 8 500\n", "line 1: malloc has 2 numbers"),
        ("1: malloc 0x10 -8\n", "line 1: a number is negative"),
        ("1: malloc 0x10 8x\n", "line 1: "),
        ("1: calloc 0x10 9999999999 9999999999\n", "line 1: size 9999999998"),
        ("1: memalign 0x10 24 8\n", "line 1: alignment 24 is not a power of two"),
    ):
        path.write_text(text)
        assert said in refused(path), text
    path.write_text("\n\n")
    assert "has no call" in refused(path, form="memory-replay")
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("a.txt", TRACE)
        made.writestr("b.txt", TRACE)
    assert "has 2 files" in refused(archive)
    archive.write_bytes(archive.read_bytes()[:200])
    assert "truncated or damaged" in refused(archive)


def test_a_conversion_that_is_cut_short_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    path, out = tmp_path / "app.txt", tmp_path / "app.swt"
    path.write_text(TRACE)
    with pytest.raises(KeyboardInterrupt):
        sw.convert(path, out, progress=stop)
    assert [found.name for found in tmp_path.iterdir()] == ["app.txt"]
    sw.convert(path, out, progress=True)  # of an unknown number
    assert "convert app.txt" in capsys.readouterr().err


# --- the command ----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "app.txt", str(tmp_path / "app.swt")
    path.write_text(TRACE)
    assert main(["convert", str(path), "-o", out]) == 0
    assert capsys.readouterr().out == f"{out}: 10 events, peak 817 B\n"
    assert main(["convert", str(path), "-o", out]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["convert", str(path), "-o", out, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["allocs"] == 7
    for words, said in (
        ([str(tmp_path / "none"), "-o", str(tmp_path / "b.swt")], "none: No such file"),
        ([str(path), "-o", str(tmp_path / "no/b.swt")], "cannot be written"),
        ([str(path), "-o", str(tmp_path / "b.swt"), "--from", "pprof"], "app.txt: byte"),
    ):
        assert main(["convert", *words]) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""
    with pytest.raises(
        sw.InvalidError, match="form 'massif': use one of heaptrack, heap-text, pprof"
    ):
        sw.convert(path, form="massif")
    with pytest.raises(sw.InvalidError, match="value 'peak': use one of inuse, alloc"):
        sw.convert(path, value="peak")
