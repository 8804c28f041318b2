# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles alone, as C and as C++, without a warning of any compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

INCLUDE = Path(__file__).resolve().parents[2] / "include"
C_HEADERS = sorted(str(path.relative_to(INCLUDE)) for path in INCLUDE.glob("spanwise/*.h"))
CXX_HEADERS = [*C_HEADERS, "spanwise/allocator.hpp"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]


def compile_alone(compiler: str, language: str, standard: str, header: str) -> str:
    """What the compiler says about a source that only includes the header."""
    path = shutil.which(compiler)
    if path is None:
        pytest.skip(f"{compiler} is not installed")
    done = subprocess.run(
        [path, "-x", language, f"-std={standard}", *WARNINGS, f"-I{INCLUDE}", "-fsyntax-only", "-"],
        input=f"#include <{header}>\nint main(void) {{ return 0; }}\n",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


@pytest.mark.parametrize("header", C_HEADERS)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_as_c(compiler: str, header: str) -> None:
    assert compile_alone(compiler, "c", "c11", header) == ""


@pytest.mark.parametrize("header", CXX_HEADERS)
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_as_cxx(compiler: str, header: str) -> None:
    assert compile_alone(compiler, "c++", "c++17", header) == ""
