# SPDX-License-Identifier: Apache-2.0
"""Proves that the Python packages keep the order of python/ROOMS.md.

The sources are read, not imported. A module imports only its own room and the rooms above it in the
list; a function may also import the rooms that draw. Imports form no ring. Only the rooms that draw
import matplotlib, only `_lib.py` imports the extension. No module is hidden behind another thing of
its name, and python/spanwise has at most 25 entries. Exit status: 0 clean, 1 violations (one line
each), 2 bad usage or input.

Example:
    python3 scripts/check_rooms.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from checking import InputError, Room, command_line, read_rooms, run

PAGE = "python/ROOMS.md"
RESERVED_LINE = re.compile(r"^Reserved for rooms that come later: (?P<names>.*)$", re.MULTILINE)
ENTRIES_MAX = 25
PACKAGE = "spanwise"
DRAWING = ("plots", "report")
EXTENSION = "spanwise._spanwise"
DOOR = "spanwise._lib"


@dataclass(frozen=True)
class Import:
    """One imported module.

    Attributes:
        module: its dotted name; of our own packages the name of the file that is meant.
        line: where.
        in_function: it is imported when a function is called, not when the module is loaded.
    """

    module: str
    line: int
    in_function: bool


@dataclass
class Module:
    """A source file: its dotted name, its room, what it imports and what names it binds."""

    name: str
    path: str
    room: Room | None
    imports: list[Import]
    bound: dict[str, tuple[int, str | None]]


# --- reading --------------------------------------------------------------------------------------


def read_reserved(text: str) -> list[str]:
    """The names that ROOMS.md keeps free for rooms that come later."""
    reserved = RESERVED_LINE.search(text)
    return re.findall(r"`([a-z]+)`", reserved["names"]) if reserved else []


class _Reader(ast.NodeVisitor):
    """Collects what a module imports and, at its top level, which names it binds to what."""

    def __init__(self, name: str, is_package: bool, names: set[str]) -> None:
        self.parent = name if is_package else name.rpartition(".")[0]
        self.names = names
        self.imports: list[Import] = []
        self.bound: dict[str, tuple[int, str | None]] = {}
        self._functions = 0

    def _add(self, module: str, node: ast.AST) -> None:
        self.imports.append(Import(module, getattr(node, "lineno", 1), self._functions > 0))

    def _bind(self, name: str, node: ast.AST, module: str | None) -> None:
        if not self._functions:
            self.bound[name] = (getattr(node, "lineno", 1), module)

    def visit_Import(self, node: ast.Import) -> None:
        """`import a.b`, perhaps `as c`."""
        for alias in node.names:
            self._add(alias.name, node)
            bound = alias.name if alias.asname else alias.name.partition(".")[0]
            self._bind(alias.asname or bound, node, bound)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """`from a import b`: the module a.b where there is such a file, else a."""
        base = node.module or ""
        if node.level:
            up = self.parent.split(".")[: len(self.parent.split(".")) - node.level + 1]
            base = ".".join([*up, *([node.module] if node.module else [])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            is_module = inner in self.names or inner == EXTENSION
            self._add(inner if is_module else base, node)
            self._bind(alias.asname or alias.name, node, inner if is_module else None)

    def visit_Call(self, node: ast.Call) -> None:
        """`import_module("a.b")` counts as an import too."""
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else None
        called = function.id if isinstance(function, ast.Name) else called
        if called in ("import_module", "__import__") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self._add(first.value, node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """What only a type checker sees is free, but its names are the module's all the same."""
        test = node.test
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
        if name != "TYPE_CHECKING":
            self.generic_visit(node)
            return
        loaded = list(self.imports)
        for child in node.body:
            self.visit(child)
        self.imports = loaded
        for child in node.orelse:
            self.visit(child)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name, node, None)
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function  # noqa: N815  ast's names

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A function too."""
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Its body is run when the module is loaded; its names are its own."""
        self._bind(node.name, node, None)
        outer, self.bound = self.bound, {}
        self.generic_visit(node)
        self.bound = outer

    def visit_Name(self, node: ast.Name) -> None:
        """An assigned name."""
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id, node, None)


