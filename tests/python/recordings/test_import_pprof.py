# SPDX-License-Identifier: Apache-2.0
"""Heap profiles of pprof: bytes, units, differences of two, and call stacks."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.helpers import ROOT
from tests.python.recordings.converted import made, refused, sizes
from tests.python.recordings.profile_writer import (
    OBJECTS,
    first_text,
    inside,
    plain,
    profile,
    sample,
)

DATA = ROOT / "tests" / "data" / "profiles"
FOUR = ("alloc_objects", "alloc_space", *OBJECTS)


# --- bytes --------------------------------------------------------------------------------------


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


MAIN = ("runtime.main (runtime/proc.go:290)",)


def test_a_file_without_stacks_gives_no_advice_to_record_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was made elsewhere cannot be made again with stacks."""
    path, swt = tmp_path / "x.pb", tmp_path / "x.swt"
    path.write_bytes(profile(sample(300, 30_000, stack=())))
    one = sw.convert(path, swt)
    both = sw.RecordingSet([one, one])
    for output in (
        one.sites,
        one.live_sites("go"),
        one.span_pinning(),
        both.sites,
        both.live_sites(),
    ):
        assert "spanwise convert found none in the file it read" in repr(output)
        assert "--stacks" not in repr(output)
    assert main(["flame", str(swt), "-o", str(tmp_path / "a.svg")]) == 2
    said = capsys.readouterr().err
    assert "spanwise convert found none" in said and "--stacks" not in said
    one.to_html(tmp_path / "a.html", "go")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "spanwise convert found none" in page and "--stacks" not in page


def test_the_command_says_what_is_lacking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.pb.gz"
    path.write_bytes(gzip.compress(profile(sample(1, 150, label=100))))
    assert main(["convert", str(path), "-o", str(tmp_path / "x.swt")]) == 0
    assert "50 B more than the file's" in "".join(capsys.readouterr())
    assert main(["ledger", str(tmp_path / "x.swt"), "--at", "end", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requested_bytes"] == 200
