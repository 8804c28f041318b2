# SPDX-License-Identifier: Apache-2.0
"""What heaps, pools, arenas and collected heaps report of each mistake of misuse_kinds.py."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.python.heap.misuse_kinds import MISTAKES, PROFILES, SIZES, profiles_of
from tests.python.helpers import ROOT

SILENT = "-"
VERIFY = "verify"
"""sw_heap_verify returned an error."""

Cell = str | tuple[str, ...]
FOUND: dict[str, dict[str, tuple[Cell, ...]]] = {
    "heap": {
        "nothing": (SILENT,) * 3,
        "overflow_1": (
            SILENT,
            "OVERFLOW free",
            (
                "OVERFLOW free",
                "OUT_OF_BOUNDS write",
                "OVERFLOW free",
                "OVERFLOW free",
                "OVERFLOW free",
            ),
        ),
        "overflow_8": (
            SILENT,
            "OVERFLOW free",
            (
                "OVERFLOW free",
                "OUT_OF_BOUNDS write",
                "OVERFLOW free",
                "OVERFLOW free",
                "OVERFLOW free",
            ),
        ),
        "overflow_32": (
            SILENT,
            "OVERFLOW free",
            (
                "OUT_OF_BOUNDS write",
                "OUT_OF_BOUNDS write",
                "OUT_OF_BOUNDS write",
                "OVERFLOW free",
                "OVERFLOW free",
            ),
        ),
        "overflow_found_by_realloc": (
            SILENT,
            "OVERFLOW realloc",
            (
                "OVERFLOW realloc",
                "OUT_OF_BOUNDS write",
                "OVERFLOW realloc",
                "OVERFLOW realloc",
                "OVERFLOW realloc",
            ),
        ),
        "overflow_found_by_verify": (
            SILENT,
            "verify",
            ("verify", "OUT_OF_BOUNDS write", "verify", "verify", "verify"),
        ),
        "underflow_1": (SILENT, ("OVERFLOW free", "OVERFLOW free", SILENT, SILENT, SILENT), SILENT),
        "overread": (SILENT, SILENT, (SILENT, "OUT_OF_BOUNDS read", SILENT, SILENT, SILENT)),
        "write_after_free": (
            SILENT,
            (
                "WRITE_AFTER_FREE free",
                "WRITE_AFTER_FREE free",
                "WRITE_AFTER_FREE malloc",
                "WRITE_AFTER_FREE malloc",
                "USE_AFTER_FREE write",
            ),
            (
                "USE_AFTER_FREE write",
                "USE_AFTER_FREE write",
                "USE_AFTER_FREE write",
                "WRITE_AFTER_FREE malloc",
                "USE_AFTER_FREE write",
            ),
        ),
        "write_after_free_found_by_verify": (
            SILENT,
            ("verify", "verify", "verify", SILENT, "USE_AFTER_FREE write"),
            (
                "USE_AFTER_FREE write",
                "USE_AFTER_FREE write",
                "USE_AFTER_FREE write",
                SILENT,
                "USE_AFTER_FREE write",
            ),
        ),
        "read_after_free": (
            SILENT,
            (SILENT, SILENT, SILENT, SILENT, "USE_AFTER_FREE read"),
            (
                "USE_AFTER_FREE read",
                "USE_AFTER_FREE read",
                "USE_AFTER_FREE read",
                SILENT,
                "USE_AFTER_FREE read",
            ),
        ),
        "double_free": ("DOUBLE_FREE free",) * 3,
        "double_free_later": ("DOUBLE_FREE free",) * 3,
        "free_inside": ("INTERIOR free",) * 3,
        "free_of_stack": ("FOREIGN free",) * 3,
        "free_in_other_heap": (
            "WRONG_HEAP free",
            "WRONG_HEAP free",
            ("FOREIGN free", "FOREIGN free", "FOREIGN free", "WRONG_HEAP free", "WRONG_HEAP free"),
        ),
        "free_with_larger_size": ("SIZE_MISMATCH free_sized",) * 3,
        "free_with_size_of_class": (SILENT, "SIZE_MISMATCH free_sized", "SIZE_MISMATCH free_sized"),
        "realloc_after_free": ("DOUBLE_FREE realloc",) * 3,
        "free_after_realloc": (
            ("DOUBLE_FREE free", "DOUBLE_FREE free", "DOUBLE_FREE free", SILENT, SILENT),
            "DOUBLE_FREE free",
            "DOUBLE_FREE free",
        ),
        "usable_after_free": ("DOUBLE_FREE usable_size",) * 3,
        "write_to_size_0": (SILENT, "OUT_OF_BOUNDS write", "OUT_OF_BOUNDS write"),
        "write_to_size_0_and_safe_arena": (SILENT, "OUT_OF_BOUNDS write", "OUT_OF_BOUNDS write"),
        "alloc_after_destroy": ("STALE_HANDLE heap",) * 3,
        "free_after_destroy": ("STALE_HANDLE heap",) * 3,
        "alloc_of_closed_cache": ("STALE_HANDLE alloc",) * 3,
        "free_by_closed_cache": ("STALE_HANDLE free",) * 3,
    },
    "pool": {
        "overflow_1": (
            SILENT,
            "OVERFLOW free",
            (
                "OVERFLOW free",
                "OUT_OF_BOUNDS write",
                "OVERFLOW free",
                "OVERFLOW free",
                "OVERFLOW free",
            ),
        ),
        "double_put": ("DOUBLE_FREE free",) * 3,
        "double_put_watched": ("DOUBLE_PUT pool_put",) * 3,
        "free_of_idle_item": ("DOUBLE_FREE free",) * 3,
        "put_inside": ("INTERIOR free",) * 3,
        "put_of_stack": ("FOREIGN free",) * 3,
        "write_after_put": (SILENT,) * 3,
        "write_after_destroy": (
            SILENT,
            (
                "WRITE_AFTER_FREE free",
                "WRITE_AFTER_FREE free",
                "WRITE_AFTER_FREE malloc",
                "WRITE_AFTER_FREE malloc",
                "USE_AFTER_FREE write",
            ),
            (
                "USE_AFTER_FREE write",
                "USE_AFTER_FREE write",
                "USE_AFTER_FREE write",
                "WRITE_AFTER_FREE malloc",
                "USE_AFTER_FREE write",
            ),
        ),
        "get_after_destroy": ("STALE_HANDLE pool_get",) * 3,
    },
    "arena": {
        "overflow_1": (SILENT,) * 3,
        "free_of_object": ("ARENA free",) * 3,
        "read_after_free": (SILENT,) * 3,
        "write_after_reset": (SILENT,) * 3,
        "double_free": ("STALE_HANDLE arena_free",) * 3,
        "alloc_after_free": ("STALE_HANDLE arena_alloc",) * 3,
        "safe_read_after_free": ("FREED_ARENA read",) * 3,
        "safe_read_after_free_and_heap": ("FREED_ARENA read",) * 3,
        "safe_write_after_reset": ("FREED_ARENA write",) * 3,
        "safe_overflow_1": (SILENT,) * 3,
    },
    "collected": {
        "nothing": (SILENT,),
        "overflow_1": (SILENT,),
        "double_free": ("DOUBLE_FREE free",),
        "write_after_free": (SILENT,),
        "free_inside": ("INTERIOR free",),
        "free_of_stack": ("FOREIGN free",),
        "free_with_larger_size": ("SIZE_MISMATCH free_sized",),
        "realloc_after_free": ("DOUBLE_FREE realloc",),
        "use_after_collection": (SILENT,),
        "free_after_collection": ("DOUBLE_FREE free",),
        "alloc_after_destroy": ("STALE_HANDLE heap",),
        "double_destroy": ("STALE_HANDLE gc_destroy",),
    },
}
"""By kind and mistake: what each profile reports, as code and call; a tuple: by size."""

LINES = {
    SILENT: "",
    VERIFY: r"verify: (free )?object at 0x\w+ (of \d+ bytes|on its own page):"
    r" (the bytes after it were|it was) written to",
}


def found(kind: str, mistake: str, profile: str, size: int) -> str:
    cell = FOUND[kind][mistake][PROFILES.index(profile)]
    return cell if isinstance(cell, str) else cell[SIZES.index(size)]


def line_of(outcome: str) -> str:
    """Return a pattern of the first line on standard error."""
    if outcome in LINES:
        return LINES[outcome]
    code, op = outcome.split()
    return rf"spanwise: fatal: {code} op={re.escape(op)} ptr=0x\w+ size=\d+ heap=\d+ thread=\d+"


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str, str, int], tuple[int, str]]:
    """What each case printed first, and its status."""
    program = Path(__file__).with_name("misuse_kinds.py")
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=True, timeout=600
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {tuple(row[:4]): (row[4], row[5]) for row in rows}


@pytest.mark.parametrize(
    ("kind", "mistake"), [(kind, mistake) for kind in FOUND for mistake in FOUND[kind]]
)
def test_mistake(
    outcomes: dict[tuple[str, str, str, int], tuple[int, str]], kind: str, mistake: str
) -> None:
    for profile in profiles_of(kind):
        for size in SIZES:
            status, line = outcomes[kind, mistake, profile, size]
            expected = found(kind, mistake, profile, size)
            assert re.fullmatch(line_of(expected), line), (profile, size, line)
            assert status == (0 if expected == SILENT else -signal.SIGABRT)


def test_the_list_is_complete(
    outcomes: dict[tuple[str, str, str, int], tuple[int, str]],
) -> None:
    assert {kind: list(mistakes) for kind, mistakes in MISTAKES.items()} == {
        kind: list(mistakes) for kind, mistakes in FOUND.items()
    }
    assert len(outcomes) >= 700


def row_of(kind: str, mistake: str) -> str:
    """Return a row of the table of docs/design/guard.md."""
    cells = []
    for profile in PROFILES:
        if profile not in profiles_of(kind):
            cells.append("")
            continue
        said = [found(kind, mistake, profile, size).split()[0] for size in SIZES]
        cells.append(", ".join(said if len(set(said)) > 1 else said[:1]))
    return f"| {kind} | {mistake} | {' | '.join(cells)} |"


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs/design/guard.md").read_text(encoding="utf-8")
    for kind, mistakes in FOUND.items():
        for mistake in mistakes:
            assert row_of(kind, mistake) in page
