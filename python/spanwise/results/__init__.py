# SPDX-License-Identifier: Apache-2.0
"""What all results share: arrays of rows that other tools read, equality, JSON, files, progress.

Public, as a name of `spanwise`: `Rows`.
"""
