# SPDX-License-Identifier: Apache-2.0
"""An installed C library and an installed wheel, each made once for all install tests."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from install_tools import ROOT, ReadmeInstall, install_by_readme, quick_compiler, run
from packaging.requirements import Requirement

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


def first_of_the_run(factory: pytest.TempPathFactory, what: str) -> None:
    """Slow fixtures are built by one worker only (tests/conftest.py assigns its tests)."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    # Each worker has a folder of its own below the run's.
    mark = factory.getbasetemp().parent / f"made-{what}"
    if mark.exists():
        pytest.fail(f"{what} is made a second time: its tests are not run by one worker")
    mark.touch()


def debian_libdir() -> str:
    """The library folder of Debian's packages: lib/<triplet>, two levels below the prefix."""
    triplet = run("gcc", "-print-multiarch").strip()
    return f"lib/{triplet}" if triplet else "lib"


@pytest.fixture(scope="session")
def generator() -> list[str]:
    """CMake's generator options: Ninja if there is no make."""
    return [] if shutil.which("make") else ["-G", "Ninja"]


@pytest.fixture(scope="session")
def by_readme(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> ReadmeInstall:
    """The C library, installed by README's commands from the sdist."""
    first_of_the_run(tmp_path_factory, "build")
    tool = "ninja" if shutil.which("ninja") else "make"
    return install_by_readme(tool, unpacked, tmp_path_factory.mktemp("by_readme") / "place")


@pytest.fixture(scope="session")
def build_folder(by_readme: ReadmeInstall) -> Path:
    """The same build as a packager configures it, for a prefix `first` next to it."""
    build = by_readme.source / "build"
    places = (
        f"-DCMAKE_INSTALL_PREFIX={build.with_name('first')}",
        f"-DCMAKE_INSTALL_LIBDIR={debian_libdir()}",
    )
    run("cmake", "-S", by_readme.source, "-B", build, *places)
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
    """The sdist."""
    first_of_the_run(tmp_path_factory, "sdist")
    out = tmp_path_factory.mktemp("sdist")
    name = run(sys.executable, "-c", BUILD_SDIST, out, cwd=ROOT).split()[-1]
    return out / name


@pytest.fixture(scope="session")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist's files; tests leave nothing in it."""
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(place)
    (folder,) = place.iterdir()
    return folder


@pytest.fixture(scope="session")
def wheel_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `source`, from which the wheel is built, and `scratch`, where it is built."""
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="session")
def wheel(request: pytest.FixtureRequest, wheel_folder: Path) -> Path:
    """The wheel that `./dev` made of the checkout and installed for the tests.

    In full, and where there is none, the one that comes out of the sdist, as a package index would
    serve it; of the sdist another test shows that it has every file of the checkout.
    """
    made = os.environ.get("DEV_WHEEL")
    if made and os.environ.get("SPANWISE_FULL_TESTS") != "1":
        return Path(made)
    unpacked: Path = request.getfixturevalue("unpacked")
    shutil.copytree(unpacked, wheel_folder / "source")
    (wheel_folder / "out").mkdir()
    return build_wheel(wheel_folder / "source", wheel_folder / "out", wheel_folder / "scratch")


def needed_by(name: str, found: set[str]) -> None:
    """Add the installed distributions that one needs, recursively."""
    for line in metadata.requires(name) or []:
        wanted = Requirement(line)
        here = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        if here and wanted.name not in found:
            found.add(wanted.name)
            needed_by(wanted.name, found)


def copy_installed(name: str, site: Path) -> None:
    """Copy a distribution of this environment, including compiled modules, without its programs."""
    distribution = metadata.distribution(name)
    for file in distribution.files or []:
        if ".." in file.parts or file.suffix == ".pyc":
            continue
        source = Path(str(distribution.locate_file(file)))
        to = site / file
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, to)
        compiled = Path(cache_from_source(str(source)))
        if file.suffix == ".py" and compiled.is_file():
            (to.parent / "__pycache__").mkdir(exist_ok=True)
            shutil.copy2(compiled, to.parent / "__pycache__")


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bin/ of an environment that holds the wheel and what it depends on, nothing else.

    What the wheel says that it depends on is there before pip looks, as this environment has it.
    """
    place = tmp_path_factory.mktemp("empty") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    (site,) = place.glob("lib/python*/site-packages")
    if os.environ.get("SPANWISE_FULL_TESTS") != "1":
        needed: set[str] = set()
        needed_by("spanwise", needed)
        for name in needed:
            copy_installed(name, site)
    pip = (sys.executable, "-m", "pip", "--python", place / "bin/python")
    run(*pip, "install", "-q", "--no-compile", wheel, cwd=place)
    return place / "bin"


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH with no tool but cc."""
    place = tmp_path_factory.mktemp("tools")
    for name in ("as", "ld", "ar", "objcopy", "sh"):
        found = shutil.which(name)
        assert found is not None, name
        (place / name).symlink_to(found)
    quick_compiler(place / "cc")
    return place


@pytest.fixture(scope="session")
def made(environment: Path, tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `mine.json` and its build `mine`, made where there is no tool but cc."""
    place = tmp_path_factory.mktemp("made")
    classes = [{"size": size, "pages": 2} for size in (16, 32, 96, 512, 4096)]
    table = {"name": "mine", "page_bytes": 8192, "classes": classes}
    (place / "mine.json").write_text(json.dumps(table))
    words = ("build", "--table", place / "mine.json", "-o", "mine")
    bare = {"PATH": str(tools), "CC": ""}
    said = run(environment / "spanwise", *words, cwd=place, env=bare)
    assert "table mine" in said
    return place
