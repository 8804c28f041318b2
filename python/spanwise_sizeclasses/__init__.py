# SPDX-License-Identifier: Apache-2.0
"""The size-class generator: constants -> classes -> proofs -> outputs.

`model` has tables and their rules, `families` the named tables, `proofs` checks the arithmetic,
`tablefile` reads a user's table, `emit` writes C and text, and `cli` is the command line of
`scripts/sizeclasses.py`.

It needs only the standard library and is not part of the package `spanwise`, which needs the
compiled extension, because it runs before the extension is compiled.
"""
