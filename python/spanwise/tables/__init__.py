# SPDX-License-Identifier: Apache-2.0
"""Size-class tables: which slot serves a request, how spans are divided, and families of tables.

Public, as names of `spanwise`: `SizeClassTable` and `Explanation`.
"""
