# SPDX-License-Identifier: Apache-2.0
"""Where the pages of a pair lie in the machine's memory."""
