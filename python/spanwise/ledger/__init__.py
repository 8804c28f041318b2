# SPDX-License-Identifier: Apache-2.0
"""Ledgers: an exact account of all bytes that a heap holds, and comparisons of tables.

Public, as names of `spanwise`: `Ledger`, `Measure`, `Comparison` and `RunStats`.
"""
