# SPDX-License-Identifier: Apache-2.0
"""Runnable examples of what articles about memory measured (docs/design/lesson.md)."""
