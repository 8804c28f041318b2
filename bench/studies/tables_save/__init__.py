# SPDX-License-Identifier: Apache-2.0
"""What size-class tables save of real programs' memory, on inputs that they were not fitted to."""
