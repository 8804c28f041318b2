#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the allocation benches beside other allocators: ./dev bench --help-options."""

from __future__ import annotations

import sys

from scoreboard.cli import main

if __name__ == "__main__":
    sys.exit(main())
