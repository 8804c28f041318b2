# SPDX-License-Identifier: Apache-2.0
"""Compares the binary interface of the public headers with the one on record.

The record, tests/data/interface.txt, begins with a version, major.minor, which is that of the
shared library's SONAME; then come functions and variables with their types, struct fields, and
enumerators, a line each. Within a minor version lines may be added but none may go: that is what
docs/stability.md promises. A struct whose first field is struct_bytes may get fields at its end; of
the others the number of fields is on record too. Exit status: 0 the record is true, 1 it is not (a
line for each difference, then the mend), 2 bad usage or input.

Example:
    python3 scripts/check_interface.py --write
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from checking import InputError, command_line, run
from pycparser import c_ast, c_generator, c_parser

RECORD = "tests/data/interface.txt"
HEADERS = ("spanwise.h", "fast.h", "gc_fast.h")
NUMBERS = [f"{sign}int{bits}_t" for bits in (8, 16, 32, 64) for sign in ("", "u")]
KNOWN = ["size_t", "ptrdiff_t", "intptr_t", "uintptr_t", *NUMBERS]
# The symbol that inline code needs: a library of another table has another one.
TABLE = "sw_table_is_"
# What the parser, which knows C11 alone, is spared; the headers mean the same without it.
SPARED = (
    *("__attribute__(x)=", "__extension__=", "__asm__(...)=", "__int128=long", "_Thread_local="),
    *("__thread=", "__inline=", "SW_API=", "bool=_Bool"),
)
WRITE = "python3 scripts/check_interface.py --write"
RAISE = "python3 scripts/check_interface.py --raise"
VERSION = "include/spanwise/spanwise.h"


def version_of(root: Path) -> str:
    """major.minor of the headers."""
    text = (root / VERSION).read_text(encoding="utf-8")
    found = re.search(r'^#define SPANWISE_VERSION "(\d+\.\d+)\.\d+"$', text, re.MULTILINE)
    if found is None:
        raise InputError(f"{VERSION}: no line '#define SPANWISE_VERSION \"x.y.z\"'")
    return found[1]


def raise_version(root: Path) -> None:
    """Writes the next minor version into the headers."""
    major, minor = (int(part) for part in version_of(root).split("."))
    text = (root / VERSION).read_text(encoding="utf-8")
    new = f'#define SPANWISE_VERSION "{major}.{minor + 1}.0"'
    text = re.sub(r"^#define SPANWISE_VERSION .*$", new, text, flags=re.MULTILINE)
    new = f"#define SW_VERSION_NUMBER {major * 10000 + (minor + 1) * 100}"
    text = re.sub(r"^#define SW_VERSION_NUMBER .*$", new, text, flags=re.MULTILINE)
    (root / VERSION).write_text(text, encoding="utf-8")


def preprocessed(root: Path) -> str:
    """The public headers without the C library's, whose types stand in front."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("stdbool.h", "stddef.h", "stdint.h", "string.h"):
            (Path(folder) / name).write_text("")
        words = ["cc", "-E", "-P", "-nostdinc", "-U__x86_64__", f"-I{folder}", f"-I{root}/include"]
        words += [f"-D{word}" for word in SPARED]
        done = subprocess.run(
            [*words, "-"],
            input="".join(f"#include <spanwise/{name}>\n" for name in HEADERS),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise InputError(f"the headers do not compile: {done.stderr.splitlines()[0]}")
    return "".join(f"typedef int {name};\n" for name in KNOWN) + done.stdout


class Lines:
    """The lines of the record that declarations make."""

    def __init__(self) -> None:
        self._text = c_generator.CGenerator()
        self.lines: list[str] = []

    def declaration(self, node: c_ast.Node) -> None:
        """A typedef, a function or a variable; what is static is none of the interface."""
        name = getattr(node, "name", None) or ""
        if name in KNOWN or name.startswith(TABLE):
            return
        storage = getattr(node, "storage", [])
        if not isinstance(node, (c_ast.Typedef, c_ast.Decl)) or "static" in storage:
            return
        self._types(node)
        inner = node.type
        if isinstance(node, c_ast.Typedef):
            if not isinstance(getattr(inner, "type", None), (c_ast.Struct, c_ast.Enum)):
                self.lines.append(f"type {node.name}: {self._type(inner)}")
        elif node.name is not None:
            self.lines.append(f"name {node.name}: {self._type(inner)}")

    def _type(self, node: c_ast.Node) -> str:
        """A type, without the names of parameters."""
        if isinstance(node, c_ast.FuncDecl):
            parameters = [self._type(one.type) for one in node.args.params] if node.args else []
            return f"{self._type(node.type)} ({', '.join(parameters)})"
        if isinstance(node, c_ast.PtrDecl):
            return f"{self._type(node.type)} *{' '.join(node.quals)}".rstrip()
        if isinstance(node, c_ast.ArrayDecl):
            length = self._text.visit(node.dim) if node.dim else ""
            return f"{self._type(node.type)} [{length}]"
        if isinstance(node, c_ast.TypeDecl):
            return " ".join([*node.quals, self._type(node.type)])
        if isinstance(node, (c_ast.Struct, c_ast.Union, c_ast.Enum)):
            return f"{type(node).__name__.lower()} {node.name or '{}'}"
        return " ".join(node.names)

    def _types(self, node: c_ast.Node) -> None:
        """The struct or enumeration that a declaration defines."""
        while not isinstance(node, (c_ast.Struct, c_ast.Union, c_ast.Enum)):
            if not hasattr(node, "type") or isinstance(node, c_ast.FuncDecl):
                return
            node = node.type
        if isinstance(node, c_ast.Enum):
            self._enumerators(node)
        elif node.decls:
            self._fields(node.name, node)

    def _enumerators(self, node: c_ast.Enum) -> None:
        if node.values is None:
            return
        for place, one in enumerate(node.values.enumerators):
            if not one.name.endswith("_COUNT"):
                value = self._text.visit(one.value) if one.value else f"at {place}"
                self.lines.append(f"enumerator {one.name}: {value}")

    def _fields(self, name: str, node: c_ast.Struct) -> None:
        if node.decls[0].name != "struct_bytes":
            self.lines.append(f"struct {name}: {len(node.decls)} fields")
        for place, one in enumerate(node.decls):
            label = one.name or f"_{place}"
            self.lines.append(f"struct {name} {place:02} {label}: {self._type(one.type)}")
            inner = getattr(one.type, "type", one.type)
            if getattr(inner, "decls", None):
                self._fields(f"{name}.{label}", inner)


def interface(root: Path) -> list[str]:
    """The lines of the headers as they are."""
    made = Lines()
    try:
        for node in c_parser.CParser().parse(preprocessed(root)).ext:
            made.declaration(node)
    except c_parser.ParseError as error:
        raise InputError(f"the headers: {error}") from None
    return sorted(set(made.lines))


def differences(version: str, lines: list[str], recorded: list[str]) -> Iterator[str]:
    """What is wrong with a record, a line each; what has gone within a version comes first."""
    if recorded[:1] != [version]:
        yield f"{RECORD} is of version {recorded[0] if recorded else '?'}, the headers of {version}"
        return
    for line in recorded[1:]:
        if line not in lines:
            yield f"gone within version {version}: {line}"
    for line in lines:
        if line not in recorded:
            yield f"not on record: {line}"


def main() -> int:
    """The command line."""
    parser = command_line(__doc__)
    parser.add_argument("--write", action="store_true", help="writes the record anew")
    parser.add_argument(
        "--raise", dest="raised", action="store_true", help="raises the minor version first, too"
    )
    options = parser.parse_args()
    if options.raised:
        raise_version(options.root)
    path: Path = options.root / RECORD

    def work() -> tuple[list[str], str]:
        version, lines = version_of(options.root), interface(options.root)
        recorded = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = list(differences(version, lines, recorded))
        broken = any(one.startswith("gone") for one in found)
        if options.raised or (options.write and not broken):
            path.write_text("\n".join([version, *lines]) + "\n", encoding="utf-8")
            found = []
        if found:
            found.append(f"mend: {RAISE if broken else WRITE}")
        return found, f"{len(lines)} lines of version {version}"

    return run("check_interface", work, "lines to mend")


if __name__ == "__main__":
    raise SystemExit(main())
