# SPDX-License-Identifier: Apache-2.0
"""Range allocators, which manage offsets in [0, size), and multi-buffer memory with readers.

Public, as names of `spanwise`: `RangeAllocator`, `BuddyAllocator` and `RangeStats`; `Memory` and
`Reader`; `ScalableAllocator`, `ScalableBlock`, `ScalableStats` and `RecyclableMemory`; `Stack`,
`StackBlock`, `StackPointer` and `StackStats`; `MemoryAllocator`.
"""
