# SPDX-License-Identifier: Apache-2.0
"""Checks that the Python packages keep the order of python/ROOMS.md.

The sources are parsed, not imported. A module may import only its own room and the rooms that its
line allows; a function may also import the rooms that draw. Imports have no cycle. Only the rooms
that draw import matplotlib, only `_lib.py` imports the extension, and python/spanwise has at most
25 entries. Exit status: 0 clean, 1 violations (one line each), 2 bad usage or input.

Example:
    python3 scripts/check_rooms.py
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from checking import InputError, Room, command_line, read_rooms, run

PAGE = "python/ROOMS.md"
PACKAGE = "python/spanwise"
ENTRIES_MAX = 25
DRAWING = ("plots", "report")
EXTENSION = "spanwise._spanwise"
DOOR = "spanwise._lib"


@dataclass(frozen=True)
class Import:
    """One imported module.

    Attributes:
        module: its dotted name; for our own packages the name of the file's module.
        line: number of the line.
        in_function: it is imported when a function is called, not when the module is loaded.
    """

    module: str
    line: int
    in_function: bool


@dataclass
class Module:
    """A source file: its dotted name, its room and its imports."""

    name: str
    path: str
    room: Room | None
    imports: list[Import]


class _Reader(ast.NodeVisitor):
    """Collects the imports of a module."""

    def __init__(self, name: str, is_package: bool, names: set[str]) -> None:
        self.package = name if is_package else name.rpartition(".")[0]
        self.names = names
        self.imports: list[Import] = []
        self._functions = 0

    def _add(self, module: str, node: ast.stmt | ast.expr) -> None:
        self.imports.append(Import(module, node.lineno, self._functions > 0))

    def visit_Import(self, node: ast.Import) -> None:
        """Add the modules of `import a.b`."""
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Add the module of `from a import b`: a.b if there is such a file, else a."""
        base = node.module or ""
        if node.level:
            parts = self.package.split(".")
            up = parts[: len(parts) - node.level + 1]
            base = ".".join([*up, *([node.module] if node.module else [])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            self._add(inner if inner in self.names or inner == EXTENSION else base, node)

    def visit_Call(self, node: ast.Call) -> None:
        """Add the module of `import_module("a.b")`."""
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in ("import_module", "__import__") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self._add(first.value, node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Skip imports that are only for type checkers."""
        if ast.unparse(node.test).rpartition(".")[2] != "TYPE_CHECKING":
            self.generic_visit(node)

    def _visit_function(self, node: ast.AST) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function  # noqa: N815


def read_modules(python: Path, rooms: Iterable[Room]) -> list[Module]:
    """Read every source of the packages in `python`.

    Raises:
        InputError: there is no source, or one has a syntax error.
    """
    sources = {}
    for path in sorted(python.glob("*/**/*.py")):
        parts = path.relative_to(python).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        sources[".".join(parts[:-1] if is_package else parts)] = (path, is_package)
    if not sources:
        raise InputError(f"{python}: no Python source in a package")
    modules = []
    for name, (path, is_package) in sources.items():
        inside = path.relative_to(python).as_posix()
        reader = _Reader(name, is_package, set(sources))
        try:
            reader.visit(ast.parse(path.read_text(encoding="utf-8")))
        except SyntaxError as error:
            raise InputError(f"python/{inside}:{error.lineno}: {error.msg}") from None
        room = next((one for one in rooms if one.owns(inside)), None)
        modules.append(Module(name, f"python/{inside}", room, reader.imports))
    return modules


def check_order(modules: Iterable[Module]) -> Iterator[str]:
    """Yield a line for each import that the room does not allow, and each module without a room."""
    room_of = {module.name: module.room for module in modules}
    for module in modules:
        if module.room is None:
            yield f"{module.path}:1: in no room of {PAGE}; add its folder there"
            continue
        for item in module.imports:
            where = f"{module.path}:{item.line}"
            if item.module.partition(".")[0] == "matplotlib" and module.room.name not in DRAWING:
                yield f"{where}: imports {item.module}; only {' and '.join(DRAWING)} may"
            if item.module == EXTENSION and module.name != DOOR:
                yield f"{where}: imports the extension; only {DOOR} may"
            target = room_of.get(item.module)
            if target is None or target.name in module.room.allowed:
                continue
            if not (item.in_function and target.name in DRAWING):
                room = module.room.name
                yield f"{where}: room {room} may not import {target.name} ({item.module})"


def check_cycles(modules: Iterable[Module]) -> Iterator[str]:
    """Yield a line if modules import each other in a cycle when they are loaded."""
    names = {module.name for module in modules}
    graph = {m.name: {i.module for i in m.imports if not i.in_function} & names for m in modules}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"cycle of imports: {' <- '.join(error.args[1])}"


def check_entries(package: Path) -> Iterator[str]:
    """Yield a line if the package has too many entries."""
    entries = [
        path for path in package.iterdir() if path.name != "__pycache__" and path.suffix != ".pyi"
    ]
    if len(entries) > ENTRIES_MAX:
        yield f"{PACKAGE}: {len(entries)} entries; at most {ENTRIES_MAX}"


def main(arguments: list[str] | None = None) -> int:
    """Run all checks and return the exit status."""
    root = command_line(__doc__).parse_args(arguments).root

    def work() -> tuple[list[str], str]:
        rooms = read_rooms((root / PAGE).read_text(encoding="utf-8"), "ROOMS.md", "room")
        modules = read_modules(root / "python", rooms)
        checks = (check_order(modules), check_cycles(modules), check_entries(root / PACKAGE))
        violations = [line for check in checks for line in check]
        return violations, f"{len(rooms)} rooms, {len(modules)} modules"

    return run("check_rooms", work, "violations")


if __name__ == "__main__":
    sys.exit(main())
