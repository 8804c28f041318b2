# SPDX-License-Identifier: Apache-2.0
"""Heaps: allocate blocks in them, or run whole workloads.

Public, as names of `spanwise`: `Heap`, `HeapStats` and `Block`.
"""
