# SPDX-License-Identifier: Apache-2.0
"""Builds: the library and the preloaded malloc with a table of one's own, as compiled C.

Public, as names of `spanwise`: `build`, `Build` and `BuildError`.
"""
