# SPDX-License-Identifier: Apache-2.0
"""Sweeps: ledgers of many recordings under many tables, on any executor.

Public, as names of `spanwise`: `sweep`, `Sweep` and `SweepInterrupted`.
"""
