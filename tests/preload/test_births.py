# SPDX-License-Identifier: Apache-2.0
"""Programs whose threads come and go: what their recordings predict, and what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import spanwise as sw
from spanwise.recordings.recorder import run_recorded

from tests.preload.tools import Preload

WITHIN = 0.05


@pytest.mark.parametrize(
    "threads",
    [
        16,
        208,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (800, 1600)),
    ],
)
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
