# SPDX-License-Identifier: Apache-2.0
"""Programs whose threads come and go: what their recordings predict, and what stays resident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.recordings.recorder import run_recorded

from tests.preload.tools import Preload

WITHIN = 0.1
"""The order of births and ends differs between runs: 6 % was seen on a busy machine."""
PROGRAM_KIB = 4 << 10
"""The program, its libraries and the tables of the heap; a huge page under THP."""
WHOLE_KIB = 64 * 60
"""The records of 64 caches, of 60 KiB at most, wait for further threads."""
FREE_KIB = (8 << 10) + 512
"""The bounds on free pages, and on idle spans that are kept."""
THREAD_KIB = 26
"""Per thread: 12 of the stack, which the C library keeps; 4 of the cache's record and 3 of its
lists; 20 span records of 128 bytes; 4 of the thread's record, rounded up."""


@pytest.mark.parametrize("threads", [16, 208])
def test_held_is_as_predicted(preload: Preload, tmp_path: Path, threads: int) -> None:
    """Sixteen threads at a time: the caches of those that ended are closed in both."""
    words = [str(preload.program("births.c")), str(threads), "16"]
    recording = run_recorded(words, tmp_path / "a.swt").recordings()[0]
    assert recording.summary.threads == threads + 1
    assert recording.summary.thread_ends == threads
    predicted = recording.ledger("c16", "peak")  # of the live bytes; more may be held before it
    assert predicted.stats is not None
    peak_held = predicted.stats.peak_held_bytes
    for tracked in (True, False):
        run = sw.run(words, tracked=tracked, table="c16")
        assert run.returncode == 0
        assert run.peak_held_bytes == pytest.approx(peak_held, rel=WITHIN)
        if tracked:
            assert run.peak is not None
            assert run.peak.held_bytes == pytest.approx(predicted.held_bytes, rel=WITHIN)


def bound_kib(threads: int) -> int:
    """The most that the threads may leave when no one calls anything."""
    return PROGRAM_KIB + WHOLE_KIB + FREE_KIB + threads * THREAD_KIB


@pytest.mark.parametrize(("threads", "thp"), [(300, "advise"), (1000, "")])
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
