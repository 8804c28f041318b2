# SPDX-License-Identifier: Apache-2.0
"""Real programs under libspanwise-malloc.so and its peers."""
