# SPDX-License-Identifier: Apache-2.0
"""The recorder: how much of the resident memory came through malloc."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorder.tools import Recorder

MIB = 1 << 20


@pytest.mark.parametrize(
    ("what", "malloced", "mapped"),
    [
        ("large", 48, 0),
        ("large", 24, 24),
        ("large", 1, 40),
        ("small", 48, 16),
        ("sparse", 16, 32),
        ("grown", 32, 8),
        ("medium", 64, 0),
        ("threads", 32, 0),
    ],
)
def test_parts_of_the_peak(
    recorder: Recorder, tmp_path: Path, what: str, malloced: int, mapped: int
) -> None:
    """A reading is within a sixteenth of the peak, and each part is what the program touched."""
    run = recorder.run([recorder.program("memory"), what, str(malloced), str(mapped)], tmp_path)
    assert run.process.returncode == 0
    parts = {
        name: run.number(f"meta.rss_{name}")
        for name in ("peak", "malloc", "mapped", "data", "file", "recorder")
    }
    total = malloced + mapped
    # Growth since the last reading, and libc's own pages. What other threads allocate while one
    # reads counts as mapped; if their open blocks were not marked, nearly all would.
    missed = parts["peak"] / MIB / 16 + 2 if what != "threads" else total / 2
    assert abs(parts["malloc"] / MIB - malloced) < missed, parts
    assert abs(parts["mapped"] / MIB - mapped) < missed, parts
    assert parts["malloc"] + parts["mapped"] > (total - missed) * MIB
    assert parts["peak"] >= sum(parts.values()) - parts["peak"] - MIB, parts
    assert parts["peak"] < (total + 16) * MIB, parts


def test_addresses_that_malloc_had_before(recorder: Recorder, tmp_path: Path) -> None:
    run = recorder.run([recorder.program("memory"), "reused", "32", "64"], tmp_path)
    assert run.number("meta.rss_malloc") < MIB
    assert abs(run.number("meta.rss_mapped") / MIB - 64) < 4.5
