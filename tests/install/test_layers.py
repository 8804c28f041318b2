# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layers.py finds planted violations, by include and by symbol, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT

SCRIPT = ROOT / "scripts/check_layers.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small project of three layers without a violation."""
    (tmp_path / "include/spanwise").mkdir(parents=True)
    (tmp_path / "include/spanwise/a.h").write_text("int sw_low(void);\n")
    for room in ("base", "heap", "trace"):
        (tmp_path / "src" / room).mkdir(parents=True)
    (tmp_path / "src/LAYERS.md").write_text(
        "# Layers\n\n1. `base`: `src/base/`\n2. `heap`: `src/heap/`, `src/gen/paths_*`\n"
        "3. `trace`: `src/trace/` (uses only `base`)\n"
    )
    (tmp_path / "src/base/base.h").write_text("int base_low(void);\n")
    (tmp_path / "src/base/base.c").write_text('#include "base/base.h"\n#include <stdio.h>\n')
    (tmp_path / "src/heap/heap.h").write_text('#include "base/base.h"\nint heap_high(void);\n')
    (tmp_path / "src/heap/heap.c").write_text('#include "heap/heap.h"\n')
    (tmp_path / "src/trace/trace.c").write_text('#include "base/base.h"\n')
    return tmp_path


def check(tree: Path, *options: str) -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), "--root", str(tree), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def plant_objects(tree: Path, target: str = "lib") -> Path:
    """Compile every source of the tree to the path of its object under CMake."""
    build = tree / "build"
    for source in tree.glob("src/**/*.c"):
        inside = source.relative_to(tree)
        out = build / f"CMakeFiles/{target}.dir" / inside.with_name(inside.name + ".o")
        out.parent.mkdir(parents=True, exist_ok=True)
        folders = ["-I", str(tree / "src"), "-I", str(tree / "include")]
        subprocess.run(["cc", *folders, "-c", str(source), "-o", str(out)], check=True)
    return build


def test_clean_tree_passes(tree: Path) -> None:
    build = plant_objects(tree)
    status, lines = check(tree, "--objects", str(build))
    assert (status, lines) == (0, ["check_layers: 3 layers, 3 objects, 0 violations"])


@pytest.mark.parametrize(
    ("file", "include", "message"),
    [
        ("src/base/base.c", '"heap/heap.h"', 'layer base may not include heap ("heap/heap.h")'),
        ("src/base/base.c", "<heap/heap.h>", 'layer base may not include heap ("heap/heap.h")'),
        (
            "src/trace/trace.c",
            '"heap/heap.h"',
            'layer trace may not include heap ("heap/heap.h")',
        ),
        (
            "src/heap/heap.c",
            '"base.h"',
            '"base.h" is no file of a layer; include by path from src/',
        ),
        (
            "include/spanwise/a.h",
            '"base/base.h"',
            'public header includes "base/base.h", which is not public',
        ),
    ],
)
def test_planted_include_is_found(tree: Path, file: str, include: str, message: str) -> None:
    path = tree / file
    path.write_text(f"#include {include}\n")
    status, lines = check(tree)
    assert status == 1
    assert lines[0] == f"{file}:1: {message}"


def test_planted_symbol_is_found(tree: Path) -> None:
    (tree / "src/heap/heap.c").write_text("int heap_high(void) { return 1; }\n")
    (tree / "src/base/base.c").write_text(
        "int heap_high(void);\nint base_low(void);\nint base_low(void) { return heap_high(); }\n"
    )
    status, lines = check(tree, "--objects", str(plant_objects(tree)))
    assert status == 1
    assert lines[0] == (
        "src/base/base.c: layer base may not use heap_high of layer heap (src/heap/heap.c)"
    )


def plant_calls(tree: Path, calls: dict[str, tuple[str, ...]], folder: str = "heap") -> None:
    """Sources of a folder, each with a function of its name that calls those of others."""
    for name, called in calls.items():
        lines = [f"int {other}(void);" for other in called]
        sum_of_calls = " + ".join(["1", *(f"{other}()" for other in called)])
        lines += [f"int {name}(void);", f"int {name}(void) {{ return {sum_of_calls}; }}"]
        (tree / f"src/{folder}/{name}.c").write_text("\n".join(lines) + "\n")


def test_planted_cycle_is_found(tree: Path) -> None:
    plant_calls(
        tree, {"top": ("one",), "one": ("two",), "two": ("three", "low"), "three": ("one",)}
    )
    plant_calls(tree, {"low": ()})
    build = plant_objects(tree)
    plant_objects(tree, "again")  # the same sources in a second target make the same cycle
    status, lines = check(tree, "--objects", str(build))
    assert status == 1
    start, _, steps = lines[0].partition("call cycle: ")
    assert start == "src/heap: "
    assert sorted(steps.split("; ")) == [
        "one.c -> two.c (two)",
        "three.c -> one.c (one)",
        "two.c -> three.c (three)",
    ]
    assert lines[1] == "check_layers: 3 layers, 16 objects, 1 violations"


def test_what_is_no_cycle_passes(tree: Path) -> None:
    """A diamond, a function that calls itself, and names that are static in one of two files."""
    plant_calls(
        tree, {"top": ("left", "right"), "left": ("low",), "right": ("low",), "low": ("low",)}
    )
    statics = "static int top_part(void) { return 1; }\nint up(void);\n"
    (tree / "src/heap/up.c").write_text(
        statics + "int top(void);\nint up(void) { return top() + top_part(); }\n"
    )
    status, lines = check(tree, "--objects", str(plant_objects(tree)))
    assert (status, lines) == (0, ["check_layers: 3 layers, 8 objects, 0 violations"])


def test_file_of_no_layer_is_found(tree: Path) -> None:
    (tree / "src/odd").mkdir()
    (tree / "src/odd/odd.c").write_text("int odd;\n")
    status, lines = check(tree)
    assert status == 1
    assert lines[0] == "src/odd/odd.c:1: in no layer of src/LAYERS.md; add its folder there"


def test_the_project_itself_is_clean() -> None:
    status, lines = check(ROOT)
    assert status == 0, lines
