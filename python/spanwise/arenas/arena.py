# SPDX-License-Identifier: Apache-2.0
"""Arenas whose objects are numpy arrays (docs/design/arena.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import InvalidError
from spanwise.results.values import Result

MODES = ("default", "off", "auto", "force")
"""Where objects come from, in the order of sw_arena_mode; "default" is what SPANWISE_ARENA says."""


@dataclass(frozen=True)
class ArenaStats(Result):
    """Figures of an arena.

    Attributes:
        chunks: that it has.
        chunk_bytes: their sum.
        used_bytes: of them: cut off, with what alignment skipped.
        slack_bytes: of them: left in chunks that are not the newest.
        own_objects: objects of the heap or, in mode "off", of the C library.
        own_bytes: as requested.
        fallbacks: objects of the heap because a chunk was refused.
        resets: calls of reset.
    """

    chunks: int
    chunk_bytes: int
    used_bytes: int
    slack_bytes: int
    own_objects: int
    own_bytes: int
    fallbacks: int
    resets: int

    def to_dict(self) -> dict[str, int]:
        """All of it, for JSON."""
        return asdict(self)


def _free(c_arena: Any) -> None:
    """Ends an arena that nobody knows any more, in whatever thread the collector runs."""
    check(lib.sw_arena_free(c_arena))


class Arena(_lib.Owner):
    """Memory for arrays that are freed together, in one step.

    An array keeps its arena alive. While an array lives, or one that was derived from it, `reset`
    and `close` raise BlockBusyError (a BufferError): no array ever reads memory that is gone.

    Example:
        with Arena() as arena:
            totals = arena.zeros(1000)
            totals[:] = 1
            del totals
    """

    def __init__(
        self,
        *,
        mode: str = "default",
        chunk_bytes: int = 65536,
        limit_bytes: int | None = None,
        safe: bool = False,
    ) -> None:
        """Makes an arena without objects.

        Args:
            mode: one of MODES.
            chunk_bytes: of each chunk, a power of two from 4096 to 2^30.
            limit_bytes: the most bytes of chunks; None: no limit.
            safe: memory that is used after its end faults, with a report, also in C code.

        Raises:
            InvalidError: one of them is not within these limits.
            UnsupportedError: a safe arena of mode "off", or where the system tells of no faults.
        """
        if mode not in MODES:
            raise InvalidError(f"mode {mode!r}: must be one of {', '.join(MODES)}")
        options = ffi.new("sw_arena_options *")
        lib.sw_arena_options_init(options)
        options.mode = MODES.index(mode)
        options.chunk_bytes = _lib.as_index(chunk_bytes, "chunk_bytes")
        if limit_bytes is not None:
            options.limit_bytes = max(_lib.as_index(limit_bytes, "limit_bytes"), 1)
        options.safe = int(safe)
        options.locked = 1
        out = ffi.new("sw_arena **")
        check(lib.sw_arena_create(options, out))
        super().__init__(out[0], _free)

    # --- the end ---

    def close(self) -> None:
        """Frees the arena and all of its memory; a second call does nothing.

        Raises:
            BlockBusyError: an array of it lives; the arena stays as it was.
        """
        super().close()

    def _end(self) -> None:
        check(lib.sw_arena_free(self._c))
        self._finalizer.detach()

    def reset(self) -> None:
        """Ends all objects; the arena keeps a chunk for the next ones.

        Raises:
            BlockBusyError: an array of it lives; the arena stays as it was.
            StateError: the arena is closed.
        """
        with self._lock:
            check(lib.sw_arena_reset(self._open()))

    # --- objects ---

    def zeros(self, shape: int | Sequence[int], dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """An array of zeroes in the arena, aligned to 64 bytes.

        Args:
            shape: its length, or one of each axis.
            dtype: of its elements; no Python objects.

        Raises:
            InvalidError: a length is negative, or the type holds Python objects.
            OutOfMemoryError: there is no memory.
            LimitError: the limit is reached, in mode "force" and of safe arenas.
            StateError: the arena is closed.
        """
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise InvalidError(f"type {kind} holds Python objects, which no arena knows")
        axes = shape if isinstance(shape, Sequence) else (shape,)
        lengths = tuple(_lib.as_index(length, "length") for length in axes)
        size = _lib.as_index(math.prod(lengths) * kind.itemsize, "size")
        array: NDArray[Any] = np.ndarray(lengths, kind, buffer=self._export(size))
        return array

    def _export(self, size: int) -> Any:
        """A buffer that holds the arena until the last array over it is gone."""
        with self._lock:
            arena = self._open()
            memory = lib.sw_arena_alloc(arena, size, 64, lib.SW_ZERO)
            if memory == ffi.NULL:
                check(lib.sw_last_error().status)
            check(lib.sw_arena_hold(arena))
        return ffi.buffer(ffi.gc(memory, self._unexport), size)

    def _unexport(self, _: object) -> None:
        lib.sw_arena_unhold(self._c)  # an arena that is held is not freed, so it is there

    # --- figures ---

    def stats(self) -> ArenaStats:
        """All figures at one moment.

        Raises:
            StateError: the arena is closed.
        """
        stats = ffi.new("sw_arena_stats *")
        with self._lock:
            check(lib.sw_arena_get_stats(self._open(), stats))
        return ArenaStats(**_lib.struct_dict(stats))

    def __repr__(self) -> str:
        with self._lock:
            if self._c is None:
                return "<Arena, closed>"
            stats = self.stats()
        used = f"{stats.used_bytes:,} of {stats.chunk_bytes:,} B used"
        return f"<Arena of {stats.chunks} chunks, {used}>"
