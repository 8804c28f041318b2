# SPDX-License-Identifier: Apache-2.0
"""The binary interface is the one on record; what breaks programs needs another version."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT

SCRIPT = ROOT / "scripts/check_interface.py"
RECORD = "tests/data/interface.txt"
HEAP, STATUS = "include/spanwise/heap.h", "include/spanwise/status.h"
STATS, VERSION = "include/spanwise/stats.h", "include/spanwise/spanwise.h"
NOW = (ROOT / RECORD).read_text(encoding="utf-8").splitlines()[0]
LIMIT = "    uint64_t limit_bytes;  "
LAST = "} sw_heap_options;"
THREAD = "    uint64_t thread;  /* the"

GONE, NEW = f"gone within version {NOW}: ", "not on record: "

# file, text, what the findings have among them
CHANGES = {
    "a function more": (
        HEAP,
        "SW_API uint32_t sw_heap_id(",
        [NEW + "name sw_heap_new: int (void)"],
    ),
    "a field at the end of a sized struct": (
        HEAP,
        LAST,
        [NEW + "struct sw_heap_options 15 later: uint64_t"],
    ),
    "a field in the midst of it": (
        HEAP,
        LIMIT,
        [
            GONE + "struct sw_heap_options 02 limit_bytes: uint64_t",
            NEW + "struct sw_heap_options 02 earlier: uint64_t",
        ],
    ),
    "a field at the end of another": (
        STATUS,
        THREAD,
        [GONE + "struct sw_fault: 6 fields", NEW + "struct sw_fault 06 later: uint64_t"],
    ),
    "another type": (
        STATS,
        "SW_API uint64_t sw_heap_held_bytes(",
        [GONE + "name sw_heap_held_bytes: uint64_t (const sw_heap *)"],
    ),
    "another order of statuses": (
        STATUS,
        '    X(NOMEM, "out of memory")',
        [GONE + "enumerator SW_NOMEM: at 1", NEW + "enumerator SW_NEWER: at 1"],
    ),
}
INSTEAD = {
    "a function more": "SW_API int sw_heap_new(void);\nSW_API uint32_t sw_heap_id(",
    "a field at the end of a sized struct": "    uint64_t later;\n} sw_heap_options;",
    "a field in the midst of it": "    uint64_t earlier; uint64_t limit_bytes; ",
    "a field at the end of another": "    uint64_t thread; uint64_t later; /* the",
    "another type": "SW_API uint32_t sw_heap_held_bytes(",
    "another order of statuses": '    X(NEWER, "new") X(NOMEM, "out of memory")',
}


def check(root: Path, *words: str) -> tuple[int, list[str]]:
    """Exit status and the lines of the findings."""
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


def test_the_record_is_true() -> None:
    assert check(ROOT) == (0, [])


@pytest.mark.parametrize("what", CHANGES)
def test_change_is_found(what: str, copy: Path) -> None:
    name, old, expected = CHANGES[what]
    change(copy, name, old, INSTEAD[what])
    status, found = check(copy)
    assert status == 1
    assert set(expected) <= set(found), found
    assert found[-1].startswith("mend: ")
    breaks = any(line.startswith(GONE) for line in expected)
    assert any(line.startswith(GONE) for line in found) == breaks
    before = (copy / RECORD).read_text(encoding="utf-8")
    assert check(copy, "--write")[0] == int(breaks)
    assert found[-1].endswith("--raise") == breaks
    assert ((copy / RECORD).read_text(encoding="utf-8") == before) == breaks


def test_another_minor_version_may_break(copy: Path) -> None:
    name, old, _ = CHANGES["another type"]
    change(copy, name, old, INSTEAD["another type"])
    major, minor = (int(part) for part in NOW.split("."))
    assert check(copy, "--raise") == (0, [])
    assert check(copy) == (0, [])
    text = (copy / VERSION).read_text(encoding="utf-8")
    assert f'#define SPANWISE_VERSION "{major}.{minor + 1}.0"\n' in text
    assert f"#define SW_VERSION_NUMBER {major * 10000 + (minor + 1) * 100}\n" in text


def test_a_record_of_another_version_is_told(copy: Path) -> None:
    change(copy, RECORD, f"{NOW}\n", "0.0\n")
    status, found = check(copy)
    assert (status, len(found)) == (1, 2)
    assert found[0].endswith(f"is of version 0.0, the headers of {NOW}")
