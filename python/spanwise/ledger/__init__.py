# SPDX-License-Identifier: Apache-2.0
"""Ledgers: where every byte that a heap holds is, side by side for several tables.

Public, as names of `spanwise`: `Ledger`, `Measure`, `Comparison` and `RunStats`.
"""
