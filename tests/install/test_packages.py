# SPDX-License-Identifier: Apache-2.0
"""Every program that presets, builds and tests call is named in scripts/packages.txt.

That table says which package brings it; ./dev installs from it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from install_tools import ROOT

KINDS = {"program", "library", "header", "c++header", "file", "python"}
GROUPS = {"base", "peers", "benchmark", "arm64", "test", "check", "bench", "optional"}

# What Debian's essential packages have.
ESSENTIAL = {"cat", "dpkg-query", "env", "ldconfig", "mount", "setarch", "sh", "sleep", "true"}
ESSENTIAL |= {"umount", "id", "apt-get", "python3"}
# Names that tests call to see a refusal, and this project's own programs.
NOT_PROGRAMS = {"no-such-program", "spanwise"}

# Calls whose first argument is a program's name, or a command whose first word is one.
LOOKS_UP = {"shutil.which", "which"}
STARTS = {
    "subprocess.run",
    "subprocess.Popen",
    "subprocess.check_output",
    "children.run",
    "_output",
    "_record",
    "run",
    "sw.record",
    "sw.run",
    "preload.run",
}
# Assignments that list programs.
LISTS = {"TOOLS", "COMPILERS"}
NAME = re.compile(r"[a-z][a-z0-9+._-]*")


class Need(NamedTuple):
    """One line of the table."""

    group: str
    kind: str
    names: tuple[str, ...]
    packages: tuple[str, ...]


def read_table() -> list[Need]:
    needs = []
    for line in (ROOT / "scripts/packages.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            group, kind, names, *packages = line.split()
            needs.append(Need(group, kind, tuple(names.split(",")), tuple(packages)))
    return needs


NEEDS = read_table()
LISTED = {name for need in NEEDS if need.kind == "program" for name in need.names}


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _texts(element)


def programs_of_python(source: str) -> set[str]:
    """Return the programs that a Python source looks up or starts by literal names."""
    called: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args:
            function, first = ast.unparse(node.func), node.args[0]
            if isinstance(first, ast.List) and first.elts and function in STARTS:
                called.update(_texts(first.elts[0]))
            elif function in LOOKS_UP:
                called.update(_texts(first))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in LISTS:
            called.update(_texts(node.value))
    return {name for name in called if NAME.fullmatch(name)}


def programs_of_cmake(source: str) -> set[str]:
    """Return the compilers, emulators and programs that a CMake file names."""
    patterns = (
        r"set\(CMAKE_\w+_COMPILER\s+([\w.+-]+)\)",
        r"set\(CMAKE_CROSSCOMPILING_EMULATOR\s+([\w.+-]+)",
        r"find_program\(\w+\s+(?:NAMES\s+)?([\w.+-]+)",
    )
    return {name for pattern in patterns for name in re.findall(pattern, source)}


def programs_of_presets(source: str) -> set[str]:
    presets = json.loads(source)["configurePresets"]
    return {
        value
        for preset in presets
        for key, value in preset.get("cacheVariables", {}).items()
        if re.fullmatch(r"CMAKE_\w+_COMPILER", key)
    }


def called_programs() -> dict[str, str]:
    """Return each program that this project calls by name, with a file that calls it."""
    called: dict[str, str] = {}
    sources = [ROOT / "CMakeLists.txt", ROOT / "CMakePresets.json"]
    for folder in ("cmake", "tests", "bench", "python", "scripts"):
        sources += sorted((ROOT / folder).rglob("*"))
    readers = {".py": programs_of_python, ".cmake": programs_of_cmake, ".json": programs_of_presets}
    for path in sources:
        if path.suffix == ".json" and path.name != "CMakePresets.json":
            continue
        reader = readers.get(path.suffix)
        if reader is not None and path.is_file():
            called.update(dict.fromkeys(reader(path.read_text()), str(path.relative_to(ROOT))))
    return called


def test_the_table_is_well_formed() -> None:
    assert {need.group for need in NEEDS} == GROUPS
    assert {need.kind for need in NEEDS} <= KINDS
    for need in NEEDS:
        assert need.packages, need
    lines = [(need.group, need.kind, need.names) for need in NEEDS]
    assert len(lines) == len(set(lines))


def test_each_called_program_is_listed() -> None:
    called = called_programs()
    assert {"aarch64-linux-gnu-g++", "clang", "valgrind", "pkg-config"} <= called.keys()
    unlisted = {
        name: path for name, path in called.items() if name not in LISTED | ESSENTIAL | NOT_PROGRAMS
    }
    assert not unlisted, f"scripts/packages.txt names no package for {unlisted}"


def test_the_reader_of_sources_sees_calls() -> None:
    source = (
        'TOOLS = ("cc", "gdb")\nshutil.which("strace")\nrun(["perf", "a"])\nrun([p, "b"])\nf("x")'
    )
    assert programs_of_python(source) == {"cc", "gdb", "strace", "perf"}
    assert programs_of_cmake("set(CMAKE_CXX_COMPILER arm-g++)\nfind_program(x NAMES awk)") == {
        "arm-g++",
        "awk",
    }
    text = '{"configurePresets": [{"cacheVariables": {"CMAKE_C_COMPILER": "icc"}}]}'
    assert programs_of_presets(text) == {"icc"}


def test_dev_installs_every_group_but_the_optional_one() -> None:
    probed = set()
    for words in re.findall(r"^ +(?:need|want) ([a-z0-9 ]+)$", (ROOT / "dev").read_text(), re.M):
        probed |= set(words.split())
    assert probed == GROUPS - {"optional"}
