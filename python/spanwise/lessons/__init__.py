# SPDX-License-Identifier: Apache-2.0
"""Examples: what articles about memory measured, as something to run (docs/design/lesson.md)."""
