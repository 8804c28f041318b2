# SPDX-License-Identifier: Apache-2.0
"""Collected heaps: types, graphs, cycles.

Public, as names of `spanwise`: `CollectedHeap`, `CollectedObject`, `Graph`, `ObjectType`,
`WeakObject`, `Ephemeron`, `Cycle`, `CollectorEvents`, `random_graph`, `binary_tree`,
`linked_list`, `pause_histogram`, `mutator_utilisation`, `GcTrace`, `parse_gctrace`, `read_gctrace`.
"""
