# SPDX-License-Identifier: Apache-2.0
"""Figures of the collector: headroom, growth of marking with the heap, and what each part saves."""
