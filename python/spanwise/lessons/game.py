# SPDX-License-Identifier: Apache-2.0
"""A game that spawns and drops NPCs, played with four policies about those that leave.

The frames are timed in C (src/lesson/game.c), on a heap with a collector.
"""

from __future__ import annotations

from typing import NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import ffi, lib
from spanwise.errors import InvalidError
from spanwise.tables.table import SizeClassTable, as_table

POLICIES = ("none", "list", "capped", "aged")
"""What becomes of NPCs that leave. They become garbage; or join a linked list under a lock, with an
element of 40 bytes for each; or join a list linked through the NPCs themselves, up to a capacity;
or one of two such lists, of which each collection drops the older. In the order of
sw_lesson_policy."""

LIFE_FRAMES_MAX = 256


class Game(NamedTuple):
    """What a game came to.

    Attributes:
        policy: one of POLICIES.
        frame_ns: elapsed time of each frame, shape (frames,).
        collections: cycles of the collector.
        spawned: NPCs.
        allocs: objects that were asked for.
        allocated_bytes: their blocks.
        held_bytes: of the heap at the end.
        idle: NPCs in the pool at the end.
        checksum: of what the NPCs did: the same for every policy.
    """

    policy: str
    frame_ns: NDArray[np.uint64]
    collections: int
    spawned: int
    allocs: int
    allocated_bytes: int
    held_bytes: int
    idle: int
    checksum: int

    def frame_us(self, percent: float) -> float:
        """Percentile of the frame times in microseconds; 100: the longest frame."""
        return float(np.percentile(self.frame_ns, percent)) / 1000


def play_game(
    policy: str,
    *,
    frames: SupportsIndex = 600,
    spawned: SupportsIndex = 500,
    wave: SupportsIndex = 5000,
    wave_frames: SupportsIndex = 60,
    life_frames: SupportsIndex = 30,
    capacity: SupportsIndex = 20_000,
    percent: SupportsIndex = 100,
    in_steps: bool = False,
    seed: SupportsIndex = 1,
    table: SizeClassTable | str = "go",
) -> Game:
    """Plays a game.

    Args:
        policy: one of POLICIES.
        frames: at least 1.
        spawned: NPCs that appear in a frame.
        wave: NPCs that appear in each `wave_frames`-th frame instead.
        wave_frames: 0: there are no waves.
        life_frames: an NPC stays 1 to so many frames, at most 256.
        capacity: idle NPCs of the policy "capped".
        percent: growth of the heap between collections, as GOGC; 0: none begins.
        in_steps: collections run in steps between the frames' work.
        seed: of the random numbers.
        table: size classes of the heap.

    Raises:
        InvalidError: the policy is unknown, or a number is not within these limits.
        OutOfMemoryError: no memory.
    """
    if policy not in POLICIES:
        raise InvalidError(f"policy {policy!r}: must be one of {', '.join(POLICIES)}")
    game, made = ffi.new("sw_lesson_game *"), as_table(table)
    most = (1 << 32) - 1
    game.table = made._c
    game.policy = POLICIES.index(policy)
    game.frames = _lib.as_index(frames, "frames", 1 << 24)
    game.spawned = _lib.as_index(spawned, "spawned", 1 << 24)
    game.wave = _lib.as_index(wave, "wave", 1 << 24)
    game.wave_frames = _lib.as_index(wave_frames, "wave_frames", most)
    game.life_frames = _lib.as_index(life_frames, "life_frames", LIFE_FRAMES_MAX)
    game.capacity = _lib.as_index(capacity, "capacity", most)
    game.percent = _lib.as_index(percent, "percent", most)
    game.in_steps = int(in_steps)
    game.seed = _lib.as_index(seed, "seed", most)
    if game.frames == 0 or game.life_frames == 0:
        raise InvalidError("frames and life_frames: at least 1 each")
    frame_ns = np.zeros(game.frames, np.uint64)
    score = ffi.new("sw_lesson_score *")
    lib.sw_clear_error()
    _lib.check(lib.sw_lesson_play(game, _lib.pointer(frame_ns, "uint64_t *"), score))
    return Game(policy, frame_ns, **_lib.struct_dict(score))
