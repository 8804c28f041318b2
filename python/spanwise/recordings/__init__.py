# SPDX-License-Identifier: Apache-2.0
"""Record programs, read recordings, and simulate them on a dry heap.

Public, as names of `spanwise`: `Recording`, `RecordingSet`, `Summary`, `Site` and `record`.
"""
