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
LIMIT = "    uint64_t limit_bytes;  "
HUGE = "    uint8_t huge_pages;   "
THREAD = "    uint64_t thread;  /* the"

# file, text, what stands in its place, lines of the findings
CHANGES = {
    "a function more": (HEAP, "SW_API uint32_t sw_heap_id(", ("not on record: name sw_heap_new",)),
    "a field at the end of a sized struct": (
        HEAP,
        HUGE,
        ("not on record: struct sw_heap_options",),
    ),
    "a field in the midst of it": (HEAP, LIMIT, ("gone",) * 9 + ("not on record",) * 10),
    "a field at the end of another": (
        STATUS,
        THREAD,
        ("gone within version 0.2: struct sw_fault: 6 fields",)
        + ("not on record: struct sw_fault",) * 2,
    ),
    "another type": (
        STATS,
        "SW_API uint64_t sw_heap_held_bytes(",
        ("gone within version 0.2: name sw_heap_held_bytes", "not on record"),
    ),
    "another order of statuses": (
        STATUS,
        '    X(NOMEM, "out of memory")',
        ("gone",) * 10 + ("not on record",) * 11,
    ),
}
INSTEAD = {
    "a function more": "SW_API int sw_heap_new(void);\nSW_API uint32_t sw_heap_id(",
    "a field at the end of a sized struct": "    uint8_t huge_pages; uint64_t later; ",
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
    assert len(found) == len(expected) + 1, found
    assert all(line.startswith(begin) for line, begin in zip(found, expected, strict=False)), found
    assert found[-1].startswith("mend: ")
    breaks = any(begin.startswith("gone") for begin in expected)
    before = (copy / RECORD).read_text(encoding="utf-8")
    assert check(copy, "--write")[0] == int(breaks)
    assert ("raise the minor number" in found[-1]) == breaks
    assert ((copy / RECORD).read_text(encoding="utf-8") == before) == breaks


def test_another_minor_version_may_break(copy: Path) -> None:
    name, old, _ = CHANGES["another type"]
    change(copy, name, old, INSTEAD["another type"])
    text = (copy / VERSION).read_text(encoding="utf-8")
    version = text.split('#define SPANWISE_VERSION "')[1].split('"')[0]
    change(copy, VERSION, f'SPANWISE_VERSION "{version}"', 'SPANWISE_VERSION "0.99.0"')
    status, found = check(copy)
    assert status == 1
    assert found[0].endswith("the headers of 0.99")
    assert check(copy, "--write") == (0, [])
    assert check(copy) == (0, [])
