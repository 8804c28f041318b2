# SPDX-License-Identifier: Apache-2.0
"""Settings of the Python tests (headless pictures, reproducible random tests) and fixtures."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import spanwise as sw
from hypothesis import HealthCheck, settings

from tests.python.helpers import random_ops

os.environ.setdefault("MPLBACKEND", "Agg")

settings.register_profile(
    "project", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")


@pytest.fixture
def heap() -> Iterator[sw.Heap]:
    """A heap of Go's table."""
    with sw.Heap("go") as made:
        yield made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two recordings."""
    folder = tmp_path_factory.mktemp("recordings")
    paths = [str(folder / f"{seed}.swt") for seed in (1, 2)]
    for seed, path in enumerate(paths):
        sw.Recording.from_ops(random_ops(seed, 3000), path)
    return paths
