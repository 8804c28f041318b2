#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes one allocation apart, instruction by instruction: ./dev bench --anatomy --help."""

from __future__ import annotations

import sys

from bench_lib.anatomy_cli import main

if __name__ == "__main__":
    sys.exit(main())
