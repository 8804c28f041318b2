# SPDX-License-Identifier: Apache-2.0
"""Raw recordings are put in order: how much of it is done is told meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import spanwise as sw
from spanwise import _lib
from spanwise.heap import runner
from spanwise.recordings import finish as finishing
from spanwise.recordings.recorder import RECORDER

from tests.python.helpers import needs_recorder, python


def test_a_long_call_is_looked_at() -> None:
    seen: list[int] = []

    def call() -> None:
        while len(seen) < 3:
            pass

    assert runner.interruptible(call, [0], lambda: seen.append(1)) is None
    assert len(seen) >= 3


@needs_recorder()
def test_the_bar_counts_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends at no more than there are, which is known before."""
    raw = tmp_path / "raw.swt"
    recorder = {"LD_PRELOAD": str(_lib.native_library(RECORDER)), "SPANWISE_RECORD_FILE": str(raw)}
    script = "kept = [[] for _ in range(400_000)]"
    assert python("-c", script, env={**recorder, "PYTHONMALLOC": "malloc"}).returncode == 0
    totals: list[int] = []
    steps: list[int] = []

    @contextmanager
    def bar(_progress: None, total: int, _what: str, _unit: str) -> Iterator[object]:
        totals.append(total)
        yield steps.append

    monkeypatch.setattr(finishing, "progress_bar", bar)
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.001)
    finishing.finish(raw, tmp_path / "ordered.swt")
    made = len(sw.Recording.open(tmp_path / "ordered.swt"))
    # The recorder counts a reallocation as two events.
    assert len(totals) == 1 and made <= totals[0] < 1.01 * made
    assert len(steps) >= 3 and 0 < sum(steps) <= totals[0]
