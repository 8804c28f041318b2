# SPDX-License-Identifier: Apache-2.0
"""The checkers of layers and of the interface find one planted violation of each kind.

`./dev test` runs them on the project itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT

LAYERS = {
    "src/LAYERS.md": "# Layers\n\n1. `base`: `src/base/`\n2. `heap`: `src/heap/`\n",
    "src/base/base.h": "int base_low(void);\n",
    "src/base/base.c": '#include "base/base.h"\n#include <stdio.h>\n',
    "src/heap/heap.c": '#include "base/base.h"\nint heap_high(void) { return base_low(); }\n',
    "include/spanwise/a.h": "int sw_low(void);\n",
}


def check(name: str, root: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    """The exit status and the output of a checker on a tree of these files."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    words = [sys.executable, str(ROOT / f"scripts/{name}.py"), "--root", str(root), *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def objects(root: Path) -> Path:
    """Compile every source to the path of its object under CMake."""
    for source in root.glob("src/**/*.c"):
        inside = source.relative_to(root)
        out = root / "build/CMakeFiles/lib.dir" / f"{inside}.o"
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", f"-I{root}/src", "-c", source, "-o", out], check=True)
    return root / "build"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("src/base/base.c", "\n", "2 layers, 2 objects, 0 violations"),
        ("src/base/base.c", '#include "heap/heap.h"\n', "layer base may not include heap"),
        ("src/heap/heap.c", '#include "base.h"\n', '"base.h" is no file of a layer'),
        ("src/odd/odd.c", "int odd;\n", "in no layer of src/LAYERS.md"),
        ("include/spanwise/a.h", '#include "base/base.h"\n', "which is not public"),
        (
            "src/base/base.c",
            "int heap_high(void);\nint base_low(void);\nint base_low(void) { return heap_high(); }",
            "layer base may not use heap_high of layer heap (src/heap/heap.c)",
        ),
        (
            "src/heap/b.c",
            "int b(void);\nint heap_high(void);\nint b(void) { return heap_high(); }\n",
            "call cycle: ",
        ),
    ],
)
def test_layers(file: str, text: str, said: str, tmp_path: Path) -> None:
    files = {**LAYERS, "src/heap/heap.h": "int heap_high(void);\n", file: text}
    if "cycle" in said:
        files["src/heap/heap.c"] = "int b(void);\nint heap_high(void) { return b(); }\n"
    status, found = check("check_layers", tmp_path, files)
    if status == 0:
        status, found = check("check_layers", tmp_path, {}, "--objects", str(objects(tmp_path)))
    assert said in found and status == (not said.endswith(" 0 violations"))


def test_interface(tmp_path: Path) -> None:
    """A changed type is found, and only another minor version may write it down."""
    record = "tests/data/interface.txt"
    files = {path: (ROOT / path).read_text() for path in (record, "include/spanwise/spanwise.h")}
    for path in (ROOT / "include").rglob("*.h"):
        files[str(path.relative_to(ROOT))] = path.read_text()
    version = files[record].splitlines()[0]
    assert check("check_interface", tmp_path, files)[0] == 0
    stats = files["include/spanwise/stats.h"]
    changed = stats.replace("SW_API uint64_t sw_heap_held_b", "SW_API uint32_t sw_heap_held_b")
    status, said = check("check_interface", tmp_path, {"include/spanwise/stats.h": changed})
    old, new = (f"name sw_heap_held_bytes: uint{n}_t (const sw_heap *)" for n in (64, 32))
    lines = said.splitlines()
    assert status == 1 and lines[0] == f"gone within version {version}: {old}"
    assert lines[1] == f"not on record: {new}" and lines[2].startswith("raise the minor version in")
    assert check("check_interface", tmp_path, {}, "--write")[0] == 1
    call = "SW_API int sw_heap_new(int (*call)(void *context, char c), void *p);\n"
    status, said = check("check_interface", tmp_path, {"include/spanwise/stats.h": call + stats})
    new = "not on record: name sw_heap_new: int (int (void *, char) *, void *)\nrun scripts/"
    assert status == 1 and said.startswith(new)
    head = files["include/spanwise/spanwise.h"].replace(f'VERSION "{version}.', 'VERSION "9.9.')
    both = {"include/spanwise/spanwise.h": head, "include/spanwise/stats.h": changed}
    assert check("check_interface", tmp_path, both)[0] == 1
    assert check("check_interface", tmp_path, {}, "--write")[0] == 0
    assert check("check_interface", tmp_path, {})[0] == 0
