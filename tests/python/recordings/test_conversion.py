# SPDX-License-Identifier: Apache-2.0
"""Recordings from other tools' files and calls: by hand, real, truncated and invalid."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.helpers import compiled
from tests.python.recordings.import_tools import made, profile, refused, rows, sample, sizes

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


# --- calls that mtrace and heaptrack write --------------------------------------------------------


MTRACE = """= Start
@ ./t:[0x11ed] + 0xa0 0x64
@ ./a program:(main+0x1d)[0x1200] + 0xb0 0x96
@ ./t:[0x1215] < 0xa0
@ ./t:[0x1215] > 0xc0 0xc8
- 0xb0
+ 0xd0 0
@ ./t:[0x1] - 0x999
@ ./t:[0x1] ! 0xc0 0x1000000000000000
+ (nil) 0x7
@ ./t:[0x1] - 0xc0
= End
"""
RAW = """v 10400 3
x a /tmp/t
X ./t
I 1000 5e298f
m 3 /tmp/t 0 0
t 1189 0
+ 64 1 559682ce21d0
c 9
+ 0 2 559682ce2300
- 559682ce21d0
- 559682ce21d0
c a
+ c8 1 559682ce21d0
R 3e9
"""
PAIRS = """v 10400 3
X ./t
s 4 main
t 1 0
a 64 1
+ 0
a 64 2
c 9
+ 1
+ 0
- 0
c a
+ 0
- 1
- 1
# strings: 34
"""
CALLS = r"""
#include <mcheck.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) mtrace();
    char *volatile kept[64];
    for (size_t i = 0; i < 64; i++) kept[i] = malloc(1000 + i);
    for (size_t i = 0; i < 64; i += 2) free(kept[i]);
    kept[1] = realloc(kept[1], 70000);
    kept[0] = calloc(3, 1100);
    return kept[0] == NULL;
}
"""


def test_a_file_of_mtrace_by_hand(tmp_path: Path) -> None:
    one = made(tmp_path / "m.txt", MTRACE)
    assert rows(one) == [
        (0, ALLOC, 0, 100, 0),
        (1000, ALLOC, 1, 150, 0),
        (2000, REALLOC, 0, 200, 0),
        (3000, FREE, 1, 0, 0),
        (4000, ALLOC, 1, 0, 0),  # the number of an object that is freed is used again
        # 5000, 6000, 7000: a free of an address that nobody has, and calls that failed
        (8000, FREE, 0, 0, 0),
    ]
    assert one.remark == "made from a file of mtrace: times, threads and alignments are not known"
    assert one.ledger("go").remark == one.remark


def test_a_raw_file_of_heaptrack_by_hand(tmp_path: Path) -> None:
    one = made(tmp_path / "h", RAW)
    assert rows(one) == [
        (0, ALLOC, 0, 100, 0),
        (9_000_000, ALLOC, 1, 0, 0),
        (9_000_000, FREE, 0, 0, 0),  # and the second free is of an address that nobody has
        (10_000_000, ALLOC, 0, 200, 0),
    ]
    assert "youngest" not in one.remark and "free and an allocation" in one.remark
    assert rows(made(tmp_path / "h.gz", gzip.compress(RAW.encode()))) == rows(one)


def test_a_file_of_heaptrack_by_hand(tmp_path: Path) -> None:
    """Objects 0 and 2 are of the first pair: the younger is freed, and its number used again."""
    one = made(tmp_path / "h", PAIRS)
    assert rows(one) == [
        (0, ALLOC, 0, 100, 0),
        (9_000_000, ALLOC, 1, 100, 0),
        (9_000_000, ALLOC, 2, 100, 0),
        (9_000_000, FREE, 2, 0, 0),
        (10_000_000, ALLOC, 2, 100, 0),
        (10_000_000, FREE, 1, 0, 0),
    ]
    assert "youngest such object" in one.remark


@pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd on this machine")
def test_a_file_that_zstd_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = subprocess.run(
        ["zstd", "-cq"], input=PAIRS.encode(), capture_output=True, check=True
    ).stdout
    path = tmp_path / "h.zst"
    assert len(made(path, packed)) == 6
    path.write_bytes(packed[:-9])
    with pytest.raises(sw.TraceFormatError, match=r"h\.zst: byte \d+: its zstd stream is trunc"):
        sw.convert(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sw.UnsupportedError, match="install the program zstd, or decompress it"):
        sw.convert(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MTRACE[:-20], "line 11 is cut short: '@ ./t"),
        ("= Start\nhello\n", "line 2 is not a call: 'hello'"),
        ("= Start\n+ 0x10\n", "line 2: + has no size"),
        ("= Start\n- 0x10 0x20\n", "line 2: - has a size"),
        ("= Start\n< 0x10\n- 0x10\n", "line 3: a realloc is a line with <"),
        ("= Start\n> 0x10 0x20\n", "line 2: a realloc is a line with <"),
        ("= Start\n+ 0x10 0xffffffffffffffff\n", "line 2: size 18446744073709551615 is too"),
        ("= Start\n+ 0x10 -8\n", "line 2 is not a call"),
        ("= Start\n= End\n", "has no call; nothing to make"),
        (RAW[:-18], "line 13 is cut short: '+ c8 1 5'"),
        ("v 10400 3\n+ 64 1\n", "line 2: + has 2 numbers"),
        ("v 10400 3\n+ 64 1 zz\n", "line 2 is not a call"),
        ("v 10400 3\na 64 1\n+ 1\n", "line 3: pair 1 is not defined yet"),
        ("v 10400 3\na 64 1\n+ 0 1 2\n", "line 3: + has 3 numbers"),
        ("v 10400 3\na ffffffffffffffff 1\n", "line 2: size 18446744073709551615 is too"),
        ("v 10400 3\nX ./t\n", "has no call; nothing to make"),
        (gzip.compress(RAW.encode())[:-12], "its gzip stream is truncated or damaged"),
    ],
)
def test_what_is_cut_or_wrong(text: str | bytes, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path / "x", text)


def test_another_file_is_none_of_heaptrack(tmp_path: Path) -> None:
    with pytest.raises(sw.InvalidError, match="its first line is not a version"):
        made(tmp_path / "m.txt", MTRACE, form="heaptrack")


# --- what the tools themselves write ------------------------------------------------------------


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("calls"), CALLS)


def large(one: sw.Recording) -> dict[int, int]:
    """How many allocations there are of each size above 999 and below 2000."""
    found = one.histogram()
    pairs = zip(found["size_bytes"].tolist(), found["count"].tolist(), strict=True)
    return {size: count for size, count in pairs if 999 < size < 2000}


def test_what_mtrace_writes(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    env = {**os.environ, "MALLOC_TRACE": str(path), "LD_PRELOAD": "libc_malloc_debug.so.0"}
    subprocess.run([program, "1"], env=env, check=True, capture_output=True, timeout=120)
    if not path.is_file():
        pytest.skip("this C library has no mtrace")
    one = sw.convert(path)
    assert large(one) == dict.fromkeys(range(1000, 1064), 1)
    kinds = one.ops["kind"].tolist()
    assert kinds.count(REALLOC) == 1 and kinds.count(FREE) == 32
    assert one.summary.end_requested_bytes == sum(range(1003, 1064, 2)) + 70000 + 3300


@pytest.mark.skipif(shutil.which("heaptrack") is None, reason="there is no heaptrack here")
@pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd on this machine")
def test_what_heaptrack_writes(program: Path, tmp_path: Path) -> None:
    """Raw or not: the same sizes, and the same objects are left at the end."""
    found = []
    for words in (["--raw"], []):
        command = ["heaptrack", *words, "-o", str(tmp_path / f"h{len(words)}"), str(program)]
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=tmp_path)
        (written,) = tmp_path.glob(f"h{len(words)}*")
        one = sw.convert(written)
        assert large(one) == dict.fromkeys(range(1000, 1064), 1)
        found.append(one.summary.end_requested_bytes)
    assert found[0] == found[1] >= sum(range(1003, 1064, 2)) + 70000 + 3300
