# SPDX-License-Identifier: Apache-2.0
"""The table that wastes least for given recordings, and how it compares.

Public, as names of `spanwise`: `optimize`, `OptimizeResult`, `Constraint`, `Frontier` and `Trial`.
"""
