# SPDX-License-Identifier: Apache-2.0
"""Writes the cffi declarations of the extension, from the headers that a C prelude includes.

Every typedef, struct, enumerator and function becomes a declaration, inline functions too. The C
compiler checks each of them against the headers when it compiles the extension.

    python3 scripts/ffi_cdef.py COMPILER PRELUDE.c OUT -Iinclude -Iexamples
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pycparser import c_ast, c_generator, c_parser

NUMBERS = [f"{sign}int{bits}_t" for bits in (8, 16, 32, 64) for sign in ("", "u")]
KNOWN = ["size_t", "ptrdiff_t", "intptr_t", "uintptr_t", *NUMBERS]
"""Types of the C library that cffi knows."""
EMPTY = ("stdbool.h", "stddef.h", "stdint.h", "string.h")
UNPARSED = (
    *("__attribute__(x)=", "__extension__=", "__asm__(...)=", "__int128=long", "_Thread_local="),
    *("__thread=", "__inline=", "SW_API=", "bool=_Bool"),
)
"""Replacements for tokens that pycparser does not parse."""
MACROS = ("SW_SLOT_FREE", "SW_TOUCHED_UNKNOWN")
"""Constants that are macros instead of enumerators."""


def preprocessed(compiler: str, prelude: str, flags: list[str]) -> str:
    """Return the preprocessed prelude, without headers of the C library."""
    with tempfile.TemporaryDirectory() as folder:
        for name in EMPTY:
            (Path(folder) / name).write_text("")
        words = [compiler, "-E", "-P", "-nostdinc", "-U__x86_64__", f"-I{folder}", *flags, prelude]
        words += [f"-D{word}" for word in UNPARSED]
        text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return "".join(f"typedef int {name};\n" for name in KNOWN) + text


class Lengths(c_ast.NodeVisitor):  # type: ignore[misc]
    """Replaces array lengths that are expressions by "...", which the C compiler fills in."""

    def visit_ArrayDecl(self, node: c_ast.ArrayDecl) -> None:  # noqa: N802
        """Replace the length of one array."""
        if node.dim is not None and not isinstance(node.dim, c_ast.Constant):
            node.dim = c_ast.ID("...")
        self.visit(node.type)


def declarations(tree: c_ast.FileAST) -> Iterator[str]:
    """Yield the declarations for cffi."""
    text = c_generator.CGenerator()
    for each in tree.ext:
        is_inline = isinstance(each, c_ast.FuncDef)
        node = each.decl if is_inline else each
        if getattr(node, "name", None) in KNOWN or not isinstance(node, c_ast.Typedef | c_ast.Decl):
            continue
        inner = node.type.type if isinstance(node.type, c_ast.TypeDecl) else node.type
        if isinstance(inner, c_ast.Enum):
            yield from (f"#define {one.name} ..." for one in inner.values.enumerators)
            if isinstance(node, c_ast.Typedef):
                yield f"typedef int... {node.name};"
        elif isinstance(node, c_ast.Typedef) or node.name is None or is_function(node):
            if is_inline:
                node.storage, node.funcspec = [], []
            Lengths().visit(node)
            yield f"{text.visit(node)};"


def is_function(node: c_ast.Decl) -> bool:
    """Return whether it is a function, but not an internal one of inline code."""
    return isinstance(node.type, c_ast.FuncDecl) and not node.name.endswith("_")


def main(compiler: str, prelude: str, out: str, *flags: str) -> None:
    """Write the declarations."""
    tree = c_parser.CParser().parse(preprocessed(compiler, prelude, list(flags)))
    macros = [f"#define {name} ..." for name in MACROS]
    Path(out).write_text("\n".join([*macros, *declarations(tree)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
