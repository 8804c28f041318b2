# SPDX-License-Identifier: Apache-2.0
"""Studies of arenas: when they pay beside pools and heaps, how large their chunks should be."""
