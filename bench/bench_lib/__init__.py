# SPDX-License-Identifier: Apache-2.0
"""Runs the bench programs beside other allocators, compares, and keeps the scoreboard."""
