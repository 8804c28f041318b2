# SPDX-License-Identifier: Apache-2.0
"""Recordings: programs are recorded, their histories read, and run through a dry heap.

Public, as names of `spanwise`: `Recording`, `RecordingSet`, `Summary`, `Site` and `record`.
"""
