# SPDX-License-Identifier: Apache-2.0
"""Heap profiles as text, of Go, gperftools, TCMalloc and jemalloc: by hand, real, cut and wrong."""

from __future__ import annotations

import gzip
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.helpers import ROOT
from tests.python.recordings.converted import made, refused, sizes

DATA = ROOT / "tests" / "data" / "profiles"
JEMALLOC = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")

GO = """\
heap profile: 3: 3000 [5: 6500] @ heap/2048
2: 2000 [4: 5500] @ 0x401000 0x402000 0x403000
#\t0x400fff\tmain.(*T).f+0x10\t\t/src/app/a.go:5
#\t0x401fff\tmain.main+0x20\t\t/src/app/a.go:9

1: 1000 [1: 1000] @ 0x404000
#\t0x403fff

0: 0 [0: 0] @ 0x404000

# runtime.MemStats
# Alloc = 3000
"""
EVERY = """\
heap profile:     5:      703 [     9:     1500] @ heapprofile
     3:      301 [     7:     1098] @ 0x401010 0x402020
     2:      402 [     2:      402] @ 0x7f0000001010
     0:  1048576 [     0:  1048576] @ 0x402020

MAPPED_LIBRARIES:
00400000-00500000 r-xp 00001000 00:00 9986051     /no/such program
7f0000000000-7f0000002000 r-xp 00003000 fe:00 12 /no/lib.so.1
7f0000002000-7f0000003000 rw-p 00000000 00:00 0           [heap]
"""
THREADED = """\
heap_v2/1024
  t*: 99: 99999 [0: 0]
  t1: 99: 99999 [0: 0] main thread
@ 0x401010 0x402020
  t*: 2: 1001 [4: 2002]
  t1: 1: 500 [2: 1000]
  t2: 1: 501 [2: 1002]
@ 0x402020
  t*: 1: 4096 [1: 4096]
  t2: 1: 4096 [1: 4096]

MAPPED_LIBRARIES:
00400000-00500000 r-xp 00001000 00:00 9986051     /no/such
"""


def frames(one: sw.Recording) -> dict[tuple[str, ...], int]:
    return {site.frames: site.allocs for site in one.sites}


def scale(size: float, rate: int) -> float:
    """Return the number of allocations of a size that one sample represents."""
    return 1 / (1 - math.exp(-size / rate))


# --- by hand ------------------------------------------------------------------------------------


def test_go_by_hand(tmp_path: Path) -> None:
    """Three samples of 1000 B, one per 1024 B: 4.8 objects, of which 3.2 are of the first stack."""
    one = made(tmp_path / "heap.txt", GO)
    assert scale(1000, 1024) == pytest.approx(1.6042, abs=1e-4)
    assert sizes(one) == {1000: 5}
    named = ("profile: main.(*T).f (/src/app/a.go:5)", "profile: main.main (/src/app/a.go:9)")
    assert frames(one) == {named: 3, ("0x404000",): 2}
    assert "one per 1,024 B on average, scaled as pprof does" in one.remark
    assert "whole objects have 5,000 B, which is 188 B more than the file's" in one.remark
    # [4: 5500] is two objects of 1375 B, and one of 1000.
    every = made(tmp_path / "heap.txt", GO, value="alloc")
    wanted = round(4 * scale(1375, 1024)), round(scale(1000, 1024))
    assert sizes(every) == {1375: wanted[0], 1000: wanted[1]}


def test_gperftools_by_hand(tmp_path: Path) -> None:
    """All allocations are counted; 301 bytes are objects of 100, 100 and 101."""
    one = made(tmp_path / "a.heap", EVERY)
    assert sizes(one) == {100: 2, 101: 1, 201: 2, 1 << 20: 1}
    assert one.summary.allocated_bytes == 301 + 402 + (1 << 20)
    assert frames(one) == {
        ("/no/such program+0x2010", "/no/such program+0x3020"): 3,  # 0x401010 - 0x400000 + 0x1000
        ("/no/lib.so.1+0x4010",): 2,
        ("/no/such program+0x3020",): 1,
    }
    assert "estimates" not in one.remark
    assert "1,048,576 B of it have no count of objects" in one.remark
    every = made(tmp_path / "a.heap", EVERY, value="alloc")
    assert sizes(every) == {156: 1, 157: 6, 201: 2, 1 << 20: 1}
    assert every.ops["kind"].tolist() == [0, 1] * 10


