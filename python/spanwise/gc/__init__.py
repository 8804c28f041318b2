# SPDX-License-Identifier: Apache-2.0
"""Collected heaps: types, graphs, cycles.

Public, as names of `spanwise`: `CollectedHeap`, `CollectedObject`, `Graph`, `ObjectType`, `Cycle`,
`random_graph`, `binary_tree`, `linked_list`.
"""
