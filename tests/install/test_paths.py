# SPDX-License-Identifier: Apache-2.0
"""What is built names no folder of the machine that built it: libraries, programs, wheel."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from install_tools import ROOT, Told, run

pytestmark = pytest.mark.slow


def named(content: bytes, folders: list[Path]) -> list[str]:
    """The strings of a file that hold one of the folders."""
    wanted = [str(folder).encode() for folder in folders]
    parts = content.replace(b"\n", b"\0").split(b"\0")
    return [repr(part[-200:]) for part in parts if any(folder in part for folder in wanted)]


def test_the_search_finds_what_it_is_for(tmp_path: Path) -> None:
    """An object compiled without the flag names its folder."""
    source = tmp_path / "named.c"
    source.write_text("const char *file(void) { return __FILE__; }\n")
    run("cc", "-c", source, "-o", tmp_path / "named.o")
    assert named((tmp_path / "named.o").read_bytes(), [tmp_path])


def test_installed_files_name_no_folder_of_the_build(prefix: Path, told: Told) -> None:
    folders = [ROOT, told.source, told.home, prefix, prefix.with_name("first")]
    files = [path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink()]
    kinds = {path.name for path in files}
    assert {"libspanwise.a", "libspanwise-malloc.so", "spanwise-replay", "spanwise.pc"} <= kinds
    found = {path.name: named(path.read_bytes(), folders) for path in files}
    assert {name: strings for name, strings in found.items() if strings} == {}


def test_the_wheel_names_no_folder_of_the_build(wheel: Path, wheel_folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    found = {name: named(one, [ROOT, wheel_folder]) for name, one in content.items()}
    assert {name: strings for name, strings in found.items() if strings} == {}


def test_a_build_names_no_folder_of_sources_or_of_its_growth(environment: Path, made: Path) -> None:
    """Nor where it grew: the folder beside it that becomes the build."""
    package = environment.parent / "lib"
    files = [path for path in (made / "mine").rglob("*") if path.is_file()]
    assert any(path.name == "libspanwise-malloc.so" for path in files)
    found = {path.name: named(path.read_bytes(), [ROOT, made, package]) for path in files}
    # The table's provenance is the file that was given, and build.json tells the compiler.
    told = {"table.json", "build.json"}
    assert {name: strings for name, strings in found.items() if strings and name not in told} == {}
