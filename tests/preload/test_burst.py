# SPDX-License-Identifier: Apache-2.0
"""Resident memory after a burst of threads has ended and the process is quiet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.preload.tools import Preload

PROGRAM_KIB = 4 << 10
"""The program, its libraries and the tables of the heap; a huge page under THP."""
WHOLE_KIB = 64 * 60
"""The records of 64 caches, of 60 KiB at most, wait for further threads."""
FREE_KIB = (8 << 10) + 512
"""The bounds on free pages, and on idle spans that are kept."""
THREAD_KIB = 26
"""Per thread: 12 of the stack, which the C library keeps; 4 of the cache's record and 3 of its
lists; 20 span records of 128 bytes; 4 of the thread's record, rounded up."""


def bound_kib(threads: int) -> int:
    """The most that the threads may leave when nobody calls anything."""
    return PROGRAM_KIB + WHOLE_KIB + FREE_KIB + threads * THREAD_KIB


@pytest.mark.parametrize("thp", ["", "advise"])
@pytest.mark.parametrize("threads", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_ended_threads_leave_little(preload: Preload, threads: int, thp: str) -> None:
    """Neither a tick nor another call returns memory: the threads do as they end."""
    options: dict[str, Any] = {"THP": thp} if thp else {}
    run = preload.run([preload.program("burst.c"), str(threads)], **options)
    assert run.returncode == 0, run.stderr
    live, ended, trimmed = map(int, run.stdout.split())
    assert ended <= bound_kib(threads)
    assert trimmed <= bound_kib(threads) - FREE_KIB
    if threads == 1000:
        assert ended <= 40 << 10
        assert trimmed <= 22 << 10
    # 20 spans of 8 KiB per thread, each resident in full only with huge pages.
    assert live <= bound_kib(threads) + threads * (20 * 8 + 16)
