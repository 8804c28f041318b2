# SPDX-License-Identifier: Apache-2.0
"""Record programs, read their histories, and run them through a dry heap.

Public, as names of `spanwise`: `Recording`, `RecordingSet`, `Summary`, `Site` and `record`.
"""
