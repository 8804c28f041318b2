# SPDX-License-Identifier: Apache-2.0
"""Recordings that the tests of the optimizer share."""

from __future__ import annotations

import pytest
import spanwise as sw
from spanwise.optimizer import search

from tests.python.helpers import random_ops


@pytest.fixture(scope="module")
def program() -> sw.Recording:
    return sw.Recording.from_ops(random_ops(5, 6_000), name="program")


@pytest.fixture(scope="module")
def other() -> sw.Recording:
    return sw.Recording.from_ops(random_ops(6, 4_000), name="other")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exclude all families, so that a figure by hand decides."""
    monkeypatch.setattr(search, "FAMILIES", ())
