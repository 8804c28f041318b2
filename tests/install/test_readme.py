# SPDX-License-Identifier: Apache-2.0
"""The examples of README.md run unchanged, and print what the README shows.

A fenced block `c` or `cpp` is a program; `python` is a script run in this environment. A block
`text` right after one is its exact output. The block `sh` that installs the library is run on
machines that have one of ninja and make, and the block `cmake` after it is a project that uses what
was installed. The block `sh` that installs the Python package is run with the one of a wheel; what
its `advise` prints is compared except for numbers.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from install_tools import (
    FULL,
    ROOT,
    Example,
    ReadmeInstall,
    examples,
    in_full,
    install_by_readme,
    machine_with,
    needs_pkg_config,
    run,
    shown_in,
)


@pytest.mark.slow
@needs_pkg_config
@pytest.mark.parametrize("example", examples("c"), ids=lambda example: f"line{example.line}")
def test_c_example(example: Example, libdir: Path, tmp_path: Path) -> None:
    (tmp_path / "example.c").write_text(example.code)
    search = {"PKG_CONFIG_PATH": str(libdir / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "spanwise", env=search).split()
    program = tmp_path / "example"
    run("cc", "-std=c11", "-Wall", "-Werror", tmp_path / "example.c", *flags, "-o", program)
    said = run(program, env={"LD_LIBRARY_PATH": str(libdir)})
    assert example.output is None or said == example.output


@pytest.mark.slow
@pytest.mark.parametrize("standard", ["c++11", "c++2b"])
def test_cplusplus_example(standard: str, libdir: Path, prefix: Path, tmp_path: Path) -> None:
    if shutil.which("g++") is None or not Path("/usr/include/flatbuffers").is_dir():
        pytest.skip("g++ or FlatBuffers (libflatbuffers-dev) is not installed")
    (example,) = examples("cpp")
    (tmp_path / "example.cpp").write_text(example.code)
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{prefix}/include"]
    program = tmp_path / "example"
    run("g++", *flags, tmp_path / "example.cpp", f"-L{libdir}", "-lspanwise", "-o", program)
    assert run(program, env={"LD_LIBRARY_PATH": str(libdir)}) == example.output


@pytest.mark.slow
def test_the_commands_for_a_program_of_ones_own(environment: Path, tmp_path: Path) -> None:
    """All commands except the first, which creates an environment: here one with the wheel.

    `bench` runs a tenth of the README's program; with SPANWISE_FULL_TESTS=1 all of it.
    """
    (block,) = (one.code for one in examples("sh") if "spanwise record" in one.code)
    making, *commands = block.splitlines()
    assert making.startswith("python3 -m venv env && env/bin/pip install .")
    (tmp_path / "env").symlink_to(environment.parent)
    (program,) = examples("perl")
    assert program.code.count("200_000") == 1
    said = {}
    for command in commands:
        small = " bench " in command and not FULL
        code = program.code.replace("200_000", "20_000") if small else program.code
        (tmp_path / "index.pl").write_text(code)
        said[command.split()[1]] = run("/bin/sh", "-euc", command, cwd=tmp_path)
    assert list(said) == ["record", "advise", "report", "bench"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^`advise` prints:\n\n```\n(.*?)^```\n", readme, re.M | re.S)
    assert shown_in(shown, said["advise"]), said["advise"]
    assert "peak RSS compared with plain" in said["bench"]
    assert (tmp_path / "index.html").is_file()


@pytest.mark.slow
@needs_pkg_config
@pytest.mark.parametrize("tool", ["ninja", pytest.param("make", marks=in_full)])
def test_the_library_is_installed_and_used_as_in_the_readme(
    tool: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The commands as they stand, in sources and a home of their own, on either machine."""
    by_readme: ReadmeInstall = request.getfixturevalue("by_readme")
    if by_readme.tool != tool:
        by_readme = install_by_readme(
            tool, request.getfixturevalue("unpacked"), tmp_path / "by_readme"
        )
    (program,) = examples("c")
    assert program.output is not None and by_readme.said.endswith(program.output)
    installed = by_readme.home / "spanwise"
    assert (installed / "bin/spanwise-replay").is_file()

    project = tmp_path / "project"
    project.mkdir()
    (project / "example.c").write_text(program.code)
    (listed,) = examples("cmake")
    (project / "CMakeLists.txt").write_text(listed.code)
    generator = ["-G", "Ninja"] if tool == "ninja" else []
    found, env = f"-DCMAKE_PREFIX_PATH={installed}", by_readme.environment
    run("cmake", "-S", project, "-B", project / "build", *generator, found, env=env)
    run("cmake", "--build", project / "build", env=env)
    run("cmake", "--install", project / "build", "--prefix", tmp_path / "mine", env=env)
    for made in (project / "build/example", tmp_path / "mine/bin/example"):
        assert run(made) == program.output


def test_without_make_the_error_says_what_to_install(tmp_path: Path) -> None:
    env = {"PATH": str(machine_with(tmp_path / "bin", "ninja"))}
    with pytest.raises(AssertionError, match="make was not found: install make, or remove"):
        run("cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Unix Makefiles", env=env)


@pytest.mark.parametrize("example", examples("python"), ids=lambda example: f"line{example.line}")
def test_python_example(example: Example, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(example.code)
    said = run(sys.executable, script, cwd=tmp_path, env={"MPLBACKEND": "Agg"})
    assert example.output is None or said == example.output
