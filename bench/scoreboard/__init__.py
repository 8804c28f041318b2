# SPDX-License-Identifier: Apache-2.0
"""Rows, their targets, and the verdict on each."""
