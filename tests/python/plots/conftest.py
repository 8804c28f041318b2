# SPDX-License-Identifier: Apache-2.0
"""Each test of pictures begins and ends without a figure, whatever other tests left open."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No figure before the test, none after it."""
    plt.close("all")
    yield
    plt.close("all")
