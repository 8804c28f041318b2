# SPDX-License-Identifier: Apache-2.0
"""Heap profiles of pprof, and as text of Go, gperftools, TCMalloc and jemalloc."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.helpers import ROOT, compiled
from tests.python.recordings.import_tools import (
    OBJECTS,
    first_text,
    inside,
    made,
    plain,
    profile,
    refused,
    sample,
    sizes,
)

DATA = ROOT / "tests" / "data" / "profiles"
FOUR = ("alloc_objects", "alloc_space", *OBJECTS)
MAIN = ("runtime.main (runtime/proc.go:290)",)
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


@pytest.mark.skipif(not JEMALLOC.is_file(), reason="jemalloc is not installed")
@pytest.mark.parametrize("word", ["-pie", "-no-pie"])
def test_call_sites_of_jemalloc_have_names(word: str, tmp_path: Path) -> None:
    """The program's file is here, so call sites have names, whether it is relocated or not."""
    code = (
        "#include <stdlib.h>\nvoid *volatile kept;\n"
        "__attribute__((noinline)) void keep(void) { kept = malloc(3000000); }\n"
        "int main(void) { keep(); keep(); return 0; }\n"
    )
    program = compiled(tmp_path, code, "-g", word, name="keep.c")
    conf = f"prof:true,prof_final:true,lg_prof_sample:10,prof_prefix:{tmp_path}/out"
    env = {"LD_PRELOAD": str(JEMALLOC), "MALLOC_CONF": conf}
    done = subprocess.run([program], env=env, check=True, capture_output=True, text=True)
    written = list(tmp_path.glob("out*.heap"))
    if not written:
        pytest.skip(f"this jemalloc makes no profiles: {done.stderr[:80]}")
    one = sw.convert(written[0])
    assert one.sites.named()[0].names[:2] == ("keep (keep.c:3)", "main (keep.c:4)")
    assert sizes(one)[3 << 20] == 2


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


# --- bytes of pprof's profiles --------------------------------------------------------------------


def test_single_samples_of_large_objects(tmp_path: Path) -> None:
    """As Go writes them: 100 samples of 1.58 objects of 512 KiB, with the count rounded down.

    100 * 829,411 B are 158.2 objects; their fraction is what the remark has.
    """
    scale = 1 / (1 - math.exp(-1))
    one_sample = sample(int(scale), int(scale * 524288), label=524288)
    one = made(tmp_path / "x.pb", profile(*[one_sample] * 100))
    assert sizes(one) == {524288: 158}
    assert one.remark.endswith(
        "whole objects have 82,837,504 B, which is 103,596 B less than the file's"
    )
    more = made(tmp_path / "x.pb", profile(sample(1, 80, label=100)))
    assert more.remark.endswith("whole objects have 100 B, which is 20 B more than the file's")
    exact = made(tmp_path / "x.pb", profile(sample(1, 200, label=100)))
    assert sizes(exact) == {100: 2} and "whole objects" not in exact.remark


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        *(("bytes", 1), ("B", 1), ("", 1), ("kilobytes", 1024), ("kB", 1024), ("KiB", 1024)),
        *(("Megabytes", 1 << 20), ("gb", 1 << 30)),
    ],
)
def test_units(unit: str, factor: int, tmp_path: Path) -> None:
    """Of the space; a label's size is in bytes."""
    one = made(tmp_path / "x.pb", profile(sample(10, 1000, stack=()), unit=unit))
    assert sizes(one) == {100 * factor: 10}
    one = made(tmp_path / "x.pb", profile(sample(1, 1000, label=500 * factor), unit=unit))
    assert sizes(one) == {500 * factor: 2}


def test_names_of_types_are_one_line(tmp_path: Path) -> None:
    said = refused(tmp_path / "x.pb", profile(sample(1, 1), types=("a\nb", "c")))
    assert said.endswith("it has 'a\\nb', c")


