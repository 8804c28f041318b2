# SPDX-License-Identifier: Apache-2.0
"""The sdist is the whole checkout: it can be configured, built and tested."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT, in_full, run

pytestmark = pytest.mark.slow


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


def test_cmake_alone_finds_its_tests(unpacked: Path, generator: list[str], tmp_path: Path) -> None:
    """As CONTRIBUTING.md says. The library that README's commands install is built of it, too."""
    source = shutil.copytree(unpacked, tmp_path / "source")
    run("cmake", "--preset", "dev", *generator, cwd=source)
    listed = run("ctest", "--preset", "dev", "--show-only", cwd=source)
    units = len(list((ROOT / "tests/unit").glob("test_*.c")))
    assert listed.count(" unit.") >= units


@in_full
def test_cmake_alone_builds_and_tests_it(
    unpacked: Path, generator: list[str], tmp_path: Path
) -> None:
    """Of the C tests one small one."""
    source = shutil.copytree(unpacked, tmp_path / "source")
    run("cmake", "--preset", "dev", *generator, cwd=source)
    run("cmake", "--build", "--preset", "dev", "--target", "test_size", cwd=source)
    said = run("ctest", "--preset", "dev", "-R", "unit.size$", "--no-tests=error", cwd=source)
    assert "100% tests passed" in said


def test_pytest_finds_every_test(unpacked: Path, request: pytest.FixtureRequest) -> None:
    """It finds the tests of the checkout, and some in each file."""
    words = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--assert=plain")
    said = run(sys.executable, *words, "tests/install", cwd=unpacked)
    there = {line for line in said.splitlines() if "::" in line}
    here = {item.nodeid for item in request.session.items}
    assert {name for name in here if name.startswith("tests/install/")} <= there
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/install/test_*.py")}
    assert {name.split("::")[0] for name in there} == files
