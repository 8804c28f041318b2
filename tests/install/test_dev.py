# SPDX-License-Identifier: Apache-2.0
"""./dev on wrong use and on a bare machine."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from install_tools import ROOT, run

COMMANDS = (
    *("demo", "test", "bench", "stress", "notebooks"),
    *("docs", "check", "environment", "gen"),
)


def dev(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"PATH": path} if path else {})}
    command = ["/bin/sh", str(ROOT / "dev"), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_help_names_every_command() -> None:
    said = run(ROOT / "dev", "help")
    for command in COMMANDS:
        assert f"  {command} " in said


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command: str) -> None:
    said = run(ROOT / "dev", command, "--help")
    assert said.startswith(f"usage: ./dev {command}")
    assert re.search(rf"[Ee]xamples?:\s+\./dev {command}", said)


def test_unknown_command() -> None:
    result = dev("fly")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "dev: no command 'fly'"


def test_unknown_option() -> None:
    result = dev("test", "--sideways")
    assert result.returncode == 2
    assert result.stderr == "dev: test has no option '--sideways'; see ./dev test --help\n"


def test_python_keeps_what_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regardless of the shell's environment: a process that compiles numpy takes twice as long."""
    tools = tmp_path / "bin"
    tools.mkdir()
    python = tools / "python3"
    python.write_text('#!/bin/sh\necho "${PYTHONDONTWRITEBYTECODE-kept}"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    result = dev("docs", "--check", path=f"{tools}:{os.environ['PATH']}")
    assert (result.returncode, result.stdout) == (0, "kept\n")


def test_bare_machine_prints_the_one_line(tmp_path: Path) -> None:
    """A user without a compiler gets the apt line and exit 2; nothing is changed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("dirname", "cat", "getconf", "sh"):
        found = next(
            Path(folder) / name for folder in ("/usr/bin", "/bin") if (Path(folder) / name).exists()
        )
        (tools / name).symlink_to(found)
    identity = tools / "id"
    identity.write_text("#!/bin/sh\necho 1000\n")
    identity.chmod(0o755)
    result = dev("demo", path=str(tools))
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    line = result.stderr
    assert line.startswith("dev: missing; install and run again:  sudo apt-get install -y gcc ")
    for package in ("cmake", "ninja-build", "libzstd-dev"):
        assert f" {package}" in line
