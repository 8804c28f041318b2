# SPDX-License-Identifier: Apache-2.0
"""What specialised paths save, class by class, beside Go's own."""
