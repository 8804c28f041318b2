# SPDX-License-Identifier: Apache-2.0
"""The marker for pytest: what a test itself allocates is judged, and nothing is paid without it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.python.helpers import needs_python_malloc, needs_recorder, python

TESTS = """\
import pytest
before = [bytearray(1_000_000) for _ in range(30)]

@pytest.fixture
def text(tmp_path):
    return "x" * 1000

@pytest.mark.spanwise(max_requested="1M", max_resident="4M")
def test_small(text):
    assert len([text + str(i) for i in range(300)]) == 300

@pytest.mark.spanwise(max_resident="1M", table="go")
def test_large():
    kept = [bytearray(100_000) for _ in range(40)]

@pytest.mark.spanwise(max_wast="20%")
def test_misspelt(): pass

def test_plain(): pass
"""
BROKEN = """\
import pytest
@pytest.mark.spanwise(max_waste="90%")
def test_broken(): assert 1 == 2
"""


@needs_recorder()
@needs_python_malloc()
def test_limits_of_tests(tmp_path: Path) -> None:
    """30 MB were there before; the large test keeps 4 MB of its own."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text(BROKEN)
    # Every process would load hypothesis, and record that: two fifths of all events.
    words = "--strict-markers -p no:hypothesispytest"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {words}\n")
    done = python("-m", "pytest", "-p", "no:cacheprovider", "-rf", cwd=tmp_path, timeout=600)
    said = done.stdout
    assert "3 failed, 2 passed" in said, said + done.stderr
    assert re.search(r"TOO MUCH: resident [34]\.\d MiB \([\d,]+ bytes\), at most 1.0 MiB", said)
    assert "unknown option --max-wast; did you mean --max-waste?" in said
    assert "in the recorded process:" in said and "assert 1 == 2" in said


def test_without_the_marker_nothing_is_loaded() -> None:
    text = (
        "import sys, spanwise_pytest\n"
        "item = type('Item', (), {'get_closest_marker': lambda self, name: None})()\n"
        "assert spanwise_pytest.pytest_pyfunc_call(item) is None\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('spanwise', 'numpy')])"
    )
    done = python("-c", text)
    assert done.stdout == "[]\n", done.stderr
