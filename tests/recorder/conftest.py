# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the recorder's tests."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.recorder.tools import CC, PROGRAMS, Recorder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sys.platform == "linux" and shutil.which(CC) is not None:
        return
    for item in items:
        if PROGRAMS in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs Linux and a C compiler"))


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return Recorder(tmp_path_factory.mktemp("recorder"))
