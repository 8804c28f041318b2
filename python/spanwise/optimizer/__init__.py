# SPDX-License-Identifier: Apache-2.0
"""The size-class table that wastes least for given recordings, and its evaluation.

Public, as names of `spanwise`: `optimize`, `cross_validate`, `OptimizeResult`, `Constraint`,
`ParetoFront` and `Evaluation`.
"""
