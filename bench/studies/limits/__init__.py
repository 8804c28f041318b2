# SPDX-License-Identifier: Apache-2.0
"""Prototypes that price each requirement of an allocator (docs/design/limits.md)."""
