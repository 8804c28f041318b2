#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real programs under libspanwise-malloc.so and its peers: ./dev real --help."""

from __future__ import annotations

import sys

from real.cli import main

if __name__ == "__main__":
    sys.exit(main())
