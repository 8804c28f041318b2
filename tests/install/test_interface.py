# SPDX-License-Identifier: Apache-2.0
"""The exported names and types equal the record; within a version, none may be removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT

SCRIPT = ROOT / "scripts/check_interface.py"
RECORD = "tests/data/interface.txt"
HEAP, STATS = "include/spanwise/heap.h", "include/spanwise/stats.h"
VERSION = "include/spanwise/spanwise.h"
NOW = (ROOT / RECORD).read_text(encoding="utf-8").splitlines()[0]
GONE, NEW = f"gone within version {NOW}: ", "not on record: "

# file, old text, new text, findings
CHANGES = {
    "another function": (
        HEAP,
        "SW_API uint32_t sw_heap_id(",
        "SW_API int sw_heap_new(int (*call)(void *context, char c), void *p);\n"
        "SW_API uint32_t sw_heap_id(",
        [NEW + "name sw_heap_new: int (int (void *, char) *, void *)"],
    ),
    "another type": (
        STATS,
        "SW_API uint64_t sw_heap_held_bytes(",
        "SW_API uint32_t sw_heap_held_bytes(",
        [
            GONE + "name sw_heap_held_bytes: uint64_t (const sw_heap *)",
            NEW + "name sw_heap_held_bytes: uint32_t (const sw_heap *)",
        ],
    ),
}


def check(root: Path, *words: str) -> tuple[int, list[str]]:
    """Return the exit status and the findings."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--root", str(root), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout.splitlines()[:-1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "include", tmp_path / "include")
    (tmp_path / RECORD).parent.mkdir(parents=True)
    shutil.copy(ROOT / RECORD, tmp_path / RECORD)
    return tmp_path


def change(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, (name, old)
    (root / name).write_text(text.replace(old, new), encoding="utf-8")


def test_the_record_is_right() -> None:
    assert check(ROOT) == (0, [])


@pytest.mark.parametrize("what", CHANGES)
def test_change_is_found(what: str, copy: Path) -> None:
    name, old, new, expected = CHANGES[what]
    change(copy, name, old, new)
    status, found = check(copy)
    assert (status, found[:-1]) == (1, expected)
    breaks = any(line.startswith(GONE) for line in expected)
    assert found[-1].startswith("raise the minor version in" if breaks else "run scripts/")
    before = (copy / RECORD).read_text(encoding="utf-8")
    assert check(copy, "--write")[0] == int(breaks)
    assert ((copy / RECORD).read_text(encoding="utf-8") == before) == breaks


def test_another_minor_version_may_break(copy: Path) -> None:
    change(copy, *CHANGES["another type"][:3])
    change(copy, VERSION, f'SPANWISE_VERSION "{NOW}.', 'SPANWISE_VERSION "9.9.')
    status, found = check(copy)
    assert (status, len(found)) == (1, 2)
    assert found[0].endswith(f"is of version {NOW}, the headers of 9.9")
    assert check(copy, "--write") == (0, [])
    assert check(copy) == (0, [])
