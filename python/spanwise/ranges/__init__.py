# SPDX-License-Identifier: Apache-2.0
"""Range allocators: which parts of [0, size) are taken; and bytes in several buffers, read as one.

Public, as names of `spanwise`: `RangeAllocator`, `BuddyAllocator` and `RangeStats`; `Memory` and
`Reader`; `ScalableAllocator`, `ScalableBlock`, `ScalableStats` and `RecyclableMemory`; `Stack`,
`StackBlock`, `StackPointer` and `StackStats`; `MemoryAllocator`.
"""
