# SPDX-License-Identifier: Apache-2.0
"""The report: a recording on one self-contained HTML page.

Public: `Recording.to_html`, which imports this package when it is called.
"""