@pytest.mark.parametrize("kind", ["heap_v2", "heapz_v2"])
def test_samples_of_tcmalloc_by_hand(kind: str, tmp_path: Path) -> None:
    text = (
        f"heap profile:      1:     4096 [     1:     4096] @ {kind}/4096\n"
        "     1:     4096 [     1:     4096] @ 0x401010\n\nMAPPED_LIBRARIES:\n"
    )
    one = made(tmp_path / "a.heap", text)
    assert sizes(one) == {4096: 2}  # 1 / (1 - 1/e) = 1.58
    assert "whole objects have 8,192 B, which is 1,713 B more" in one.remark
    said = refused(tmp_path / "a.heap", text, value="alloc")
    assert "counts only what is in use" in said


def test_jemalloc_by_hand(tmp_path: Path) -> None:
    """Counts of threads and of the header are not added; sizes are the samples' own."""
    one = made(tmp_path / "j.heap", THREADED)
    mean = scale(500.5, 1024)
    assert mean == pytest.approx(2.587, abs=1e-3)
    assert sizes(one) == {500: round(mean), 501: round(mean), 4096: 1}
    assert frames(one) == {("/no/such+0x2010", "/no/such+0x3020"): 6, ("/no/such+0x3020",): 1}
    every = made(tmp_path / "j.heap", THREADED, value="alloc")
    assert sizes(every) == {500: round(2 * mean), 501: round(2 * mean), 4096: 1}
    assert "it may be cut" not in one.remark
    cut = made(tmp_path / "j.heap", THREADED.partition("\nMAPPED")[0])
    assert "it has no list of libraries, so it may be cut" in cut.remark


def test_a_rate_of_one_or_none_is_not_scaled(tmp_path: Path) -> None:
    for rate in ("heap/2", "heap_v2/1", "heap_v2", "heapprofile/4096"):
        text = f"heap profile: 3: 30 [3: 30] @ {rate}\n3: 30 [3: 30] @ 0x1\n\nMAPPED_LIBRARIES:\n"
        one = made(tmp_path / "a", text)
        assert sizes(one) == {10: 3} and "samples" not in one.remark


def test_two_sizes_of_a_stack_have_their_shares_of_bytes(tmp_path: Path) -> None:
    """Objects of 1 B and 2 B in one stack: 33 B are eleven of each."""
    assert int(3 * scale(1.5, 16)) == 33
    text = "heap_v2/16\n@ 0x1\n  t*: 2: 3 [0: 0]\n\nMAPPED_LIBRARIES:\n"
    assert sizes(made(tmp_path / "a", text)) == {1: 11, 2: 11}


def test_growth() -> None:
    one = sw.convert(DATA / "growth.heap")
    assert sizes(one) == {1 << 20: 9}
    assert "regions that the allocator took from the system" in one.remark


def test_a_text_that_is_packed(tmp_path: Path) -> None:
    path = tmp_path / "j.heap.gz"
    path.write_bytes(gzip.compress(THREADED.encode()))
    assert sizes(sw.convert(path)) == sizes(made(tmp_path / "j", THREADED))


def test_frames_of_the_allocator_are_left_out(tmp_path: Path) -> None:
    """In them all stacks end; a stack that has no other keeps them."""
    text = (
        "heap profile: 2: 20 [2: 20] @ heapprofile\n"
        "1: 10 [1: 10] @ 0x7f0000000010 0x7f0000000020 0x401010\n"
        "1: 10 [1: 10] @ 0x7f0000000010\n\nMAPPED_LIBRARIES:\n"
        "00400000-00500000 r-xp 00000000 00:00 1 /no/such\n"
        "7f0000000000-7f0000002000 r-xp 00000000 00:00 2 /no/lib/libjemalloc.so.2\n"
    )
    one = made(tmp_path / "a", text)
    assert set(frames(one)) == {("/no/such+0x1010",), ("/no/lib/libjemalloc.so.2+0x10",)}


# --- what is real -------------------------------------------------------------------------------


def test_what_go_wrote() -> None:
    one = sw.convert(DATA / "go.txt")
    first = one.sites.named()[0]
    assert first.names[:2] == ("main.medium (go/main.go:19)", "main.main (go/main.go:38)")
    assert sizes(one)[401408] == 406  # 162,827,230 B, as `go tool pprof -top` says