def read_modules(python: Path, rooms: Iterable[Room]) -> list[Module]:
    """Reads every source below the packages of `python`.

    Raises:
        InputError: there is none, or one is no Python.
    """
    sources = {}
    for path in sorted(python.glob("*/**/*.py")):
        inside = path.relative_to(python)
        parts = inside.with_suffix("").parts
        is_package = parts[-1] == "__init__"
        sources[".".join(parts[:-1] if is_package else parts)] = (inside.as_posix(), is_package)
    if not sources:
        raise InputError(f"{python}: no Python source in a package")
    modules = []
    for name, (inside_path, is_package) in sources.items():
        reader = _Reader(name, is_package, set(sources))
        try:
            reader.visit(ast.parse((python / inside_path).read_text(encoding="utf-8")))
        except SyntaxError as error:
            raise InputError(f"python/{inside_path}:{error.lineno}: {error.msg}") from None
        room = next((one for one in rooms if one.owns(inside_path)), None)
        modules.append(Module(name, f"python/{inside_path}", room, reader.imports, reader.bound))
    return modules


# --- checks ---------------------------------------------------------------------------------------


def check_order(modules: Iterable[Module]) -> Iterator[str]:
    """Yields a line for each import that goes up, and for each module without a room."""
    room_of = {module.name: module.room for module in modules}
    for module in modules:
        if module.room is None:
            yield f"{module.path}:1: in no room of python/ROOMS.md; add its folder there"
            continue
        for item in module.imports:
            target = room_of.get(item.module)
            if target is None or target.name in module.room.allowed:
                continue
            if item.in_function and target.name in DRAWING:
                continue
            yield (
                f"{module.path}:{item.line}: room {module.room.name} may not import"
                f" {target.name} ({item.module})"
            )


def check_rings(modules: Iterable[Module]) -> Iterator[str]:
    """Yields a line for each ring of imports that are done when modules are loaded."""
    names = {module.name for module in modules}
    edges = {
        module.name: sorted({i.module for i in module.imports if not i.in_function} & names)
        for module in modules
    }
    done: set[str] = set()
    path: list[str] = []

    def walk(name: str) -> Iterator[str]:
        if name in path:
            yield f"ring of imports: {' -> '.join([*path[path.index(name) :], name])}"
        elif name not in done:
            path.append(name)
            for target in edges[name]:
                yield from walk(target)
            path.pop()
            done.add(name)

    for name in sorted(edges):
        yield from walk(name)


def check_doors(modules: Iterable[Module]) -> Iterator[str]:
    """Yields a line for each import of matplotlib or of the extension where it is not allowed."""
    for module in modules:
        draws = module.room is not None and module.room.name in DRAWING
        for item in module.imports:
            if item.module.partition(".")[0] == "matplotlib" and not draws:
                yield (
                    f"{module.path}:{item.line}: imports {item.module}; only"
                    f" {' and '.join(DRAWING)} may"
                )
            if item.module == EXTENSION and module.name != DOOR:
                yield f"{module.path}:{item.line}: imports the extension; only {DOOR} may"


def check_names(modules: Iterable[Module]) -> Iterator[str]:
    """Yields a line for each module whose name its package gives to something else."""
    by_name = {module.name: module for module in modules}
    for name in by_name:
        package, _, last = name.rpartition(".")
        if package not in by_name or last not in by_name[package].bound:
            continue
        line, bound = by_name[package].bound[last]
        if bound != name:
            yield (
                f"{by_name[package].path}:{line}: {package}.{last} hides the module {name};"
                " give the module another name"
            )


def check_entries(package: Path, reserved: Iterable[str]) -> Iterator[str]:
    """Yields a line when the package has too many entries, the reserved rooms counted."""
    entries = {
        path.name
        for path in package.iterdir()
        if path.name != "__pycache__" and path.suffix != ".pyi"
    } | set(reserved)
    if len(entries) > ENTRIES_MAX:
        yield (
            f"python/{package.name}: {len(entries)} entries, the reserved rooms counted; at most"
            f" {ENTRIES_MAX}"
        )


def main(arguments: list[str] | None = None) -> int:
    """Runs all checks and returns the exit status."""
    root = command_line(__doc__).parse_args(arguments).root

    def prove() -> tuple[list[str], str]:
        page = (root / PAGE).read_text(encoding="utf-8")
        rooms = read_rooms(page, "ROOMS.md", "room")
        modules = read_modules(root / "python", rooms)
        violations = [
            *check_order(modules),
            *check_rings(modules),
            *check_doors(modules),
            *check_names(modules),
            *check_entries(root / "python" / PACKAGE, read_reserved(page)),
        ]
        return violations, f"{len(rooms)} rooms, {len(modules)} modules"

    return run("check_rooms", prove, "violations")


if __name__ == "__main__":
    sys.exit(main())
