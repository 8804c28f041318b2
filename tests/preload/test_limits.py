# SPDX-License-Identifier: Apache-2.0
"""The preloaded malloc in programs that limit or lock their own memory after their start."""

from __future__ import annotations

import pytest

from tests.preload.tools import Preload

REFUSED = 77
"""Exit status: the system does not let the program lock memory."""

tracked_or_not = pytest.mark.parametrize("tracked", ["0", "1"], ids=["plain", "tracked"])


@tracked_or_not
@pytest.mark.parametrize("mode", ["addresses", "data", "repeat", "nothing_more"])
def test_limit_set_after_start(preload: Preload, mode: str, tracked: str) -> None:
    done = preload.run([preload.program("limits.c"), mode], TRACKED=tracked)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("thp", ["", "advise"], ids=["small pages", "huge pages"])
def test_all_memory_locked(preload: Preload, thp: str) -> None:
    done = preload.run([preload.program("limits.c"), "lock"], {"THP": thp} if thp else {})
    if done.returncode == REFUSED:
        pytest.skip("mlockall is refused: run as root, or raise ulimit -l")
    assert (done.returncode, done.stderr) == (0, "")
