# SPDX-License-Identifier: Apache-2.0
"""Pools and slabs: blocks of one size, or of a few sizes, that are reused instead of freed.

Public, as names of `spanwise`: `Pool`, `PoolStats`, `SlabBlock`, `SlabsStats` and `TieredSlabs`.
"""