def test_bytes_without_a_count(tmp_path: Path) -> None:
    """As of regions that gperftools counts with HEAP_PROFILE_MMAP."""
    content = profile(sample(10, 1000), sample(0, 512 << 20), sample(0, 7 << 20))
    one = made(tmp_path / "x.pb", content)
    assert sizes(one) == {100: 10, 512 << 20: 1, 7 << 20: 1}
    assert one.remark.endswith(
        "544,210,944 B of it have no count of objects, and each such sample is one object"
    )
    assert sizes(made(tmp_path / "x.pb", profile(sample(0, 1000, label=50)))) == {50: 20}


# --- differences --------------------------------------------------------------------------------


def test_a_difference_that_go_writes(tmp_path: Path) -> None:
    """What /debug/pprof/heap?seconds=1 gave: 20 blocks of 901,120 B came, 97 of 606,208 went."""
    content = (DATA / "go-delta.pb.gz").read_bytes()
    assert "is the difference of two profiles" in refused(tmp_path / "x.pb.gz", content)
    one = made(tmp_path / "x.pb.gz", content, value="alloc")
    assert sizes(one)[901120] == 18  # 16,469,644 B of those sampled, as `go tool pprof -raw` says
    assert one.summary.allocated_bytes == pytest.approx(18_915_139, abs=901120)


def test_a_profile_of_a_span_of_time_says_so(tmp_path: Path) -> None:
    content = profile(sample(1, 100), parts=plain(10, 2_000_000_000))
    one = made(tmp_path / "x.pb", content)
    assert "it covers 2.000 s, and if it is the difference of two profiles" in one.remark


# --- stacks -------------------------------------------------------------------------------------


def stacks() -> bytes:
    """Two stacks of three calls, of which two are inlined at one location, and an address."""
    texts = ["main.inner", "main.outer", "main.main", "/src/app/main.go", "/bin/none", "c0ffee"]
    inner, outer, top, file, path, build_id = range(first_text(), first_text() + 6)
    functions = b"".join(
        inside(5, plain(1, i) + plain(2, name) + plain(4, file))
        for i, name in enumerate((inner, outer, top), 1)
    )

    def line(function: int, at: int) -> bytes:
        return inside(4, plain(1, function) + plain(2, at))

    locations = (
        inside(4, plain(1, 1) + line(1, 10) + line(2, 20))
        + inside(4, plain(1, 2) + line(3, 30))
        + inside(4, plain(1, 3) + plain(2, 1) + plain(3, 0x401233))
    )
    mapping = inside(
        3,
        b"".join(plain(i, v) for i, v in ((1, 1), (2, 0x400000), (3, 0x500000), (4, 0x1000)))
        + plain(5, path)
        + plain(6, build_id),
    )
    return profile(
        sample(3, 300, stack=(1, 2)),
        sample(1, 50, stack=(2,)),
        sample(2, 80, stack=(3, 2)),
        sample(4, 400, stack=(1, 2)),
        sample(1, 9, stack=()),
        texts=texts,
        parts=functions + locations + mapping,
    )


def test_stacks_by_hand(tmp_path: Path) -> None:
    one = made(tmp_path / "x.pb", stacks())
    found = {site.frames: (site.allocs, site.allocated_bytes) for site in one.sites}
    inner = "profile: main.inner (/src/app/main.go:10)"
    outer = "profile: main.outer (/src/app/main.go:20)"
    top = "profile: main.main (/src/app/main.go:30)"
    assert found == {
        (inner, outer, top): (7, 700),
        (top,): (1, 50),
        ("/bin/none+0x2234", top): (2, 80),  # 0x401234 - 0x400000 + 0x1000
        (): (1, 9),
    }
    assert one.sites.named()[0].names == (
        "main.inner (app/main.go:10)",
        "main.outer (app/main.go:20)",
        "main.main (app/main.go:30)",
    )
    assert [module.path for module in one.modules] == ["/bin/none"]
    assert one.modules[0].build_id == "c0ffee" and not one.has_python_lines
    assert one.summary.sites == 3


def test_stacks_stay_when_counts_are_scaled_down(tmp_path: Path) -> None:
    path = tmp_path / "x.pb"
    path.write_bytes(stacks())
    one = sw.convert(path, most_objects=4)
    assert sorted(site.allocs for site in one.sites) == [1, 3]
    assert one.remark.endswith("one object stands for 3")  # 11 / 4


