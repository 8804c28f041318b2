# SPDX-License-Identifier: Apache-2.0
"""Closes all figures before and after each test of pictures."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close all figures before and after the test."""
    plt.close("all")
    yield
    plt.close("all")
