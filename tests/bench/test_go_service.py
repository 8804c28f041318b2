# SPDX-License-Identifier: Apache-2.0
"""The message service of bench/arenas/go sends the replies of ours, by any number of workers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from driver.contenders import go_program
from driver.tools import NoPeerError
from spanwise.lessons.service import serve

MESSAGES, CONNECTIONS = 3000, 100


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return go_program("arenas/go", "arenas")
    except NoPeerError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("threads", "rate"), [(1, 0), (2, 0), (3, 200_000)])
def test_replies_of_workers_are_ours(program: Path, threads: int, rate: int) -> None:
    numbers = map(str, (threads, MESSAGES, CONNECTIONS, rate))
    printed = subprocess.check_output([program, "workers", *numbers])
    ours = serve("heap", messages=MESSAGES, connections=CONNECTIONS, threads=threads)
    sides = json.loads(printed)
    assert list(sides) == ["arena", "heap", "one", "static"]
    for side in sides.values():
        assert side["checksum"] == ours.checksum % 2**32
        assert ("p50_ns" in side) == (rate > 0)
        if rate:
            assert 0 < side["p50_ns"] <= side["p99_ns"] <= side["p999_ns"]