def test_an_allocation_that_dies_keeps_its_stack(tmp_path: Path) -> None:
    content = profile(sample(5, 500, 2, 200, stack=(1,)), types=FOUR)
    call = inside(4, plain(1, 1) + inside(4, plain(1, 1) + plain(2, 3)))
    function = inside(5, plain(1, 1) + plain(2, 1))
    one = made(tmp_path / "x.pb", content + call + function, value="alloc")
    assert [site.frames for site in one.sites] == [("profile: alloc_objects",)]
    assert one.ops["site"].tolist() == [1, 0] * 5


def test_mappings_that_are_no_files(tmp_path: Path) -> None:
    """A pipe, a folder, a name with a line feed, a range that ends before it begins."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    texts = [str(pipe), str(tmp_path), "/a\nb", "/ended"]
    begin = first_text()
    parts = b""
    for i, place in enumerate(range(begin, begin + 4), 1):
        start = 0x1000 * i
        end = start + (0x1000 if i < 4 else 0)
        parts += inside(3, plain(1, i) + plain(2, start) + plain(3, end) + plain(5, place))
        parts += inside(4, plain(1, i) + plain(3, start + 7))
    content = profile(sample(1, 10, stack=(1, 2, 3, 4)), texts=texts, parts=parts)
    (site,) = made(tmp_path / "x.pb", content).sites
    assert site.frames == (f"{pipe}+0x8", f"{tmp_path}+0x8", "0x3008", "0x4008")
    assert len(sw.convert(tmp_path / "x.pb").sites.named()[0].names) == 4


def test_the_profile_of_a_go_program_has_sites_and_a_flame_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swt, svg, page = tmp_path / "go.swt", tmp_path / "go.svg", tmp_path / "go.html"
    one = sw.convert(DATA / "go.pb.gz", swt)
    first = one.sites.named()[0]
    assert first.names == ("main.medium (go/main.go:19)", "main.main (go/main.go:38)", *MAIN)
    assert first.allocated_bytes == pytest.approx(162_827_230, abs=401408)
    assert "--stacks" not in repr(one.sites) + repr(one.live_sites("go"))
    assert main(["flame", str(swt), "-o", str(svg), "--of", "requested"]) == 0
    text = svg.read_text(encoding="utf-8")
    assert "main.medium (go/main.go:19)" in text and "main.large" in text
    capsys.readouterr()
    one.to_html(page, "go")
    assert "--stacks" not in page.read_text(encoding="utf-8")
    collapsed = tmp_path / "go.txt"
    one.export(collapsed, "collapsed", "go", value="inuse-bytes")
    assert re.search(
        r"^runtime\.main .*;main\.main .*;main\.medium \S+ \d+$", collapsed.read_text(), re.M
    )


def test_a_file_without_stacks_gives_no_advice_to_record_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was made elsewhere cannot be made again with stacks."""
    swt = tmp_path / "x.swt"
    (tmp_path / "x.pb").write_bytes(profile(sample(300, 30_000, stack=())))
    one = sw.convert(tmp_path / "x.pb", swt)
    both = sw.RecordingSet([one, one])
    assert main(["flame", str(swt), "-o", str(tmp_path / "a.svg")]) == 2
    one.to_html(tmp_path / "a.html", "go")
    lists = (one.sites, one.live_sites("go"), one.span_pinning(), both.sites, both.live_sites())
    for text in (*map(repr, lists), capsys.readouterr().err, (tmp_path / "a.html").read_text()):
        assert "spanwise convert found none" in text and "--stacks" not in text


def test_the_command_says_what_is_lacking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.pb.gz"
    path.write_bytes(gzip.compress(profile(sample(1, 150, label=100))))
    assert main(["convert", str(path), "-o", str(tmp_path / "x.swt")]) == 0
    assert "50 B more than the file's" in "".join(capsys.readouterr())
    assert main(["ledger", str(tmp_path / "x.swt"), "--at", "end", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requested_bytes"] == 200
