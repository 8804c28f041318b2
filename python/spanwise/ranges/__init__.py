# SPDX-License-Identifier: Apache-2.0
"""Range allocators: which parts of [0, size) are taken.

Public, as names of `spanwise`: `RangeAllocator`, `BuddyAllocator` and `RangeStats`.
"""
