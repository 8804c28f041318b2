#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the allocation benches beside other allocators: ./dev bench --help-options."""

from __future__ import annotations

import sys

from bench_lib import anatomy_cli, cli, limits_cli


def main() -> int:
    """What the words ask for; --anatomy and --limits have options of their own."""
    words = sys.argv[1:]
    if "--anatomy" in words:
        return anatomy_cli.main([word for word in words if word != "--anatomy"])
    if "--limits" in words:
        return limits_cli.main([word for word in words if word != "--limits"])
    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main())
