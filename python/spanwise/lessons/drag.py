# SPDX-License-Identifier: Apache-2.0
"""Drag: dead bytes that wait in a group for its last object, because the group is freed whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from spanwise import _lib
from spanwise.errors import InvalidError


class Drag(NamedTuple):
    """Bytes times time, in bytes and whatever unit the times have.

    Attributes:
        live: of objects between their birth and their death.
        held: of groups between the birth of their first object and the death of their last one.
    """

    live: float
    held: float

    @property
    def held_over_live(self) -> float:
        """`held` over `live`; 1 if no object waits for another one."""
        return self.held / self.live


def group_drag(
    sizes: ArrayLike, births: ArrayLike, deaths: ArrayLike, *, group: int, group_bytes: int = 0
) -> Drag:
    """What it costs to free objects in groups, as arenas do.

    Objects join groups in the order of their births, `group` in each; the last group may have
    fewer. A group takes memory as its objects arrive and gives all of it back at its last death.

    Args:
        sizes: bytes of each object.
        births: when each is allocated.
        deaths: when each is used for the last time; not before its birth.
        group: objects of a group; 1 is freeing one by one.
        group_bytes: the least that a group holds from its first birth on, as an arena's chunk does.

    Raises:
        InvalidError: arrays of different or no length, a death before a birth, or a group of 0.
    """
    size, birth, death = (np.asarray(column, np.float64) for column in (sizes, births, deaths))
    if not size.ndim == 1 or not size.shape == birth.shape == death.shape or not len(size):
        raise InvalidError("sizes, births and deaths must be lists of one length, at least 1")
    if (death < birth).any():
        raise InvalidError("an object dies before its birth")
    each = _lib.as_index(group, "group")
    if each == 0:
        raise InvalidError("group 0: a group has at least 1 object")
    order = np.argsort(birth, kind="stable")
    size, birth, death = size[order], birth[order], death[order]
    first = np.arange(0, len(size), each)
    end = np.maximum.reduceat(death, first)
    number = np.arange(len(size)) // each
    held = size * (end[number] - birth)
    total = np.add.reduceat(held, first)
    if group_bytes:
        least = float(_lib.as_index(group_bytes, "group_bytes"))
        sums = np.cumsum(size)
        before = sums - size - (sums[first] - size[first])[number]
        covered = np.clip(least - before, 0, size) * (end[number] - birth)
        total += least * (end - birth[first]) - np.add.reduceat(covered, first)
    return Drag(float((size * (death - birth)).sum()), float(total.sum()))
