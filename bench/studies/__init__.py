# SPDX-License-Identifier: Apache-2.0
"""Studies: each answers one question once. ./dev study lists them; docs/ tells what they found."""
