# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the malloc face's tests."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.face.tools import CC, HERE, Face


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sys.platform == "linux" and shutil.which(CC) is not None:
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs Linux and a C compiler"))


@pytest.fixture(scope="session")
def face(tmp_path_factory: pytest.TempPathFactory) -> Face:
    return Face(tmp_path_factory.mktemp("face"))
