# SPDX-License-Identifier: Apache-2.0
"""The last operation on each object until a moment: what is live then, its size and its site."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import lib


@dataclass
class Latest:
    """The last operation on each object so far: size, site, thread and time, by object id."""

    size: NDArray[np.uint64]
    site: NDArray[np.uint32]
    thread: NDArray[np.uint32]
    time_ns: NDArray[np.uint64]
    live: NDArray[np.bool_]

    @classmethod
    def until(cls, blocks: Iterator[NDArray[np.void]], ops: int) -> Latest:
        """Of the first `ops` operations."""
        found = cls(
            np.zeros(0, np.uint64),
            np.zeros(0, np.uint32),
            np.zeros(0, np.uint32),
            np.zeros(0, np.uint64),
            np.zeros(0, bool),
        )
        for block in blocks:
            found._add(block[:ops])
            ops -= len(block)
            if ops <= 0:
                break
        return found

    def _add(self, block: NDArray[np.void]) -> None:
        rows = block[block["kind"] != lib.SW_OP_THREAD_END]
        if not len(rows):
            return
        more = max(int(rows["object"].max()) + 1 - len(self.live), 0)
        if more:
            more = max(more, len(self.live))
            self.size, self.site, self.thread, self.time_ns, self.live = (
                np.concatenate([one, np.zeros(more, one.dtype)])
                for one in (self.size, self.site, self.thread, self.time_ns, self.live)
            )
        # If an index is repeated, numpy keeps the last value.
        self.size[rows["object"]] = rows["size"]
        self.site[rows["object"]] = rows["site"]
        self.thread[rows["object"]] = rows["thread"]
        self.time_ns[rows["object"]] = rows["time_ns"]
        self.live[rows["object"]] = rows["kind"] != lib.SW_OP_FREE
