# SPDX-License-Identifier: Apache-2.0
"""The commands, by subject: `add_NAME(subparsers)` declares one, `run_NAME(options)` does it.

The contract of all: `--help` with an example; `--json` for machines; exit 0 when all is well, 1 on
a finding, 2 on wrong use or bad input, 130 on Ctrl-C; an error is one line on stderr.
"""
