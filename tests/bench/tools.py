# SPDX-License-Identifier: Apache-2.0
"""Shared helpers of the bench tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"


def bench_build(program: str) -> Path:
    """Return the folder of the bench programs; skip the test if `program` was not built."""
    build = Path(os.environ.get("SPANWISE_BENCH_BUILD", ROOT / "build/bench"))
    if not (build / program).is_file():
        pytest.skip(f"no {program} in {build}: ./dev test builds it")
    return build
