# SPDX-License-Identifier: Apache-2.0
"""What policies beside size classes save of real programs' memory, and cost in time."""
