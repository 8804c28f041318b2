# SPDX-License-Identifier: Apache-2.0
"""The study replace-floor: the most that each class holds while objects are replaced."""

from __future__ import annotations

import numpy as np
import pytest

from studies import replace_floor

SIZES = np.array([0, 64, 512, 1024], dtype=np.int64)


def test_one_class_never_holds_more_than_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replace_floor, "LIVE", 500)
    most, table_bytes = replace_floor.peak_counts(np.array([0, 1024], dtype=np.int64), 1)
    assert most.tolist() == [0, 500]
    assert table_bytes == 500 * 1024


def test_classes_reach_their_peaks_at_different_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replace_floor, "LIVE", 2000)
    most, table_bytes = replace_floor.peak_counts(SIZES, 1)
    assert most[0] == 0
    assert 2000 < most.sum() < 2500
    assert int((most * SIZES).sum()) > table_bytes
    again, _ = replace_floor.peak_counts(SIZES, 1)
    assert again.tolist() == most.tolist()
