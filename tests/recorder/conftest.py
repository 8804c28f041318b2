# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the recorder's tests."""

from __future__ import annotations

import pytest

from tests.recorder.tools import CC, PROGRAMS, Recorder
from tests.skips import skip_without_c


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_c(items, PROGRAMS, CC)


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return Recorder(tmp_path_factory.mktemp("recorder"))
