# SPDX-License-Identifier: Apache-2.0
"""What fitted tables gain on inputs that they were not fitted to."""
