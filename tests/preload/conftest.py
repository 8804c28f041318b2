# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the preloaded malloc's tests."""

from __future__ import annotations

import pytest

from tests.preload.tools import CC, HERE, Preload
from tests.skips import skip_without_c


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_c(items, HERE, CC)


@pytest.fixture(scope="session")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Preload:
    return Preload(tmp_path_factory.mktemp("preload"))
