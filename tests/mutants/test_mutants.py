# SPDX-License-Identifier: Apache-2.0
"""Each bug of the tables can still be planted, and the tests that are to find it exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.run import ROOT, Mutant, mutants


def is_there(test: str) -> bool:
    """Whether a row's test is a pytest file or folder, or a program of tests/unit."""
    folder = Path() if "/" in test else Path("tests/unit")
    return any((ROOT / folder / f"{test}{ending}").exists() for ending in ("", ".c", ".cpp"))


@pytest.mark.parametrize("one", mutants(), ids=lambda one: Path(one.file).name)
def test_each_bug_can_be_planted(one: Mutant) -> None:
    assert one.mutated() != (ROOT / one.file).read_text(encoding="utf-8")
    assert one.tests and all(map(is_there, one.tests))
