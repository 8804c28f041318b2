# SPDX-License-Identifier: Apache-2.0
"""Commands of README and of how-tos that the tests of those pages do not run as written."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from install_tools import FULL, ROOT, clean_environment, examples, in_full, run

GO = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
NOT_SOURCES = shutil.ignore_patterns(".git", ".venv", "build", "out", "__pycache__", ".*_cache")


def commands_in_text(page: str, start: str) -> set[str]:
    """Return the commands in the text of a page that begin so."""
    text = (ROOT / page).read_text(encoding="utf-8")
    spans = re.findall(r"`([^`]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))
    commands = {" ".join(one.split()) for one in spans}
    return {one for one in commands if one.startswith(start)}


def in_text(page: str, start: str) -> str:
    """Return the only one of these commands."""
    (command,) = commands_in_text(page, start)
    return command


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT, tmp_path / "checkout", ignore=NOT_SOURCES, symlinks=True))


@in_full
def test_the_package_is_installed_from_a_checkout(checkout: Path) -> None:
    (block,) = (one.code for one in examples("sh") if "spanwise record" in one.code)
    run("sh", "-euc", block.splitlines()[0], cwd=checkout)
    assert run(checkout / "env/bin/spanwise", "--version").startswith("spanwise ")


@in_full
def test_the_package_is_installed_for_notebooks(checkout: Path) -> None:
    """The command as written, in an environment of its own, and what README says of it."""
    nbformat = pytest.importorskip("nbformat")
    run(sys.executable, "-m", "venv", "env", cwd=checkout)
    path = f"{checkout / 'env/bin'}:{os.environ['PATH']}"
    run("sh", "-euc", in_text("README.md", "pip install"), cwd=checkout, env={"PATH": path})
    record = "%%record\nkept = [str(i) for i in range(1000)]\n"
    cells = ["%load_ext spanwise", record, "assert recording.events > 1000"]
    book = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
    nbformat.write(book, checkout / "book.ipynb")
    env = {"PATH": path, "JUPYTER_PLATFORM_DIRS": "1"}
    run("jupyter", "execute", "--kernel_name=python3", "book.ipynb", cwd=checkout, env=env)
    run("python", "-c", "import anywidget, jupyterlab", env=env)


APT_LISTS = Path("/var/lib/apt/lists")


@pytest.mark.skipif(
    shutil.which("apt-get") is None or not list(APT_LISTS.glob("*_Packages*")),
    reason="no apt-get, or no lists of packages",
)
@pytest.mark.parametrize("package", ["python3-venv", "ninja-build"])
def test_the_debian_packages(package: str) -> None:
    """As written in the full form as root, with "yes" as the answer; simulated otherwise."""
    (command,) = (one for one in commands_in_text("README.md", "apt-get") if package in one)
    as_written = FULL and os.geteuid() == 0
    if not as_written:
        command = command.replace("apt-get", "apt-get --simulate", 1)
    said = run("sh", "-euc", f"yes | {command}", env={"LC_ALL": "C"})
    assert as_written or re.search(r"^\d+ upgraded, \d+ newly installed", said, re.MULTILINE)


@in_full
def test_the_demo(checkout: Path) -> None:
    run("sh", "-euc", in_text("README.md", "./dev demo"), cwd=checkout)
    assert len(list((checkout / "out").glob("*.png"))) > 5


@in_full
def test_the_benchmarks(checkout: Path) -> None:
    said = run("sh", "-euc", in_text("README.md", "cmake --preset bench"), cwd=checkout)
    assert "100% tests passed" in said


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that waits while it is recorded; `pgrep` finds children of this process only."""
    finder = tmp_path / "bin/pgrep"
    finder.parent.mkdir()
    finder.write_text(f'#!/bin/sh\nexec {shutil.which("pgrep")} -P {os.getpid()} "$@"\n')
    finder.chmod(0o755)
    # As the installed command, whose name is in its arguments.
    command = Path(sys.executable).with_name("spanwise")
    words = [str(command), "record", "-o", "service.swt", "--", "sh", "-c", "echo begun; sleep 60"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, text=True, stdout=pipe, stderr=pipe) as running:
        yield running
        running.kill()


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep is not installed")
def test_a_signal_writes_a_snapshot(recorded: subprocess.Popen[str], tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/who-wastes.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ (kill -USR1 .*)$", page, re.MULTILINE)
    assert recorded.stdout is not None and recorded.stderr is not None
    assert recorded.stdout.readline() == "begun\n"
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    # Not as an argument, where `pgrep -f` would find it.
    environment = {**clean_environment(), "PATH": path}
    subprocess.run("sh", input=command, text=True, check=True, env=environment)
    assert recorded.stderr.readline().startswith("service.snapshot-1.swt: snapshot, ")
    assert sw.Recording.open(tmp_path / "service.snapshot-1.swt").events >= 0


def page_at(url: str) -> str:
    """Return a page of a server that prints its address before it listens."""
    for left in reversed(range(600)):
        try:
            with urllib.request.urlopen(url, timeout=60) as page:
                return str(page.read().decode())
        except urllib.error.URLError:
            assert left, "the server does not listen"
            time.sleep(0.1)
    raise AssertionError


@pytest.mark.skipif(GO is None, reason="Go is not installed")
def test_the_web_page_of_pprof(tmp_path: Path) -> None:
    """It opens a browser: here a program that does nothing."""
    ops = np.zeros(10, sw.OPS_DTYPE)
    ops["object"], ops["size"] = np.arange(10), 100
    sw.Recording.from_ops(ops).export(tmp_path / "cache.pb.gz", "pprof")
    command = in_text("docs/how-to/who-wastes.md", "go tool pprof")
    path = f"{os.environ['PATH']}:{Path(str(GO)).parent}"
    with subprocess.Popen(
        ["sh", "-euc", f"exec {command}"],
        cwd=tmp_path,
        text=True,
        stderr=subprocess.PIPE,
        env={**clean_environment(), "BROWSER": "true", "PATH": path},
    ) as running:
        try:
            assert running.stderr is not None
            assert select.select([running.stderr], [], [], 60)[0]
            (url,) = re.findall(r"http://\S+", running.stderr.readline())
            assert "<title>operations waste_space<" in page_at(f"{url}/ui/top")
        finally:
            running.kill()
