# SPDX-License-Identifier: Apache-2.0
"""Recordings of the calls that mtrace and heaptrack write: by hand, real, cut and wrong."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import spanwise as sw

from tests.python.helpers import ROOT
from tests.python.recordings.converted import made, refused, rows

ALLOC, FREE, REALLOC = range(3)
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
PROGRAM = r"""
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
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc on this machine")
    source = tmp_path_factory.mktemp("calls") / "calls.c"
    source.write_text(PROGRAM)
    made = source.with_suffix("")
    subprocess.run(["gcc", "-O0", "-o", made, source], check=True, cwd=ROOT)
    return made


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
