# SPDX-License-Identifier: Apache-2.0
"""The bugs that run.py draws: in code, and neither in comments nor in texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.mutants.run import Bug, c_bugs, python_bugs

C = """int f(int a) {
    /* a < 2 && b */
    call(a, "a < 2");
    return a < 2 ? 1 : 0;
}
"""
PYTHON = '''def f(a):
    """a < 2 and b"""
    call(a)  # a < 2
    return a < 2 and a
'''


@pytest.mark.parametrize(
    ("bugs", "text", "expected"),
    [
        (
            *(c_bugs, C),
            {
                *("    ;", "    return a <= 2 ? 1 : 0;", "    return a < 3 ? 1 : 0;"),
                *("    return a < 2 ? 2 : 0;", "    return a < 2 ? 1 : 1;"),
            },
        ),
        (
            *(python_bugs, PYTHON),
            {
                *("    pass  # a < 2", "    return a <= 2 and a", "    return a < 3 and a"),
                *("    return a < 2 or a",),
            },
        ),
    ],
    ids=["c", "python"],
)
def test_bugs(bugs: Callable[[str, str], Iterator[Bug]], text: str, expected: set[str]) -> None:
    lines = text.splitlines()
    found = [bug.mutated(text).splitlines() for bug in bugs("f", text)]
    changed = [[new for old, new in zip(lines, one, strict=True) if old != new] for one in found]
    assert sorted(changed) == sorted([line] for line in expected)
