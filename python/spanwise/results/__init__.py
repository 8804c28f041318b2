# SPDX-License-Identifier: Apache-2.0
"""Helpers for results: rows that other tools read, equality, JSON, files, progress.

Public, as a name of `spanwise`: `Rows`.
"""
