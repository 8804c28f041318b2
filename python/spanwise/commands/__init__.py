# SPDX-License-Identifier: Apache-2.0
"""The commands by subject: `add_NAME(subparsers)` declares one, `run_NAME(options)` runs it.

All commands have `--help` with an example and `--json`. Exit status: 0 for success, 1 for a
finding, 2 for wrong usage or bad input, 130 after Ctrl-C. An error is one line on stderr.
"""
