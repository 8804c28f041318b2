# SPDX-License-Identifier: Apache-2.0
"""Helpers of the install tests: running programs, outputs, README's examples and commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

LEDGER_PARTS = (
    "requested_bytes",
    "roundup_bytes",
    "tail_bytes",
    "free_slot_bytes",
    "cached_bytes",
    "metadata_bytes",
    "large_rounding_bytes",
    "free_page_bytes",
)

BLOCK = re.compile(
    r"^```(?P<language>c|cpp|perl|python|sh|cmake)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
FULL = os.environ.get("SPANWISE_FULL_TESTS", "") == "1"
in_full = pytest.mark.skipif(not FULL, reason="only with SPANWISE_FULL_TESTS=1")
needs_pkg_config = pytest.mark.skipif(
    shutil.which("pkg-config") is None, reason="pkg-config is not installed"
)
"""For tests that ask pkg-config, which `./dev` wishes for but does not demand."""


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 900,
) -> str:
    """Run a program that must succeed; return its standard output.

    Args:
        command: program and arguments.
        cwd: working folder; None: the current one.
        env: additions to the environment.
        timeout: seconds.

    Raises:
        AssertionError: the exit status is not 0; the message has the program's output.
    """
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**clean_environment(), **(env or {})},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )
    line = " ".join(str(word) for word in command)
    assert result.returncode == 0, (
        f"{line}: exit {result.returncode}\n{result.stdout}{result.stderr}"
    )
    return result.stdout


def clean_environment() -> dict[str, str]:
    """Return the environment without variables of a checkout or an outer virtual environment."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_PRELOAD", "LD_LIBRARY_PATH")
    return {
        key: value
        for key, value in os.environ.items()
        if key not in hidden and not key.startswith(("CMAKE_", "PKG_CONFIG_"))
    }


NUMBER = r"\\d[\\d.,]*"


def shown_in(expected: str, printed: str) -> bool:
    """Compare words; a number or unit may be any, and a line "..." any text."""
    words = [re.escape(word) for word in expected.split()]
    words = [re.sub(r"\d[\d.,\\]*(?<![.,\\])", NUMBER, word) for word in words]
    words = [r"(?:B|KiB|MiB)(?=\W|$)" if re.fullmatch("[KM]iB|B", word) else word for word in words]
    pattern = r"\s+".join(".*?" if word == r"\.\.\." else word for word in words)
    return re.search(pattern, printed, re.DOTALL) is not None


# --- README ---------------------------------------------------------------------------------------


class Example(NamedTuple):
    """One example of the README."""

    line: int
    code: str
    output: str | None


def examples(language: str) -> list[Example]:
    """README's examples in a language, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [
        Example(text.count("\n", 0, match.start()) + 1, match["code"], match["output"])
        for match in BLOCK.finditer(text)
        if match["language"] == language
    ]


def quick_compiler(place: Path) -> Path:
    """Write a C compiler that ignores optimisation flags, which saves more than half the time."""
    real = shutil.which("cc")
    assert real is not None
    place.write_text(f'#!/bin/sh\nexec {real} "$@" -O0\n')
    place.chmod(0o755)
    return place


def machine_with(folder: Path, tool: str) -> Path:
    """Return a folder for PATH: the programs of this machine, but of ninja and make only `tool`.

    Its cc optimises nothing; the preset `release` builds with the flags that users have.
    """
    hidden = {"ninja", "samu", "make", "gmake", "ccache"} - {tool}
    folder.mkdir()
    quick_compiler(folder / "cc")
    for place in (Path("/usr/bin"), Path("/bin")):
        for program in place.iterdir():
            known = program.name in hidden or os.path.lexists(folder / program.name)
            if not known:
                (folder / program.name).symlink_to(program)
    if not (folder / tool).exists():
        pytest.skip(f"{tool} is not installed")
    return folder


class ReadmeInstall(NamedTuple):
    """The library, installed by README's commands."""

    tool: str
    source: Path
    home: Path
    environment: dict[str, str]
    said: str


def install_by_readme(tool: str, source: Path, place: Path) -> ReadmeInstall:
    """Run README's commands on a copy of `source`, on a machine with only `tool`."""
    checkout, home = place / "checkout", place / "home"
    shutil.copytree(source, checkout)
    home.mkdir()
    (program,) = examples("c")
    (checkout / "example.c").write_text(program.code)
    (commands,) = (one.code for one in examples("sh") if "cmake --install" in one.code)
    env = {"HOME": str(home), "PATH": str(machine_with(place / "bin", tool))}
    said = run("/bin/sh", "-euc", commands, cwd=checkout, env=env)
    return ReadmeInstall(tool, checkout, home, env, said)
