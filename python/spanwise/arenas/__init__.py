# SPDX-License-Identifier: Apache-2.0
"""Arenas: objects that are allocated one by one and freed together.

Public, as names of `spanwise`: `Arena` and `ArenaStats`.
"""
