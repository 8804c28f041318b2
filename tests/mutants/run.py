# SPDX-License-Identifier: Apache-2.0
"""Plant one bug at a time in source files and list which tests find it.

Bugs are drawn at random from all places where an operator, a number or a word can be replaced or a
statement left out; equal seeds draw equal bugs. Python runs in a copy of the installed package
(`./dev environment` first), C in an incremental build of the preset `dev`, both in build/mutants.

    .venv/bin/python tests/mutants/run.py [--count N] [--seed N] FILE... -- TEST...

TEST: pytest files for Python files; programs of tests/unit, such as test_heap, for C files. After
the bugs it prints for each test how many it found, and how many only it found: a test that finds
none alone can go. A bug that survives is a missing test, or no bug. Exit status: 0.
"""

from __future__ import annotations

import argparse
import filecmp
import importlib
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SECONDS, C_SECONDS = 900, 120  # what runs longer hangs
FAILED = re.compile(r"^(?:FAILED|ERROR) (?:\S*/)?(.+?)(?: - |$)", re.M)
CHECKED = re.compile(r"^(?:\S*/)?(test_\w+\.c|\w+\.h):(\d+): ", re.M)
FUNCTION = re.compile(r"^\w[^;=]*?(\w+)\([^;]*\) \{$", re.M)
C_SKIPPED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|^#[^\n]*', re.M | re.S)

SWAPS = {
    **{"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+"},
    **{"&&": "||", "||": "&&", "and": "or", "or": "and", "&": "|", "|": "&", "++": "--"},
    **{"+=": "-=", "-=": "+=", "|=": "&=", "true": "false", "false": "true", "!": ""},
    **{"True": "False", "False": "True", "not": "", "is": "is not", "min": "max", "max": "min"},
}
C_PLACE = re.compile(
    r"(?<=[\w)\]]) (==|!=|<=?|>=?|\+|-|&&|\|\||&|\||\+=|-=|\|=) (?=\S)|\b(true|false)\b"
    r"|(?<=[( ])(!)(?=[\w(])|(?<![\w.])(\d+)(?=[;,) \]])"
)
C_STATEMENT = re.compile(
    r"^ +((?!return|break|else|\w+ \w+ =)[\w*&(][^;{}\n]*(?:\)|[^=!<>]= [^;]+));$", re.M
)
PYTHON_STATEMENT = re.compile(
    r"^ +((?!return|raise|yield|del)\w[\w.]*(?:\([^#\n]*\)| [-+|]?= [^#\n]*\S))(?: +#.*)?$"
)


class Bug(NamedTuple):
    """A bug: the text from `start` to `end` of a file becomes `new`."""

    file: str
    start: int
    end: int
    new: str

    def mutated(self, text: str) -> str:
        """Return the source with the bug in it."""
        return text[: self.start] + self.new + text[self.end :]

    def __str__(self) -> str:
        text = (ROOT / self.file).read_text(encoding="utf-8")
        line = text.count("\n", 0, self.start) + 1
        begin = text.rfind("\n", 0, self.start) + 1
        before = text[begin : text.find("\n", self.end)]
        after = text[begin : self.start] + self.new + text[self.end : text.find("\n", self.end)]
        return f"{self.file}:{line}: {before.strip()} -> {after.strip()}"


def swapped(word: str) -> str | None:
    """Return the word in place of an operator, a name or a number; None: there is none."""
    return str(int(word) + 1) if word.isdecimal() else SWAPS.get(word)


def c_bugs(file: str, text: str) -> Iterator[Bug]:
    """Yield the bugs of a C file."""
    code = C_SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for found in C_PLACE.finditer(code):
        at = found.lastindex or 0
        yield Bug(file, *found.span(at), swapped(found[at]) or "")
    for found in C_STATEMENT.finditer(code):
        yield Bug(file, *found.span(1), "")


