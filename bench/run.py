#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks against other allocators: ./dev bench --help."""

from __future__ import annotations

import sys

from driver.cli import main

if __name__ == "__main__":
    sys.exit(main())
