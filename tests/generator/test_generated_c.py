# SPDX-License-Identifier: Apache-2.0
"""Generated C: it serves every size, compiles, and links with its own table only."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from spanwise_sizeclasses import cli, emit
from spanwise_sizeclasses.model import Table

from tests.generator.tools import C16, GO, ROOT, SCRIPT, with_classes


def made_by(source: str, macro: str) -> list[tuple[int, ...]]:
    """Return the arguments of each use of a macro."""
    uses = re.findall(rf"^{macro}\(([\d, ]+)\)$", source, re.MULTILINE)
    return [tuple(map(int, one.split(", "))) for one in uses]


def by_size(source: str, array: str) -> list[str]:
    """Return the elements of an array that is written as `[first ... last] = name,`."""
    match = re.search(rf"{array}\[(\d+)\] = {{([^}}]*)}};", source)
    assert match is not None
    names = ["0"] * int(match[1])
    for first, last, name in re.findall(r"\[(\d+)(?: \.\.\. (\d+))?\] = (\w+),", match[2]):
        for size in range(int(first), int(last or first) + 1):
            assert names[size] == "0"
            names[size] = name
    return names


@pytest.mark.parametrize("cutoff", [0, 8, 64, 80, 128, 512, 1000, 1024])
@pytest.mark.parametrize("table", [GO, C16], ids=lambda table: table.name)
def test_paths_serve_every_size(table: Table, cutoff: int) -> None:
    source = emit.paths_source(table, emit.Origin("c", "p", ()), cutoff, "gen/paths.h")
    assert f"sw_paths_{table.name}_cutoff = {cutoff};" in source
    names = by_size(source, f"sw_paths_{table.name}_scan")
    assert names == [f"sw_path_{table.name}_scan_{table.class_of(n)}" for n in range(cutoff + 1)]
    classes = range(1, table.class_of(cutoff) + 1)
    assert made_by(source, "SCAN") == [(n, table.classes[n - 1].size) for n in classes]
    reach = min(15, cutoff) if table.has_tiny else 0
    assert made_by(source, "TINY") == [(n,) for n in range(1, reach + 1)]
    if table.has_tiny:
        tiny = by_size(source, f"sw_paths_{table.name}_tiny")
        assert tiny[1 : reach + 1] == [f"sw_path_go_tiny_{n}" for n in range(1, reach + 1)]
        assert tiny[0] == "0" and tiny[reach + 1 :] == ["0"] * (15 - reach)


def test_path_counts_are_those_of_go() -> None:
    source = (ROOT / "src/gen/paths_go.c").read_text()
    # Go's 25 pointer-free paths have no counterpart: plain heaps serve those sizes inline.
    assert [len(made_by(source, macro)) for macro in ("SCAN", "TINY")] == [26, 15]


COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
FLAGS = "-std=c11 -Wall -Wextra -Wconversion -Wmissing-prototypes -Werror -fvisibility=hidden"
TEMPLATE = """
#include <spanwise/heap.h>
typedef void *sw_path_fn(sw_cache *cache, size_t size, unsigned flags);
typedef struct sw_paths {
    size_t cutoff;
    sw_path_fn *const *scan, *const *tiny;
} sw_paths;
static inline void *sw_template_small(sw_cache *cache, size_t size, unsigned flags, uint32_t cls,
                                      uint32_t bytes) {
    return (char *)cache + size + flags + cls + bytes;
}
static inline void *sw_template_tiny(sw_cache *cache, size_t size, unsigned flags) {
    return (char *)cache + size + flags;
}
"""


def compile_c(compiler: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    places = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}"]
    command = [compiler, *FLAGS.split(), *places, *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    """A directory with the C of a table of a user's own, of odd name, and a template to try it."""
    spec = with_classes((16, 1), (40, 1), (504, 2), (1032, 1), (2000, 1), name="best-16.v2")
    (tmp_path / "best.json").write_text(spec)
    assert cli.main(["--table", str(tmp_path / "best.json"), "-o", str(tmp_path)]) == 0
    (tmp_path / "heap").mkdir()
    (tmp_path / "heap" / "template.h").write_text(TEMPLATE)
    return tmp_path