def test_what_gperftools_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1500 of 2000 objects of 100 to 102 bytes live, and 12 of 700,000."""
    swt = tmp_path / "g.swt"
    one = sw.convert(DATA / "gperftools.heap", swt)
    found = sizes(one)
    assert sum(count for size, count in found.items() if 100 <= size <= 102) == 1500
    assert found[700_000] == 12
    assert main(["flame", str(swt), "-o", str(tmp_path / "g.svg"), "--of", "requested"]) == 0
    assert "requested" in capsys.readouterr().out
    assert "gp+0x" in (tmp_path / "g.svg").read_text(encoding="utf-8")


def test_what_jemalloc_wrote() -> None:
    """Of 3000 objects of 112 to 160 bytes and 40 of 327,680, one per 4096 B was sampled."""
    one = sw.convert(DATA / "jemalloc.heap")
    found = sizes(one)
    assert found[327_680] == 40
    small = sum(count for size, count in found.items() if size < 1000)
    assert 2400 < small < 3600  # of about 90 samples, whose deviation is a tenth
    assert all("libjemalloc" not in site.frames[0] for site in one.sites)


@pytest.mark.skipif(not JEMALLOC.is_file(), reason="jemalloc is not installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc on this machine")
@pytest.mark.skipif(shutil.which("addr2line") is None, reason="there is no addr2line here")
@pytest.mark.parametrize("word", ["-pie", "-no-pie"])
def test_call_sites_have_names(word: str, tmp_path: Path) -> None:
    """Where the program's file is here, whether it is relocated or not."""
    source, program = tmp_path / "keep.c", tmp_path / "keep"
    source.write_text(
        "#include <stdlib.h>\nvoid *volatile kept;\n"
        "__attribute__((noinline)) void keep(void) { kept = malloc(3000000); }\n"
        "int main(void) { keep(); keep(); return 0; }\n"
    )
    subprocess.run(["gcc", "-g", "-O0", word, "-o", program, source], check=True)
    conf = f"prof:true,prof_final:true,lg_prof_sample:10,prof_prefix:{tmp_path}/out"
    env = {**os.environ, "LD_PRELOAD": str(JEMALLOC), "MALLOC_CONF": conf}
    done = subprocess.run([program], env=env, check=True, capture_output=True, text=True)
    written = list(tmp_path.glob("out*.heap"))
    if not written:
        pytest.skip(f"this jemalloc makes no profiles: {done.stderr[:80]}")
    one = sw.convert(written[0])
    assert one.sites.named()[0].names[:2] == ("keep (keep.c:3)", "main (keep.c:4)")
    assert sizes(one)[3 << 20] == 2


# --- cut and wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GO[: GO.index("\n1: 1000")], "is cut: its first line counts 3 objects in use, and its"),
        (GO[: GO.index(" 0x403000")], "line 2 is cut short: '2: 2000 [4: 5500] @ 0x401000"),
        (GO.replace("2: 2000", "2; 2000"), "line 2 is not a sample: '2; 2000 [4: 5500]"),
        (GO.replace("heap/2048", "cpu/2048"), "of the kind 'cpu'; known are heap, heap_v2"),
        (GO.replace("[5: 6500]", ""), "line 1 is not that of a heap profile as text"),
        (GO.replace("2: 2000", "2: 99999999999999999999"), "line 2 is not a sample"),
        (EVERY.replace("     2:      402", "    -2:     -402"), "line 3 is not a sample"),
        (THREADED[: THREADED.index("  t*: 1: 4096")], "its last stack has no counts"),
        (THREADED.replace("  t*: 2: 1001 [4: 2002]\n", ""), "line 7 is not a sample: '@ 0x402020'"),
        (THREADED.replace("@ 0x402020", "@ 402020"), "line 8 is not a sample: '@ 402020'"),
        (THREADED[: THREADED.index("96 [1: 4096]\n  t2")], "line 9 is cut short"),
        ("heap_v2/x\n", "line 1 is not that of a heap profile as text"),
        ("heap profile: 0: 0 [0: 0] @ heap/2\n", "has no object of inuse"),
        ("--- heapz 1 ---\nformat = java\n", "go tool pprof -proto -output=heap.pb.gz x.heap"),
    ],
)
def test_what_is_cut_or_wrong(text: str, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path / "x.heap", text)


def test_stacks_that_gperftools_left_out_are_reported(tmp_path: Path) -> None:
    """Its buffer was full; the list of libraries shows that the file is whole."""
    text = re.sub(r".*\[     2:      402\].*\n", "", EVERY)
    one = made(tmp_path / "x.heap", text)
    assert "its stacks have 3 of the 5 objects that its first line counts" in one.remark
