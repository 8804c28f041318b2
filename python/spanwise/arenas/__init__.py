# SPDX-License-Identifier: Apache-2.0
"""Arenas: objects that are allocated one by one and freed together; and a tracker of leaked arenas.

Public, as names of `spanwise`: `Arena`, `ArenaAllocator`, `ArenaPoolStats`, `ArenaStats`,
`ArenaTracker`, `Savepoint`, `TrackedArena` and `TrackerTotals`.
"""
