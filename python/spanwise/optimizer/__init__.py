# SPDX-License-Identifier: Apache-2.0
"""Find the size-class table that wastes least on given recordings, and evaluate it.

Public, as names of `spanwise`: `optimize`, `OptimizeResult`, `ParetoFront` and `Evaluation`.
"""
