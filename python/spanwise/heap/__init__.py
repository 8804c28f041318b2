# SPDX-License-Identifier: Apache-2.0
"""Heaps: memory of their own, blocks in it, and whole workloads run in them.

Public, as names of `spanwise`: `Heap`, `HeapStats` and `Block`.
"""
