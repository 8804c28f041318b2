# SPDX-License-Identifier: Apache-2.0
"""One allocation taken apart, instruction by instruction."""
