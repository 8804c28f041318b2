# SPDX-License-Identifier: Apache-2.0
"""The CPython interpreters on this machine, of which each version's frames are read.

SPANWISE_TEST_PYTHONS names them, separated by colons. Otherwise they are this process's, those of
pyenv, and those in PATH; of several with one minor version, the first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MINORS = range(9, 15)
_ABOUT = """
import json, sys, sysconfig
print(json.dumps([sys.implementation.name, sys.version_info[:2], sysconfig.get_path("include"),
                  bool(sysconfig.get_config_var("Py_GIL_DISABLED"))]))
"""


@dataclass(frozen=True)
class Python:
    """An interpreter, its minor version (3.minor), and where its headers would be."""

    path: Path
    minor: int
    include: Path

    def __str__(self) -> str:
        return f"3.{self.minor}"

    def named(self, qualified: str) -> str:
        """The name of a function as this version has it in its code object."""
        return qualified if self.minor >= 11 else qualified.rpartition(".")[2]

    def comprehension_in(self, function: str) -> str:
        """The name of the code of a list comprehension: since 3.12 the function's own."""
        return function if self.minor >= 12 else self.named(f"{function}.<locals>.<listcomp>")


def _python(path: Path) -> Python | None:
    try:
        reported = subprocess.run([path, "-c", _ABOUT], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    name, (major, minor), include, free_threaded = json.loads(reported.stdout)
    known = name == "cpython" and major == 3 and minor in MINORS and not free_threaded
    return Python(path, minor, Path(include)) if known else None


def _places() -> list[Path]:
    given = os.environ.get("SPANWISE_TEST_PYTHONS")
    if given is not None:
        return [Path(word) for word in given.split(":") if word]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = [shutil.which(f"python3.{minor}") for minor in MINORS]
    return [
        Path(sys.executable),
        *sorted(versions.glob("3.*/bin/python3")),
        *(Path(path) for path in on_path if path is not None),
    ]


def pythons() -> list[Python]:
    """One interpreter of each known version that is here, the oldest first."""
    found: dict[int, Python] = {}
    for path in _places():
        one = _python(path)
        if one is not None:
            found.setdefault(one.minor, one)
    return [found[minor] for minor in sorted(found)]
