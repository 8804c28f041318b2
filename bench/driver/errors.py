# SPDX-License-Identifier: Apache-2.0
"""Errors of the bench driver."""

from __future__ import annotations


class BenchError(Exception):
    """Bad input, or a program that failed: one line that says what to do."""


class NoPeerError(BenchError):
    """A peer is not installed on this machine."""
