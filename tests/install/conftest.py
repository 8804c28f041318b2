# SPDX-License-Identifier: Apache-2.0
"""An installed C library and an installed wheel, each made once for all install tests."""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

import pytest
from install_tools import ROOT, run

BUILD_SDIST = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"


def build_wheel(source: Path, out: Path, scratch: Path) -> Path:
    """Builds a wheel from a source tree with the build tools of this environment."""
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"),
        *(f"--config-settings=build-dir={scratch}", "-w", out, source),
        cwd=out,
    )
    (wheel,) = out.glob("spanwise-*.whl")
    return wheel


def debian_libdir() -> str:
    """Where Debian's packages have their libraries: lib/<triplet>, two levels below the prefix."""
    triplet = run("gcc", "-print-multiarch").strip()
    return f"lib/{triplet}" if triplet else "lib"


@pytest.fixture(scope="session")
def generator() -> list[str]:
    """CMake's generator options: Ninja where there is no make."""
    return [] if shutil.which("make") else ["-G", "Ninja"]


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory, generator: list[str]) -> Path:
    """The C library as a packager builds it, for a prefix `first` beside it."""
    build = tmp_path_factory.mktemp("build") / "build"
    run(
        "cmake",
        "-S",
        ROOT,
        "-B",
        build,
        *generator,
        f"-DCMAKE_INSTALL_PREFIX={build.with_name('first')}",
        f"-DCMAKE_INSTALL_LIBDIR={debian_libdir()}",
    )
    run("cmake", "--build", build, "-j2")
    return build


@pytest.fixture(scope="session")
def prefix(build_folder: Path) -> Path:
    """An installation of the C library, moved away from its first place."""
    run("cmake", "--install", build_folder)
    first = build_folder.with_name("first")
    return first.rename(first.with_name("moved"))


@pytest.fixture(scope="session")
def libdir(prefix: Path) -> Path:
    """The folder of the installed libraries."""
    return prefix / debian_libdir()


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a package index would serve as source."""
    out = tmp_path_factory.mktemp("sdist")
    name = run(sys.executable, "-c", BUILD_SDIST, out, cwd=ROOT).split()[-1]
    return out / name


@pytest.fixture(scope="session")
def wheel_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `source`, of which the wheel is built, and `scratch`, where."""
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="session")
def wheel(sdist: Path, wheel_folder: Path) -> Path:
    """The wheel that comes out of the sdist: what a package index would serve."""
    with tarfile.open(sdist) as archive:
        archive.extractall(wheel_folder / "source")
    (source,) = (wheel_folder / "source").iterdir()
    (wheel_folder / "out").mkdir()
    return build_wheel(source, wheel_folder / "out", wheel_folder / "scratch")


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bin/ of an environment that holds the wheel and what it depends on, nothing else."""
    place = tmp_path_factory.mktemp("empty") / "env"
    run(sys.executable, "-m", "venv", place)
    run(place / "bin/python", "-m", "pip", "install", "-q", wheel, cwd=place)
    return place / "bin"
