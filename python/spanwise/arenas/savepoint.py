# SPDX-License-Identifier: Apache-2.0
"""Savepoints of an arena."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spanwise._lib import check, lib
from spanwise._owner import Count, Made, refuse_views
from spanwise.errors import StateError

if TYPE_CHECKING:
    from spanwise.arenas.arena import Arena


class Savepoint(Made):
    """A position in the allocations of an arena; a `with` statement rewinds to it at its end."""

    __slots__ = ("_arena", "_arrays", "_c")
    _maker = "Arena.savepoint"

    def _set(self, arena: Arena, c_savepoint: Any) -> None:
        self._arena = arena
        self._arrays = Count()
        self._c = c_savepoint

    def rewind(self) -> None:
        """Free all objects and savepoints created after this one, and the savepoint.

        Raises:
            BlockBusyError: an array created after it is alive; nothing changes.
            StateError: it was freed before: by itself, with an earlier one, or by a reset.
        """
        arena = self._arena
        with arena._lock, arena._standing():
            c_arena, levels = arena._open(), arena._levels
            at = next((i for i, one in enumerate(levels) if one is self._arrays), None)
            if at is None:
                raise StateError("the savepoint was freed before; make another")
            alive = sum(one.alive for one in levels[at:])
            refuse_views(alive, "arrays created after the savepoint", "rewinding to it")
            check(lib.sw_arena_release(c_arena, self._c))
            del levels[at:]

    def __repr__(self) -> str:
        level = next((i for i, one in enumerate(self._arena._levels) if one is self._arrays), None)
        return "<Savepoint: freed>" if level is None else f"<Savepoint {level}>"

    def __enter__(self) -> Savepoint:
        return self

    def __exit__(self, *error: object) -> None:
        self.rewind()
