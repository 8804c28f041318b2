# SPDX-License-Identifier: Apache-2.0
"""The size-class generator: constants -> classes -> proofs -> outputs.

`model` has tables and their rules, `families` makes the named tables, `proofs` proves the
arithmetic, `tablefile` reads a user's table, `emit` writes C and text, `cli` is the command of
`scripts/sizeclasses.py`.

It needs only the standard library and is not part of the package `spanwise`, because it runs before
the extension, which `import spanwise` loads, is compiled.
"""
