# SPDX-License-Identifier: Apache-2.0
"""An installed C library, made once for all install tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from install_tools import ROOT, run


def debian_libdir() -> str:
    """Where Debian's packages have their libraries: lib/<triplet>, two levels below the prefix."""
    triplet = run("gcc", "-print-multiarch").strip()
    return f"lib/{triplet}" if triplet else "lib"


@pytest.fixture(scope="session")
def generator() -> list[str]:
    """CMake's generator options: Ninja where there is no make."""
    return [] if shutil.which("make") else ["-G", "Ninja"]


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory, generator: list[str]) -> Path:
    """An installation of the C library as a packager makes it, moved away from its first place."""
    build = tmp_path_factory.mktemp("build")
    first = tmp_path_factory.mktemp("install") / "first"
    run(
        "cmake",
        "-S",
        ROOT,
        "-B",
        build,
        *generator,
        f"-DCMAKE_INSTALL_PREFIX={first}",
        f"-DCMAKE_INSTALL_LIBDIR={debian_libdir()}",
    )
    run("cmake", "--build", build, "-j2")
    run("cmake", "--install", build)
    return first.rename(first.with_name("moved"))


@pytest.fixture(scope="session")
def libdir(prefix: Path) -> Path:
    """The folder of the installed libraries."""
    return prefix / debian_libdir()
