# SPDX-License-Identifier: Apache-2.0
"""Run the tests against planted bugs and list the bugs that no test finds.

Each `[[source]]` of python.toml and c.toml is a file and the bugs that are planted in it, one at a
time, in a scratch copy in build/mutants:

    file   path of the source
    tests  pytest files for Python; for C programs of tests/unit, such as test_heap
    bugs   [old, new]: text that occurs exactly once in the file, and its replacement; or
           [old, new, why]: a bug that no test can find, and the reason
Python runs in a copy of the installed package (`./dev environment` first), C in an incremental
build of the preset `dev`. Exit status: 0 when every bug but the last kind is found, else 1.
    .venv/bin/python tests/mutants/run.py [TEXT...]   all bugs, or those whose line has a text
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON_SECONDS, C_SECONDS = 900, 300  # what runs longer hangs
FAILED = re.compile(r"^(?:FAILED|ERROR) (?:\S*/)?(.+?)(?: - |$)", re.M)

# Before Python 3.11 the same reader is imported from pip's copy.
tomllib: Any = importlib.import_module(
    "tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli"
)


@dataclass(frozen=True)
class Mutant:
    """One planted bug; the fields are those of the tables."""

    file: str
    tests: list[str]
    old: str
    new: str
    why: str = ""

    def __str__(self) -> str:
        return " ".join(f"{self.file}: {self.old} -> {self.new} {self.why}".split())

    def mutated(self) -> str:
        """The source with the bug in it."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {self.old!r} occurs {text.count(self.old)} times")
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """All mutants of the tables next to this file."""
    tables = [path.read_text("utf-8") for path in sorted(Path(__file__).parent.glob("*.toml"))]
    rows = [row for table in tables for row in tomllib.loads(table).get("source", [])]
    return [Mutant(row["file"], row["tests"], *bug) for row in rows for bug in row["bugs"]]


class PythonCopy:
    """The installed package with the sources of the checkout."""

    def __init__(self) -> None:
        installed = Path(importlib.import_module("spanwise._spanwise").__file__ or "").parent
        self.folder = ROOT / "build/mutants/python"
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(installed, self.folder / "spanwise")
        shutil.copytree(ROOT / "python", self.folder, dirs_exist_ok=True)

    def write(self, file: str, text: str) -> None:
        """Replaces a source; removes its byte code, which may have the same time and size."""
        path = self.folder / Path(file).relative_to("python")
        path.write_text(text, encoding="utf-8")
        shutil.rmtree(path.with_name("__pycache__"), ignore_errors=True)

    def run(self, tests: list[str]) -> tuple[int, str]:
        """Runs pytest files up to the first failure."""
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        return _run(words, ROOT, PYTHONPATH=str(self.folder))


class CCopy:
    """The checkout without what is built; an unchanged file keeps its time, for the build."""

    def __init__(self) -> None:
        self.folder = ROOT / "build/mutants/c"
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for name in filter(None, listed.split("\0")):
            source, made = ROOT / name, self.folder / name
            if not made.is_file() or made.read_bytes() != source.read_bytes():
                made.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, made)
        subprocess.run(["cmake", "--preset", "dev"], cwd=self.folder, check=True)

    def write(self, file: str, text: str) -> None:
        """Replaces a source."""
        (self.folder / file).write_text(text, encoding="utf-8")

    def run(self, tests: list[str]) -> tuple[int, str]:
        """Builds and runs programs of tests/unit."""
        build = ["cmake", "--build", "--preset", "dev", "-j2", "--target", *tests]
        status, out = _run(build, self.folder)
        if status:
            raise SystemExit(f"does not compile\n{out[-4000:]}")
        for test in tests:  # not by ctest: ended by a signal, it leaves a test that hangs behind
            status, out = _run([f"build/dev/{test}"], self.folder, C_SECONDS)
            if status:
                return status, f"{out}\nFAILED {test}"
        return 0, ""


def _run(
    words: list[str], folder: Path, seconds: int = PYTHON_SECONDS, **env: str
) -> tuple[int, str]:
    out: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    limit = ["timeout", "--kill-after=9", str(seconds)]
    done = subprocess.run(
        [*limit, *words], cwd=folder, env={**os.environ, **env}, check=False, **out
    )
    return done.returncode, done.stdout.decode(errors="replace")


def surprises(copy: PythonCopy | CCopy, chosen: list[Mutant]) -> int:
    """Runs mutants of one language and prints a line each; returns how many were not expected."""
    count, (status, out) = 0, copy.run(sorted({test for one in chosen for test in one.tests}))
    if status:
        raise SystemExit(f"{out[-4000:]}\nthe tests fail without a mutant")
    for one in chosen:
        copy.write(one.file, one.mutated())
        status, out = copy.run(one.tests)
        copy.write(one.file, (ROOT / one.file).read_text(encoding="utf-8"))
        by = FAILED.search(out)
        name = by[1] if by else f"exit status {status}"
        print(f"found by {name}" if status else "SURVIVED", one, sep=": ", flush=True)
        count += (status == 0) != bool(one.why)
    return count


def main() -> int:
    """Runs the mutants whose line has a word of the command line."""
    words = sys.argv[1:] or [""]
    chosen = [one for one in mutants() if any(word in str(one) for word in words)]
    python = [one for one in chosen if one.file.endswith(".py")]
    count = surprises(PythonCopy(), python) if python else 0
    if len(python) < len(chosen):
        count += surprises(CCopy(), [one for one in chosen if one not in python])
    print(f"{len(chosen)} mutants, {count} not as expected")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
