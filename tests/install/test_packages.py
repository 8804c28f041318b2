# SPDX-License-Identifier: Apache-2.0
"""The wheel works without a checkout, and the sdist is all of it: it builds and tests itself.

The wheel is installed into an empty environment, where it records, accounts, builds and replays.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from install_tools import LEDGER_PARTS, ROOT, ReadmeInstall, in_full, run
from spanwise.commands import COMMANDS

pytestmark = pytest.mark.slow
OURS = {"spanwise", "spanwise_sizeclasses", "spanwise_pytest"}


def test_one_wheel_for_every_python(wheel: Path) -> None:
    assert "-cp310-abi3-linux_" in wheel.name


def test_wheel_carries_everything(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for name in (
        "spanwise/_spanwise.abi3.so",
        "spanwise/_native/libspanwise-record.so",
        "spanwise/_native/libspanwise-malloc.so",
        "spanwise/_native/spanwise-replay",
        "spanwise/_native/spanwise-rusage",
        "spanwise/lessons/claims.json",
        "spanwise/_source/scripts/build_check.c",
        "spanwise/_source/include/spanwise/spanwise.h",
        "spanwise/_source/src/heap/heap.h",
        "spanwise/_source/scripts/sizeclasses.py",
        "spanwise_sizeclasses/cli.py",
        "spanwise/__main__.py",
        "spanwise/py.typed",
    ):
        assert name in names, name
    strange = {name.split("/")[0] for name in names} - OURS
    assert all(name.endswith((".dist-info", ".data")) for name in strange), strange
    manual = {name for name in names if "/data/share/man/man1/" in name}
    expected = {"spanwise.1", *(f"spanwise-{name}.1" for name in COMMANDS)}
    assert {Path(name).name for name in manual} == expected


def test_sources_in_the_wheel_are_those_of_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for folder in ("include", "src"):
            for path in sorted(ROOT.glob(f"{folder}/**/*.*")):
                if path.suffix == ".md":
                    continue
                name = path.relative_to(ROOT).as_posix()
                assert archive.read(f"spanwise/_source/{name}") == path.read_bytes(), name


def test_installed_generator_runs(environment: Path, tmp_path: Path) -> None:
    where = "import spanwise, pathlib; print(pathlib.Path(spanwise.__file__).parent)"
    package = Path(run(environment / "python", "-c", where, cwd=tmp_path).strip())
    said = run(environment / "python", package / "_source/scripts/sizeclasses.py", "--help")
    assert "usage" in said


def test_records_and_accounts_a_program(environment: Path, tmp_path: Path) -> None:
    spanwise = environment / "spanwise"
    recording = tmp_path / "ls.swt"
    run(spanwise, "record", "-o", recording, "--", "/bin/ls", "/", cwd=tmp_path)
    for table in ("go", "c16"):
        said = run(spanwise, "ledger", recording, "--table", table, "--json", cwd=tmp_path)
        ledger = json.loads(said)
        assert ledger["events"] > 0
        assert sum(ledger[part] for part in LEDGER_PARTS) == ledger["held_bytes"] > 0


def test_builds_and_replays_from_the_wheel(
    environment: Path, made: Path, prefix: Path, libdir: Path, tmp_path: Path
) -> None:
    """The loop where there is no checkout, and no tool but cc: no cmake, ninja, make."""
    spanwise, table, mine = environment / "spanwise", made / "mine.json", made / "mine"
    recording = tmp_path / "ls.swt"
    run(spanwise, "record", "-o", recording, "--", "/bin/ls", "/", cwd=tmp_path)
    words = ("--lib", mine, "--table", table, "--drain", "0.01", "--json")
    plain, built = json.loads(run(spanwise, "replay", recording, *words, cwd=tmp_path))
    assert built["runs"][0]["malloc"] == str(mine / "lib/libspanwise-malloc.so")
    assert (built["ops"], built["failed"], plain["failed"]) == (plain["ops"], 0, 0)
    run(spanwise, "replay", recording, "--ledger", "--table", table, cwd=tmp_path)
    _never_meets_the_stock_library(tmp_path, mine, prefix, libdir)


def _never_meets_the_stock_library(folder: Path, mine: Path, prefix: Path, libdir: Path) -> None:
    """Inline code of either table links with its own library only."""
    source = folder / "user.c"
    source.write_text(
        "#include <spanwise/fast.h>\n"
        "int main(void) { sw_fast_free(sw_fast_malloc(9)); return 0; }\n"
    )
    ours, stock = (mine / "include", mine / "lib"), (prefix / "include", libdir)
    for include, library, fits in (
        (ours[0], ours[1], True),
        (stock[0], stock[1], True),
        (ours[0], stock[1], False),
        (stock[0], ours[1], False),
    ):
        places = (f"-I{include}", f"-L{library}", f"-Wl,-rpath,{library}")
        done = subprocess.run(
            ["cc", "-O2", *places, str(source), "-o", str(folder / "user"), "-lspanwise"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == fits, done.stderr
        if fits:
            run(folder / "user")
        else:
            assert "sw_table_is_" in done.stderr


# --- names of folders -----------------------------------------------------------------------------


def named(content: bytes, folders: list[Path]) -> list[str]:
    """Return the strings of a file that contain one of the folders."""
    wanted = [str(folder).encode() for folder in folders]
    parts = content.replace(b"\n", b"\0").split(b"\0")
    return [repr(part[-200:]) for part in parts if any(folder in part for folder in wanted)]


def test_installed_files_name_no_folder_of_the_build(
    prefix: Path, by_readme: ReadmeInstall
) -> None:
    folders = [ROOT, by_readme.source, by_readme.home, prefix, prefix.with_name("first")]
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
    """Nor where it grew: the folder next to it that becomes the build."""
    package = environment.parent / "lib"
    files = [path for path in (made / "mine").rglob("*") if path.is_file()]
    assert any(path.name == "libspanwise-malloc.so" for path in files)
    found = {path.name: named(path.read_bytes(), [ROOT, made, package]) for path in files}
    # The table's provenance is the file that was given, and build.json names the compiler.
    by_readme = {"table.json", "build.json"}
    assert {
        name: strings for name, strings in found.items() if strings and name not in by_readme
    } == {}


# --- the sdist ------------------------------------------------------------------------------------


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
