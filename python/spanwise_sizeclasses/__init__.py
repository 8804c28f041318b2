# SPDX-License-Identifier: Apache-2.0
"""The size-class generator: constants -> classes -> proofs -> outputs.

`model` says what a table is, `rules` what every table obeys, `procedure` makes the classes of `go`
and `c16`, `proofs` shows that the arithmetic holds, `tablefile` reads a user's table, `emit_c` and
`emit_text` write it down, `cli` is the command that `scripts/sizeclasses.py` fronts.

It needs nothing but the standard library and stands beside the package `spanwise`, not in it: it
runs before the extension, which `import spanwise` loads, has been compiled.
"""
