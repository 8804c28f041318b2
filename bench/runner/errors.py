# SPDX-License-Identifier: Apache-2.0
"""The errors of the bench tools."""

from __future__ import annotations


class BenchError(Exception):
    """Bad input or a program that did not run: one line with the thing, the value, the mend."""


class NoPeerError(Exception):
    """What a row compares with is not on this machine."""
