# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the malloc face's tests."""

from __future__ import annotations

import pytest

from tests.malloc.tools import CC, HERE, Face
from tests.skips import skip_without_c


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_c(items, HERE, CC)


@pytest.fixture(scope="session")
def face(tmp_path_factory: pytest.TempPathFactory) -> Face:
    return Face(tmp_path_factory.mktemp("face"))
