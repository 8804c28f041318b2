# SPDX-License-Identifier: Apache-2.0
"""The answer's means and their interval, by hand."""

from __future__ import annotations

import pytest

from studies.tables_save.answer import mean_interval


def test_the_interval_of_a_mean() -> None:
    """Of 0 and 1 a sample of two has means 0, 0.5, 1 with chances 1/4, 1/2, 1/4.

    So the middle 90 % reach from 0 to 1. Of ten times 0 and ten times 1 the mean of a sample is a
    binomial count of 20 divided by 20: at most 5 with a chance of 0.021, at most 6 of 0.058.
    """
    assert mean_interval([0.0, 1.0]) == (0.5, 0.0, 1.0)
    assert mean_interval([3.0, 3.0, 3.0]) == (3.0, 3.0, 3.0)
    assert mean_interval([0.0, 1.0] * 10) == pytest.approx((0.5, 0.3, 0.7))
