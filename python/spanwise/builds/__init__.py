# SPDX-License-Identifier: Apache-2.0
"""Builds: compile the library and the preloaded malloc with a custom table.

Public, as names of `spanwise`: `build`, `Build` and `BuildError`.
"""
