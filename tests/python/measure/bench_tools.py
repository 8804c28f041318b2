# SPDX-License-Identifier: Apache-2.0
"""Cases that the tests of benchmarks share."""

from __future__ import annotations

from typing import Any

import spanwise as sw
from spanwise.measure.bench_cases import case_of

MIB = 1 << 20
QUICK = ("spanwise", "glibc")
ALLOCATORS = ("plain", "spanwise", "glibc")
TRUE = case_of(["true"])
BYTES = "import time; x = bytes(range(256)) * (1 << 17); time.sleep(0.3)"
"""32 MiB, written and kept for a sample."""


def errors_of(case: sw.BenchCase, allocators: Any = ALLOCATORS, **options: Any) -> list[str | None]:
    """The errors of the runs of a case."""
    found = sw.bench([case], allocators, progress=False, **{"rounds": 1, **options})
    return [row["error"] for row in found]
