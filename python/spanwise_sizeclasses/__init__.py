# SPDX-License-Identifier: Apache-2.0
"""The size-class generator: constants -> classes -> proofs -> outputs.

`model` has tables, their rules and the proofs of the arithmetic, `families` the named tables,
`tablefile` reads a user's table, `emit` writes C and text, and `cli` is the command line of
`scripts/sizeclasses.py`.

It needs only the standard library and is not part of the package `spanwise`, which needs the
compiled extension, because it runs before the extension is compiled.
"""
