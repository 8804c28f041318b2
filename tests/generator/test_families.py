# SPDX-License-Identifier: Apache-2.0
"""The built-in tables and families of size classes against their projects' own numbers.

tests/data has the numbers. Installed allocators are queried again, each in its own process.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spanwise_sizeclasses import cli, emit, families, model, tablefile
from spanwise_sizeclasses.families import make_table
from spanwise_sizeclasses.model import BUILTINS, SizeClass, SizeClassError, Table

from tests.generator.tools import C16, GO, GO_NUMBERS, ROOT, run_script

# --- the built-in tables --------------------------------------------------------------------------

GO_WITHOUT_24 = tuple(c for c in GO.classes if c.size != 24)


def test_go_equals_go_in_every_column() -> None:
    result = run_script("--table", "go", "--format", "json")
    assert result.returncode == 0
    ours = json.loads(result.stdout)
    assert list(ours) == list(GO_NUMBERS)
    assert ours["classes"] == GO_NUMBERS["classes"]
    assert [list(row) for row in ours["classes"]] == [list(row) for row in GO_NUMBERS["classes"]]
    for key in ("page_bytes", "max_small", "small_size_div", "small_size_max", "large_size_div"):
        assert ours[key] == GO_NUMBERS[key]


def go_source() -> str:
    """The size classes of the Go toolchain on this machine, if it is the release copied here."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain")
    command = [go, "env", "GOROOT", "GOVERSION"]
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    root, version = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    if version != "go1.26.8":
        pytest.skip(f"{version} is not the release that the table is exact to (go1.26.8)")
    return (Path(root) / "src/internal/runtime/gc/sizeclasses.go").read_text()


def go_array(source: str, name: str) -> list[int]:
    match = re.search(rf"var {name} = \[[^\]]*\]\w+{{([^}}]*)}}", source)
    assert match is not None
    return [int(item, 0) for item in match[1].split(",") if item.strip()]


def test_go_equals_the_toolchain_source() -> None:
    source = go_source()
    comment = [line[3:] for line in source.splitlines() if re.match(r"// +\d.*%", line)]
    assert [line.split() for line in emit.text_lines(GO)[1:]] == [s.split() for s in comment]
    assert go_array(source, "SizeClassToSize") == [0, *(c.size for c in GO.classes)]
    assert go_array(source, "SizeClassToNPages") == [0, *(c.pages for c in GO.classes)]
    # Go's maps say 0 for size 0 and have a class for each further step.
    assert go_array(source, "SizeToSizeClass8")[1:] == list(GO.small_map[1:])
    assert go_array(source, "SizeToSizeClass128") == list(GO.large_map)


def test_c16_is_go_without_24_in_longer_spans() -> None:
    short = make_table(replace(BUILTINS["c16"], span_slots=1))
    assert short.classes == GO_WITHOUT_24
    assert (short.name, C16.name) == ("c16_s1", "c16")
    for row, before in zip(C16.rows, short.rows, strict=True):
        times, rest = divmod(row.span_bytes, before.span_bytes)
        assert row.size == before.size and rest == 0 and times & (times - 1) == 0
        longest = 65536 if row.size <= 1024 else 32768
        assert row.objects >= 1024 or row.span_bytes > longest // 2
        assert times == 1 or (row.span_bytes <= longest and row.objects < 2 * 1024)
        assert row.tail_waste * before.span_bytes <= before.tail_waste * row.span_bytes
    assert all(c.size % 16 == 0 for c in C16.classes[1:])
    worst = {r.size: r.max_waste_pct for r in C16.rows if r.max_waste_pct > 26.6}
    assert worst == {8: 87.5, 16: 43.75, 32: 46.88, 48: 31.52}
    assert [c.shortest for c in C16.classes] == [c.pages for c in short.classes]
    assert [r.first_span_bytes for r in C16.rows] == [r.span_bytes for r in short.rows]


def test_a_fixed_c16_has_the_hash_of_before() -> None:
    fixed = make_table(replace(BUILTINS["c16"], growing=False))
    assert (fixed.name, fixed.grows, C16.grows, GO.grows) == ("c16_fixed", False, True, False)
    for c, before, first in zip(C16.classes, fixed.classes, GO_WITHOUT_24, strict=True):
        assert (before.size, before.first_pages) == (c.size, None)
        assert before.pages == (c.pages if c.size <= 1024 else first.pages)
    assert f"{fixed.hash:016x}" == "28c069f1ac02d6a8"  # c16's while its spans had one length


def test_list_names_every_table() -> None:
    result = run_script("--list")
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(families.NAMES)
    assert f"hash {C16.hash:016x}" in result.stdout


