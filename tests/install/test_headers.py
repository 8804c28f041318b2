# SPDX-License-Identifier: Apache-2.0
"""The public headers compile without a warning, in every standard of C and C++ since 2011.

Each stands alone, all stand together in either order, a second include changes nothing, and
programs that use them compile.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from install_tools import ROOT, run

INCLUDE = ROOT / "include"
CONSUMER = ROOT / "tests/install/consumer"
HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.glob("spanwise/*.h"))
CPLUSPLUS = [*HEADERS, "spanwise/allocator.hpp"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wundef", "-Werror"]
# C23 and C++23 are c2x and c++2b to the compilers of Debian 12.
STANDARDS = {
    "gcc": ("c11", "c17", "c2x", "gnu11"),
    "clang": ("c11", "c17", "c2x", "gnu11"),
    "g++": ("c++11", "c++14", "c++17", "c++20", "c++2b"),
    "clang++": ("c++11", "c++14", "c++17", "c++20", "c++2b"),
}
PAIRS = [(compiler, standard) for compiler, names in STANDARDS.items() for standard in names]


def compile_text(compiler: str, standard: str, text: str, folder: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = folder / ("user.cpp" if "++" in compiler else "user.c")
    source.write_text(text)
    # Not as system headers, in which compilers keep silent.
    run(compiler, f"-std={standard}", *WARNINGS, "-fsyntax-only", f"-I{INCLUDE}", source)


def included(names: list[str]) -> str:
    return "".join(f"#include <{name}>\n" for name in names)


@pytest.mark.parametrize(("compiler", "standard"), PAIRS)
def test_together_twice_and_used(compiler: str, standard: str, tmp_path: Path) -> None:
    """With a program behind them: compilers look at templates only when they are used."""
    names = CPLUSPLUS if "++" in compiler else HEADERS
    program = CONSUMER / ("main.cpp" if "++" in compiler else "main.c")
    text = included([*names, *names]) + program.read_text(encoding="utf-8")
    compile_text(compiler, standard, text, tmp_path)


@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c11"), ("g++", "c++11")])
def test_each_alone_and_in_reverse(compiler: str, standard: str, tmp_path: Path) -> None:
    names = CPLUSPLUS if "++" in compiler else HEADERS
    compile_text(compiler, standard, included(names[::-1]), tmp_path)
    for name in names:
        compile_text(compiler, standard, included([name]), tmp_path)
