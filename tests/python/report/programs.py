# SPDX-License-Identifier: Apache-2.0
"""Recordings of programs whose waste is known: operations, and the memory of their processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import spanwise as sw
from spanwise._lib import OPS_DTYPE, lib
from spanwise.recordings import sources
from spanwise.report.advice import AdviceList

MIB = 1 << 20


def allocations(sizes: list[int], sites: list[int] | None = None) -> np.ndarray:
    """Allocate one object of each size, a microsecond apart."""
    ops = np.zeros(len(sizes), OPS_DTYPE)
    ops["kind"] = lib.SW_OP_ALLOC
    ops["object"] = np.arange(len(sizes))
    ops["size"] = sizes
    ops["site"] = sites if sites is not None else 1
    ops["time_ns"] = np.arange(len(sizes)) * 1000
    return ops


def frees(objects: np.ndarray, after_ns: int) -> np.ndarray:
    """Free these objects, a microsecond apart."""
    ops = np.zeros(len(objects), OPS_DTYPE)
    ops["kind"] = lib.SW_OP_FREE
    ops["object"] = objects
    ops["time_ns"] = after_ns + np.arange(len(objects)) * 1000
    return ops


def said(found: AdviceList, name: str) -> str:
    """The texts of the findings with a name."""
    return "; ".join(text for each, text in found.findings if each == name)


PARTS = {
    "rss_peak": 30 * MIB,
    "rss_ns": 1000,
    "rss_malloc": 20 * MIB,
    "rss_mapped": 2 * MIB,
    "rss_data": MIB,
    "rss_file": 4 * MIB,
    "rss_recorder": 3 * MIB,
    "rss_end_malloc": 15 * MIB,
    "rss_kept_ns": 10_239_000,
    "rss_kept_op": 10_240,
    "rss_kept_malloc": 16 * MIB,
    "rss_kept_requested": 10 * MIB,
    "rss_kept_pages": 12 * MIB,
}


"""A process whose malloc had 20 MiB resident, and then 16 with objects in 12."""


def in_process(
    ops: np.ndarray,
    path: Path,
    sites: Sequence[tuple[int, ...]] = (),
    program: str = "app",
    /,
    **parts: int | str,
) -> sw.Recording:
    values = {"program": f"/opt/{program}", **PARTS, **parts}
    meta = [(name, str(value)) for name, value in values.items()]
    sources.write_ops(path, iter([ops]), meta, sites)
    return sw.Recording.open(path)