def test_hash_is_fnv1a_of_its_definition() -> None:
    value = 0xCBF29CE484222325
    for word in [8192, 16, 1, 32, 2]:
        for byte in word.to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    assert Table("t", 8192, (SizeClass(16, 1), SizeClass(32, 2))).hash == value


# --- checked-in outputs ---------------------------------------------------------------------------


def test_check_passes_here() -> None:
    result = run_script("--check", cwd=Path("/"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


OUTPUTS = cli.checked_in_outputs()


def test_generated_files_begin_with_their_command() -> None:
    for name, text in OUTPUTS.items():
        assert text.startswith("/* SPDX-License-Identifier: Apache-2.0 */\n"), name
        assert "do not edit" in text[:200] and "scripts/sizeclasses.py --write" in text[:300], name
        assert max(map(len, text.splitlines())) <= 100 and str(ROOT) not in text, name


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of every checked-in output; the outputs are generated once."""
    monkeypatch.setattr(cli, "checked_in_outputs", lambda: OUTPUTS)
    for name in OUTPUTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", list(OUTPUTS))
def test_check_names_a_tampered_file(
    tree: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--check", "--root", str(tree)]) == 0
    data = bytearray((tree / name).read_bytes())
    data[-2] ^= 1
    (tree / name).write_bytes(data)
    assert cli.main(["--check", "--root", str(tree)]) == 1
    expected = f"sizeclasses: {name}: stale; run scripts/sizeclasses.py --write\n"
    assert capsys.readouterr().err == expected
    (tree / name).unlink()
    assert cli.main(["--check", "--root", str(tree)]) == 1
    assert f"{name}: cannot be read (No such file or directory)" in capsys.readouterr().err
    assert cli.main(["--write", "--root", str(tree)]) == 0
    assert cli.main(["--check", "--root", str(tree)]) == 0


# --- families -------------------------------------------------------------------------------------


def published(name: str) -> dict[str, Any]:
    path = ROOT / f"tests/data/{name}-sizeclasses.json"
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def made(name: str) -> Table:
    table = families.named(name)
    assert table is not None
    return table


def pairs(table: Table) -> list[list[int]]:
    """Size and span, both in bytes, of each class."""
    return [[c.size, c.pages * table.page_bytes] for c in table.classes]


# --- against published numbers --------------------------------------------------------------------


def test_jemalloc_prints_these_bins_and_extents() -> None:
    theirs = published("jemalloc")
    table = made("jemalloc")
    assert table.page_bytes == theirs["page_bytes"]
    assert pairs(table) == [*theirs["bins"], *([size, size] for size in theirs["large"])]


def test_tcmalloc_serves_these_sizes() -> None:
    theirs = published("tcmalloc")
    table = made("tcmalloc")
    assert table.page_bytes == theirs["page_bytes"]
    assert [c.size for c in table.classes] == theirs["sizes"]


def test_tcmalloc_spans_keep_its_two_rules() -> None:
    for size, span in pairs(made("tcmalloc")):
        moved = min(max(65536 // size, 2), 32)
        kept = [n for n in range(8192, span + 1, 8192) if n % size <= n // 8]
        assert next(n for n in kept if n // size >= moved // 4) == span


def test_mimalloc_declares_these_queues() -> None:
    theirs = published("mimalloc")
    aligned = [8, *(8 * n for n in theirs["words"] if n > 1 and (n % 2 == 0 or n > 8))]
    assert aligned == theirs["good_sizes"]
    table = made("mimalloc")
    small, medium = theirs["small_page_bytes"], theirs["medium_page_bytes"]
    assert pairs(table) == [
        [size, small if size <= theirs["small_object_max"] else medium] for size in aligned
    ]
    assert table.max_size == theirs["medium_object_max"]


# --- against installed allocators -----------------------------------------------------------------

ASK_JEMALLOC = """
import ctypes, json, sys
library = ctypes.CDLL(None)
def ask(name, kind):
    value, size = kind(), ctypes.c_size_t(ctypes.sizeof(kind))
    status = library.mallctl(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    assert status == 0, name
    return value.value
version = ctypes.c_char_p()
size = ctypes.c_size_t(8)
library.mallctl(b"version", ctypes.byref(version), ctypes.byref(size), None, 0)
print(json.dumps({
    "version": version.value.decode(),
    "page_bytes": ask("arenas.page", ctypes.c_size_t),
    "bins": [
        [ask(f"arenas.bin.{i}.{what}", ctypes.c_size_t) for what in ("size", "slab_size")]
        for i in range(ask("arenas.nbins", ctypes.c_uint))
    ],
    "large": [ask(f"arenas.lextent.{i}.size", ctypes.c_size_t) for i in range(17)],
}))
"""
ASK_USABLE = """
import ctypes, json
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.free.argtypes = library.malloc_usable_size.argtypes = [ctypes.c_void_p]
library.malloc_usable_size.restype = ctypes.c_size_t
sizes, request = [], 1
while request <= 262144:
    block = library.malloc(request)
    sizes.append(library.malloc_usable_size(block))
    library.free(block)
    request = sizes[-1] + 1
print(json.dumps({"sizes": sizes}))
"""
ASK_MIMALLOC = """
import ctypes, json
library = ctypes.CDLL(None)
library.mi_good_size.restype = ctypes.c_size_t
library.mi_good_size.argtypes = [ctypes.c_size_t]
sizes, request = [], 1
while request <= 131072:
    sizes.append(library.mi_good_size(request))
    request = sizes[-1] + 1
print(json.dumps({"version": library.mi_version(), "good_sizes": sizes}))
"""


def ask(library: str, program: str) -> dict[str, Any]:
    """What a program prints under an allocator; skips where that is not installed."""
    found = ctypes.util.find_library(library)
    if found is None:
        pytest.skip(f"lib{library} is not installed")
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"LD_PRELOAD": found, "PYTHONMALLOC": "pymalloc"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if result.returncode != 0:
        pytest.skip(f"{found} cannot be asked: {result.stderr.strip().splitlines()[-1:]}")
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_installed_jemalloc() -> None:
    theirs = ask("jemalloc", ASK_JEMALLOC)
    if not theirs["version"].startswith("5.3.0"):
        pytest.skip(f"jemalloc {theirs['version']} is installed, the table is of 5.3.0")
    assert {key: theirs[key] for key in ("page_bytes", "bins", "large")} == {
        key: published("jemalloc")[key] for key in ("page_bytes", "bins", "large")
    }


def test_installed_tcmalloc() -> None:
    theirs = ask("tcmalloc_minimal", ASK_USABLE)
    assert theirs["sizes"] == [c.size for c in made("tcmalloc").classes]


def test_installed_mimalloc() -> None:
    theirs = ask("mimalloc", ASK_MIMALLOC)
    if theirs["version"] != 209:
        pytest.skip(f"mimalloc {theirs['version']} is installed, the table is of 2.0.9")
    assert theirs["good_sizes"] == [c.size for c in made("mimalloc").classes]


# --- series, names, files -------------------------------------------------------------------------


def test_fibonacci_is_a_sum_of_the_two_below() -> None:
    sizes = [c.size for c in families.fibonacci(align=8).classes]
    assert sizes[:8] == [8, 16, 24, 40, 64, 104, 168, 272]
    assert all(a + b == c for a, b, c in zip(sizes, sizes[1:], sizes[2:-1], strict=False))
    assert sizes[-1] == 32768
    assert all(c.size % 16 == 0 for c in families.fibonacci().classes[1:])


@pytest.mark.parametrize("name", [*families.NAMES, "geometric-1.25", "geometric-2"])
def test_every_family_is_proved_and_survives_a_file(name: str) -> None:
    table = made(name)
    assert model.prove(table)
    again = tablefile.parse_table(tablefile.dump_table(table).encode())
    assert (again.name, again.hash) == (table.name, table.hash)


@pytest.mark.parametrize("name", ["c16", "jemalloc", "tcmalloc", "mimalloc", "pow2", "fibonacci"])
def test_families_fit_the_malloc_preload(name: str) -> None:
    assert all(c.size % 16 == 0 for c in made(name).classes if c.size >= 16)


@given(st.integers(1, 32768), st.sampled_from([4096, 8192, 16384, 65536]))
def test_span_is_the_shortest_with_a_small_tail(eighths: int, page_bytes: int) -> None:
    size = 8 * eighths
    pages = families.span_pages(size, page_bytes)
    span = pages * page_bytes
    assert size <= span and span % size * 8 <= span
    for less in range(1, pages):
        assert less * page_bytes < size or less * page_bytes % size * 8 > less * page_bytes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "geometric-x",
            "unknown table 'geometric-x'; after geometric- comes a ratio, e.g. geometric-1.25",
        ),
        ("geometric-1", "ratio 1.0: must be above 1"),
        ("geometric-nan", "ratio nan: must be above 1"),
        ("geometric-1.001", " classes: must be 1 to 255"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(SizeClassError) as caught:
        families.named(name)
    assert str(caught.value).endswith(message)


def test_no_family_of_that_name() -> None:
    assert families.named("dlmalloc") is None


@pytest.mark.parametrize("largest", [0, 100, 1 << 20])
def test_bad_largest(largest: int) -> None:
    with pytest.raises(SizeClassError, match=f"largest_bytes {largest}: must be"):
        families.pow2(largest)
    with pytest.raises(SizeClassError, match=f"largest_bytes {largest}: must be"):
        families.fibonacci(largest)
