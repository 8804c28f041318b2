# SPDX-License-Identifier: Apache-2.0
"""Runs the rows of bench/targets.toml interleaved and prints ratios with intervals."""