@pytest.mark.parametrize("compiler", COMPILERS)
def test_c_of_any_table_compiles(compiler: str, custom: Path) -> None:
    assert sorted(path.name for path in custom.glob("*.[ch]")) == [
        "default.h",
        "fast.h",
        "paths_best_16_v2.c",
        "paths_best_16_v2.h",
        "table_best_16_v2.c",
    ]
    for name in ("table_best_16_v2.c", "paths_best_16_v2.c"):
        result = compile_c(compiler, f"-I{custom}", "-c", name, cwd=custom)
        assert result.returncode == 0, result.stderr
    head = (custom / "table_best_16_v2.c").read_text()
    assert "scripts/sizeclasses.py --table best.json -o DIR\n" in head
    assert str(custom) not in head


@pytest.mark.parametrize("compiler", COMPILERS)
def test_inline_code_links_with_its_own_table_only(compiler: str, custom: Path) -> None:
    program = """
#include FAST_HEADER
void not_folded(void);
int main(void) {
    enum { N = 100, M = WANT };
    if (sw_fast_class_bytes[sw_fast_size_map[(N + 7) >> 3]] != M) not_folded();
    return SW_FAST_TABLE_SYMBOL != 1;
}
"""
    (custom / "main.c").write_text(program)
    (custom / "own/gen").mkdir(parents=True)
    shutil.copy(custom / "default.h", custom / "own/gen")
    for name, first in (("own", "-iquoteown"), ("stock", "-O2")):
        source = str(ROOT / "src/sizeclass/default.c")
        result = compile_c(compiler, first, "-c", source, "-o", f"{name}.o", cwd=custom)
        assert result.returncode == 0, result.stderr
    tables = [str(ROOT / "src/gen/table_c16.c"), "table_best_16_v2.c"]
    own = ['-DFAST_HEADER="fast.h"', "-DWANT=504", "-I.", *tables]
    stock = ["-DFAST_HEADER=<spanwise/gen/fast.h>", "-DWANT=112", *tables]
    build = ("-O2", "main.c", "-o", "main")
    for good in ([*own, "own.o"], [*stock, "stock.o"]):
        result = compile_c(compiler, *build, *good, cwd=custom)
        assert result.returncode == 0, result.stderr
        assert subprocess.run([custom / "main"], check=False).returncode == 0
    for bad, symbol in (
        ([*own, "stock.o"], "sw_table_is_best_16_v2_"),
        ([*stock, "own.o"], f"sw_table_is_c16_{C16.hash:016x}"),
    ):
        result = compile_c(compiler, *build, *bad, cwd=custom)
        assert result.returncode != 0
        assert symbol in result.stderr


@pytest.mark.parametrize(
    ("script_at", "package_at"),
    [
        ("scripts", "python"),
        ("spanwise/_source/scripts", "."),
    ],
    ids=["checkout", "wheel"],
)
def test_runs_where_only_the_generator_is(tmp_path: Path, script_at: str, package_at: str) -> None:
    """The script finds its package in a checkout, and next to the installed package `spanwise`."""
    (tmp_path / script_at).mkdir(parents=True)
    script = Path(shutil.copy(SCRIPT, tmp_path / script_at))
    package = ROOT / "python/spanwise_sizeclasses"
    shutil.copytree(package, tmp_path / package_at / package.name)
    command = [sys.executable, "-I", str(script), "--table", "c16", "-o", str(tmp_path / "out")]
    subprocess.run(command, cwd="/", check=True)
    made = (tmp_path / "out" / "table_c16.c").read_text()
    assert "const struct sw_table sw_table_c16_data = {" in made
    default = (tmp_path / "out" / "default.h").read_text()
    assert f"SW_DEFAULT_SYMBOL sw_table_is_c16_{C16.hash:016x}\n" in default


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} {SCRIPT} --table go --format c | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stderr == ""
