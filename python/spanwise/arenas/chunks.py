# SPDX-License-Identifier: Apache-2.0
"""The pool of chunks that all arenas of the process share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex

from spanwise import _lib
from spanwise._lib import ffi, lib
from spanwise.results.rows import Result


@dataclass(frozen=True)
class ArenaPoolStats(Result):
    """The chunks of all arenas of the process.

    Attributes:
        arenas: live arenas.
        used_chunk_bytes: chunks of live arenas, and those that a thread keeps for its next arena.
        idle_chunk_bytes: free chunks with memory.
        returned_bytes: free chunks without memory: addresses only.
        reserved_bytes: reserved addresses.
        quarantine_bytes: chunks of freed safe arenas.
        unprotected: chunks that the system refused to protect, in total.
    """

    arenas: int
    used_chunk_bytes: int
    idle_chunk_bytes: int
    returned_bytes: int
    reserved_bytes: int
    quarantine_bytes: int
    unprotected: int


class SharedChunks:
    """Base of `Arena`: what concerns all arenas of the process."""

    @staticmethod
    def pool_stats() -> ArenaPoolStats:
        """Return the counters of the chunks of all arenas of the process."""
        made = ffi.new("sw_arena_pool_stats *")
        lib.sw_arena_get_pool_stats(made)
        return ArenaPoolStats(**_lib.struct_dict(made))

    @staticmethod
    def trim() -> int:
        """Return all idle chunks of the process and of this thread; return their bytes.

        >>> Arena.trim() >= 0 and Arena.pool_stats().idle_chunk_bytes
        0
        """
        return int(lib.sw_arena_trim())

    @staticmethod
    def set_keep(
        thread_bytes: SupportsIndex = 1 << 20, idle_bytes: SupportsIndex = 64 << 20
    ) -> None:
        """Bound the idle chunks that the process keeps for later arenas.

        Args:
            thread_bytes: of each thread.
            idle_bytes: shared by all threads.

        >>> Arena.set_keep(thread_bytes=0, idle_bytes=0)
        >>> with Arena() as arena:
        ...     size = len(arena.alloc(100))
        >>> Arena.pool_stats().idle_chunk_bytes
        0
        >>> Arena.set_keep()  # as before
        """
        lib.sw_arena_set_keep(
            _lib.as_index(thread_bytes, "thread_bytes"), _lib.as_index(idle_bytes, "idle_bytes")
        )

    @staticmethod
    def set_decay(seconds: float) -> None:
        """Return shared idle chunks to the system after this time without use; 0: never.

        >>> Arena.set_keep(thread_bytes=0)  # a thread's own idle chunks do not decay
        >>> Arena.set_decay(1e-6)
        >>> with Arena() as arena:
        ...     size = len(arena.alloc(100))
        >>> Arena.decay() >= 0, Arena.pool_stats().idle_chunk_bytes
        (True, 0)
        >>> Arena.set_decay(0)
        >>> Arena.set_keep()
        """
        lib.sw_arena_set_decay(_lib.as_nanoseconds(seconds), ffi.NULL, ffi.NULL)

    @staticmethod
    def decay() -> int:
        """Return the chunks whose time is over (`set_decay`) now; return their bytes."""
        return int(lib.sw_arena_decay())

    @staticmethod
    def set_quarantine(bytes_max: SupportsIndex = 64 << 20) -> None:
        """Bound the chunks of freed safe arenas that are inaccessible before they are reused.

        >>> Arena.set_quarantine(1 << 20)
        >>> for _ in range(30):
        ...     with Arena(safe=True) as arena:
        ...         size = len(arena.alloc(100))
        >>> 0 < Arena.pool_stats().quarantine_bytes <= 1 << 20
        True
        >>> Arena.set_quarantine()  # as before
        """
        lib.sw_arena_set_quarantine(_lib.as_index(bytes_max, "bytes_max"))
