# SPDX-License-Identifier: Apache-2.0
"""The sdist is the whole checkout: what is unpacked from it configures, builds and tests itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from install_tools import ROOT, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(place)
    (folder,) = place.iterdir()
    return folder


def test_it_has_every_file_of_the_checkout(unpacked: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    wanted = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    found = {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*") if p.is_file()}
    assert found - {"PKG-INFO"} == wanted


def test_its_commands_run(unpacked: Path) -> None:
    assert "usage: ./dev COMMAND" in run("./dev", "help", cwd=unpacked)
    assert "0 violations" in run(sys.executable, "scripts/check_layers.py", cwd=unpacked)


def test_cmake_alone_builds_and_tests_it(unpacked: Path, generator: list[str]) -> None:
    """As CONTRIBUTING.md says, of the C tests one small one."""
    run("cmake", "--preset", "dev", *generator, cwd=unpacked)
    run("cmake", "--build", "--preset", "dev", "--target", "test_sized", cwd=unpacked)
    said = run("ctest", "--preset", "dev", "-R", "unit.sized$", "--no-tests=error", cwd=unpacked)
    assert "100% tests passed" in said


def test_pytest_finds_every_test(unpacked: Path) -> None:
    words = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/install")
    here = run(sys.executable, *words, cwd=ROOT).splitlines()[-1]
    there = run(sys.executable, *words, cwd=unpacked).splitlines()[-1]
    assert here.split()[0] == there.split()[0]
