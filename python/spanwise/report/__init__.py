# SPDX-License-Identifier: Apache-2.0
"""The report: what a recording says, on one page that needs nothing else.

Public: `Recording.to_html`, which imports this room when it is called.
"""
