# SPDX-License-Identifier: Apache-2.0
"""Content of other tools' files within its bounds; snapshots as whole objects."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from hypothesis import given
from hypothesis import strategies as st
from spanwise.__main__ import main
from spanwise.recordings import conversion as import_content
from spanwise.recordings.conversion import Content
from spanwise.recordings.profiles import Call, Sample, objects_of, scaled

from tests.python.recordings.import_tools import profile, sample
from tests.python.recordings.test_conversion import PAIRS, RAW, TRACE


def stats(**changes: Any) -> str:
    """The JSON of jemalloc's statistics, of one bin and one large class."""
    values = {"size": 16, "curregs": 3, "large": 16384, "curlextents": 1} | changes
    arena = {
        "bins": [{"curregs": values["curregs"], "nmalloc": 9, "nrequests": 9}],
        "lextents": [{"curlextents": values["curlextents"], "nmalloc": 9}],
    }
    classes = {"bin": [{"size": values["size"]}], "lextent": [{"size": values["large"]}]}
    return json.dumps({"jemalloc": {"arenas": classes, "stats.arenas": {"merged": arena}}})


def damaged_zip() -> bytes:
    """An archive whose deflated text is damaged in the middle."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("app.txt", TRACE)
    raw = bytearray(made.getvalue())
    raw[60:70] = b"\xff" * 10
    return bytes(raw)


LATE = PAIRS.replace("c 9\n", "c 7fffffffffffffff\n")
HOSTILE: list[tuple[str | bytes, str]] = [
    (LATE, "line 8: time 9223372036854775807000000 is too large"),
    ("v 10400 3\n+ " + "f" * 17 + " 1 1\n", "line 2 is not a call: '+ fffffffffffffffff 1 1'"),
    (
        f"1: malloc 0x10 8 5 6\n1: free 0x10 {10**19 + 5} 7\n",
        "line 2: time 10000000000000000000 is too large",
    ),
    (f"1: malloc 0x10 {'9' * 5000}\n", "line 1: "),
    (f"{'1' * 5000}: malloc 0x10 8\n1: free 0x10\n", "is not a heap profile of pprof"),
    (stats(curregs=float("inf")), "cannot convert float infinity to integer"),
    (stats(size=float("inf")), "cannot convert float infinity to integer"),
    (stats(curlextents=float("nan")), "cannot convert float NaN to integer"),
    (stats(size=int("1" * 200)), "size of more than 128 bits is too large"),
    ('{"jemalloc": ' + "[" * 200_000, "is nested too deeply"),
    (damaged_zip(), "its zip stream is truncated or damaged"),
    (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", "its gzip stream is truncated"),
]


@pytest.mark.parametrize(("text", "said"), HOSTILE)
def test_hostile_files_are_one_line(
    text: str | bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "x.dat", tmp_path / "x.swt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    status = main(["convert", str(path), "-o", str(out)])
    shown = capsys.readouterr().err
    assert status == 2 and not out.exists(), shown
    assert shown.startswith("spanwise: x.dat: ") and shown.count("\n") == 1
    assert said in shown and len(shown) < 400


def test_formats_of_heaptrack_that_are_not_known(tmp_path: Path) -> None:
    """Formats 0 to 3 have the same calls; of a newer one nothing is known."""
    path = tmp_path / "h"
    for version in "0123":
        path.write_text(RAW.replace("v 10400 3\n", f"v 10500 {version}\n"))
        assert len(sw.convert(path)) == 4
    path.write_text(RAW.replace("v 10400 3\n", "v 10600 4\n"))
    with pytest.raises(sw.UnsupportedError, match="h: line 1: is of heaptrack's format 4; formats"):
        sw.convert(path)


def test_the_form_of_what_is_packed(tmp_path: Path) -> None:
    """The format is detected from the content, whatever compresses it; other gzip is a profile."""
    path = tmp_path / "x.gz"
    for text in (TRACE, RAW, PAIRS, stats()):
        (tmp_path / "x").write_text(text)
        path.write_bytes(gzip.compress(text.encode()))
        assert (sw.convert(path).ops == sw.convert(tmp_path / "x").ops).all()
    (tmp_path / "x").write_text("\n" * 70_000 + stats())  # after much that a program printed
    assert len(sw.convert(tmp_path / "x")) == 4
    body = b"\x48\x01" + profile(sample(3, 150, label=48))  # a time before all else
    path.write_bytes(gzip.compress(body))
    assert len(sw.convert(path)) == 3


def test_memory_that_is_missing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_memory(_: Content) -> bytes:
        raise MemoryError

    path = tmp_path / "stats.json"
    path.write_text(stats())
    monkeypatch.setattr(Content, "whole", no_memory)
    assert main(["convert", str(path), "-o", str(tmp_path / "a.swt")]) == 2
    assert capsys.readouterr().err == "spanwise: stats.json: needs more memory than there is\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs mkfifo and a shell")
def test_a_file_that_cannot_be_read_twice(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    (tmp_path / "h").write_text(PAIRS)
    with subprocess.Popen(["/bin/sh", "-c", f"gzip -c '{tmp_path}/h' > '{fifo}'"]):
        assert len(sw.convert(fifo)) == 6


def lines_of(text: bytes, path: Path) -> list[tuple[int, bytes, bool]]:
    path.write_bytes(text)
    with Content(path) as one:
        return [(one.line, line, one.cut) for line in one.lines()]


def test_lines_have_numbers_and_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert lines_of(b"a\n\n\nb\r\nc", path) == [
        (1, b"a", False),
        (4, b"b\r", False),
        (5, b"c", True),
    ]
    text = b"".join(b"%d\n\n" % i for i in range(200_000))  # many parts, and lines across them
    found = lines_of(text, path)
    assert [line for _, line, _ in found] == [b"%d" % i for i in range(200_000)]
    assert [number for number, _, _ in found] == list(range(1, 400_000, 2))
    assert lines_of(b"x" * (1 << 20), path) == [(1, b"x" * (1 << 20), True)]
    with pytest.raises(sw.TraceFormatError, match=r"x: line 2 is longer than 1\.0 MiB"):
        lines_of(b"a\n" + b"x" * (2 << 20) + b"\n", path)


# --- bombs ----------------------------------------------------------------------------------------


def gzip_bomb(begin: bytes, filler: bytes, mebibytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(begin)]
    parts += [packer.compress(filler * (1 << 20)) for _ in range(mebibytes)]
    return b"".join([*parts, packer.flush()])


def zip_bomb(begin: bytes, filler: bytes, mebibytes: int) -> bytes:
    made = io.BytesIO()
    archive = zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("a.txt", "w") as file:
        file.write(begin)
        for _ in range(mebibytes):
            file.write(filler * (1 << 20))
    return made.getvalue()


def zstd_bomb(begin: bytes, filler: bytes, mebibytes: int) -> bytes:
    text = begin + filler * (mebibytes << 20)
    return subprocess.run(["zstd", "-cq"], input=text, capture_output=True, check=True).stdout


BOMBS = [
    pytest.param(zip_bomb, b"1: malloc 0x10 8\n", b"\n", id="zip of empty lines"),
    pytest.param(gzip_bomb, b"v 10500 3\n+ 8 1 10\n", b"#", id="gzip of one long line"),
    pytest.param(gzip_bomb, b"", b"\0", id="gzip of zeros"),
    pytest.param(
        zstd_bomb,
        b"v 10500 3\n+ 8 1 10\n",
        b"\n",
        id="zstd of empty lines",
        marks=pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd here"),
    ),
]


@pytest.mark.parametrize(("make", "begin", "filler"), BOMBS)
def test_bombs_are_refused_in_little_memory(
    make: Callable[[bytes, bytes, int], bytes], begin: bytes, filler: bytes, tmp_path: Path
) -> None:
    """96 MiB from 0.1 MiB: refused beyond 64 MiB, and never held whole if read by lines."""
    path = tmp_path / "bomb"
    path.write_bytes(make(begin, filler, 96))
    assert path.stat().st_size < 1 << 20
    script = (
        "import resource, sys\n"
        "from spanwise.__main__ import main\n"
        "main(['classes'])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "status = main(['convert', sys.argv[1], '-o', sys.argv[2]])\n"
        "print(status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    words = [sys.executable, "-c", script, str(path), str(tmp_path / "out.swt")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    status, more_kib = map(int, done.stdout.split()[-2:])
    assert status == 2, done.stderr
    assert done.stderr.startswith("spanwise: bomb: ") and done.stderr.count("\n") == 1
    if filler == b"#":
        assert "line 3 is longer than 1.0 MiB" in done.stderr
    else:
        assert "unpacks to more than 64.0 MiB" in done.stderr
    # 64 MiB are held while they are collected, if the content is not read by lines.
    most_kib = (96 if filler == b"\0" else 48) << 10
    assert more_kib < most_kib


def test_the_bound_is_a_multiple_with_a_floor_and_can_be_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "a.gz", str(tmp_path / "a.swt")
    text = b"1: malloc 0x10 8\n" + b"\n" * 5000
    path.write_bytes(gzip.compress(text))
    size = path.stat().st_size
    assert 30 < size < 100
    with pytest.raises(sw.LimitError, match=r"a\.gz: unpacks to more than 4\.9 KiB; if you trust"):
        sw.convert(path, unpacked_max=5016)
    assert len(sw.convert(path, unpacked_max=5017)) == 1
    monkeypatch.setattr(import_content, "UNPACKED_FLOOR", 100)
    monkeypatch.setattr(import_content, "UNPACKED_MULTIPLE", 10)
    assert main(["convert", str(path), "-o", out]) == 2
    assert f"more than {10 * size} B" in capsys.readouterr().err
    assert main(["convert", str(path), "-o", out, "--unpacked-max", "5K"]) == 0
    monkeypatch.setattr(import_content, "UNPACKED_FLOOR", 5017)
    assert main(["convert", str(path), "-o", out, "-f"]) == 0
    monkeypatch.setattr(import_content, "UNPACKED_FLOOR", 1)
    path.write_bytes(text)  # nothing is unpacked, so nothing bounds it
    assert main(["convert", str(path), "-o", out, "-f"]) == 0


def test_what_a_callers_function_raises_is_its_own(tmp_path: Path) -> None:
    """An error of `progress` is no error of the file."""

    def wrong(_: int) -> None:
        raise ValueError("mine")

    path = tmp_path / "a.txt"
    path.write_text(TRACE)
    with pytest.raises(ValueError, match=r"^mine$"):
        sw.convert(path, tmp_path / "a.swt", progress=wrong)


# --- snapshots ------------------------------------------------------------------------------------

MAIN = (Call("main", "a.c", 1),)
OTHER = (Call("other", "a.c", 2),)


def test_bytes_over_the_size_by_hand() -> None:
    """Two stacks with 1.6 and 1.8 objects of 100 bytes have 3.4 together: the second has two."""
    found = objects_of([Sample(1, 160, 100, MAIN), Sample(1, 180, 100, OTHER)])
    assert found.stacks == [(), MAIN, OTHER]
    assert found.counts == {(100, 1): 1, (100, 2): 2}
    assert (found.file_bytes, found.total_bytes, found.uncounted_bytes) == (340, 300, 0)


def test_a_size_that_is_not_known_by_hand() -> None:
    """Seven bytes for three objects are 2, 2 and 3; bytes without a count are one object."""
    found = objects_of([Sample(3, 7), Sample(0, 1 << 29), Sample(2, 0), Sample(5, 0, 48)])
    assert found.counts == {(2, 0): 2, (3, 0): 1, (1 << 29, 0): 1, (0, 0): 7}
    assert found.file_bytes == found.total_bytes == 7 + (1 << 29)
    assert found.uncounted_bytes == 1 << 29


samples = st.builds(
    Sample,
    st.integers(0, 9),
    st.integers(0, 10**6),
    st.one_of(st.none(), st.integers(1, 5000)),
    st.sampled_from([(), MAIN, OTHER, MAIN + OTHER]),
)


@given(st.lists(samples, max_size=40))
def test_sums_differ_by_half_an_object_per_size(given_samples: list[Sample]) -> None:
    found = objects_of(given_samples)
    sized = [one for one in given_samples if one.size is not None and one.total_bytes]
    sizes = {one.size for one in sized}
    assert found.file_bytes == sum(one.total_bytes for one in given_samples)
    assert abs(found.file_bytes - found.total_bytes) * 2 <= sum(size or 0 for size in sizes)
    assert all(count > 0 for count in found.counts.values())
    if len(sized) == len(given_samples):
        exact: Counter[tuple[int | None, int]] = Counter()
        for one in sized:
            exact[one.size, found.stacks.index(one.stack)] += one.total_bytes
        for (size, stack), total in exact.items():
            assert size is not None
            assert abs(found.counts.get((size, stack), 0) - Fraction(total, size)) < 1


@given(st.dictionaries(st.integers(0, 50), st.integers(1, 10**12), min_size=1), st.integers(1, 99))
def test_scaled_counts_have_the_wanted_sum(counts: dict[int, int], most: int) -> None:
    total = sum(counts.values())
    found = scaled(counts, most)
    assert sum(found.values()) == most
    for key, count in counts.items():
        assert abs(found.get(key, 0) - Fraction(count * most, total)) < 1
