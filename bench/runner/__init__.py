# SPDX-License-Identifier: Apache-2.0
"""What scoreboard and studies share: contenders, interleaved runs, statistics, children."""