def python_bugs(file: str, text: str) -> Iterator[Bug]:
    """Yield the bugs of a Python file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        new = swapped(token.string) if token.string not in "&|" else None  # mostly of types
        if token.type in (tokenize.OP, tokenize.NAME, tokenize.NUMBER) and new is not None:
            at = starts[token.start[0] - 1] + token.start[1]
            yield Bug(file, at, at + len(token.string), new)
    for begin, line in zip(starts, text.splitlines(), strict=False):
        if found := PYTHON_STATEMENT.match(line):
            yield Bug(file, begin + found.start(1), begin + found.end(1), "pass")


class PythonCopy:
    """The installed package with the sources of the checkout."""

    def __init__(self) -> None:
        installed = Path(importlib.import_module("spanwise._spanwise").__file__ or "").parent
        self.folder = ROOT / "build/mutants/python"
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(installed, self.folder / "spanwise")
        shutil.copytree(ROOT / "python", self.folder, dirs_exist_ok=True)

    def write(self, file: str, text: str) -> None:
        """Replace a source; remove its byte code, which may have the same time and size."""
        path = self.folder / Path(file).relative_to("python")
        path.write_text(text, encoding="utf-8")
        shutil.rmtree(path.with_name("__pycache__"), ignore_errors=True)

    def run(self, tests: list[str]) -> set[str] | None:
        """Run pytest files; return the tests that fail; None: the source is no Python."""
        if _run([sys.executable, "-m", "compileall", "-q", "spanwise"], self.folder, SECONDS)[0]:
            return None
        words = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
        status, out = _run(words, ROOT, SECONDS, PYTHONPATH=str(self.folder))
        found = {name.split("[")[0] for name in FAILED.findall(out)}
        return found or ({"pytest"} if status else set())


class CCopy:
    """The checkout without what is built; an unchanged file keeps its time, for the build."""

    def __init__(self) -> None:
        self.folder = ROOT / "build/mutants/c"
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for name in filter(None, listed.split("\0")):
            source, made = ROOT / name, self.folder / name
            if source.is_file() and not (made.is_file() and filecmp.cmp(source, made, False)):
                made.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, made)
        subprocess.run(["cmake", "--preset", "dev"], cwd=self.folder, check=True)

    def write(self, file: str, text: str) -> None:
        """Replace a source."""
        (self.folder / file).write_text(text, encoding="utf-8")

    def run(self, tests: list[str]) -> set[str] | None:
        """Build and run programs of tests/unit; return the functions that fail; None: no build."""
        build = ["cmake", "--build", "--preset", "dev", "-j2", "--target", *tests]
        if _run(build, self.folder, SECONDS)[0]:
            return None
        found: set[str] = set()
        for test in tests:  # not by ctest: ended by a signal, it leaves a test that hangs behind
            status, out = _run([f"build/dev/{test}"], self.folder, C_SECONDS)
            if status:
                checks = CHECKED.findall(out)
                found |= {f"{test}:{self._function(*check)}" for check in checks} or {test}
        return found

    def _function(self, file: str, line: str) -> str:
        """Return the function of a test program in a line."""
        text = (ROOT / "tests/unit" / file).read_text(encoding="utf-8").split("\n")
        names = FUNCTION.findall("\n".join(text[: int(line)]))
        return names[-1] if names else file


def _run(words: list[str], folder: Path, seconds: int, **env: str) -> tuple[int, str]:
    out: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    limit = ["timeout", "--kill-after=9", str(seconds)]
    done = subprocess.run(
        [*limit, *words], cwd=folder, env={**os.environ, **env}, check=False, **out
    )
    return done.returncode, done.stdout.decode(errors="replace")


def main() -> None:
    """Plant bugs and print who finds them."""
    parser = argparse.ArgumentParser(usage=(__doc__ or "").strip())
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="+")
    words = sys.argv[1:]
    options = parser.parse_args(words[: words.index("--")])
    tests = words[words.index("--") + 1 :]
    is_c = options.files[0].endswith(".c")
    places = [
        bug
        for file in options.files
        for bug in (c_bugs if is_c else python_bugs)(file, (ROOT / file).read_text("utf-8"))
    ]
    copy = CCopy() if is_c else PythonCopy()
    if found := copy.run(tests):
        raise SystemExit(f"the tests fail without a bug: {sorted(found)}")
    by: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    caught = planted = 0
    for bug in random.Random(options.seed).sample(places, len(places)):
        if planted == options.count:
            break
        original = (ROOT / bug.file).read_text(encoding="utf-8")
        copy.write(bug.file, bug.mutated(original))
        found = copy.run(tests)
        copy.write(bug.file, original)
        if found is None:
            continue  # it does not compile
        planted += 1
        caught += bool(found)
        by.update(found)
        alone.update(found if len(found) == 1 else ())
        print(", ".join(sorted(found)) or "SURVIVED", bug, sep=": ", flush=True)
    for name, count in by.most_common():
        print(f"{count:4} found, {alone[name]:3} alone: {name}")
    print(f"{caught} of {planted} bugs are found")


if __name__ == "__main__":
    main()
