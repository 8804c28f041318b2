# SPDX-License-Identifier: Apache-2.0
"""The functions, fields and cache lines that docs/design/one-allocation.md names are the code's."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/design/one-allocation.md"

SENTENCE = re.compile(r"^(\d+)\. ((?:.|\n(?! *\n|\d+\. |#))*)", re.MULTILINE)
FUNCTION = re.compile(r"`(\w+)`\s+\(((?:src|include)/[\w/.]+)\)")
FIELD = re.compile(r"`(sw_\w+)\.(\w+)`")
CODE = re.compile(r"`([^`]+)`")
ROW = re.compile(r"^\| `(\w+)` \| (\d+) \| (.*) \|$", re.MULTILINE)


def without_comments(text: str) -> str:
    """C source without its comments."""
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def block(text: str, start: int) -> str:
    """The text between the brace at or behind `start` and the one that closes it."""
    first = text.index("{", start)
    depth = 0
    for i in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[first + 1 : i]
    raise ValueError("a brace is not closed")


def function_body(path: Path, name: str) -> str | None:
    """The body of a function that the file defines; None: it does not."""
    if not path.is_file():
        return None
    text = without_comments(path.read_text(encoding="utf-8"))
    found = re.search(rf"^[A-Za-z][^\n;#=]*\b{name}\([^;{{}}]*\)\s*\{{", text, re.MULTILINE)
    return None if found is None else block(text, found.start())


def struct_bodies(root: Path) -> dict[str, str]:
    """The members of every structure in the headers, by its name."""
    bodies = {}
    for path in [*root.glob("include/spanwise/*.h"), *root.glob("src/**/*.h")]:
        text = without_comments(path.read_text(encoding="utf-8"))
        for found in re.finditer(r"\bstruct (sw_\w+) \{", text):
            bodies[found[1]] = block(text, found.start())
    return bodies


def problems(root: Path, page: str) -> Iterator[str]:
    """What the numbered sentences of the page say that the code does not."""
    structs = struct_bodies(root)
    for count, (number, sentence) in enumerate(SENTENCE.findall(page), start=1):
        if int(number) != count:
            yield f"{number}: the sentence before it has the number {count - 1}"
        functions, fields = FUNCTION.findall(sentence), FIELD.findall(sentence)
        names = {name for name, _ in functions} | {f"{s}.{f}" for s, f in fields}
        yield from (
            f"{number}: {code} is no function with a file, and no field"
            for code in CODE.findall(sentence)
            if code not in names
        )
        bodies = {name: function_body(root / file, name) for name, file in functions}
        yield from (
            f"{number}: {file} defines no {name}"
            for name, file in functions
            if bodies[name] is None
        )
        used = "\n".join(body for body in bodies.values() if body is not None)
        for struct, field in fields:
            if not re.search(rf"\b{field}\b(?=\s*[;,\[])", structs.get(struct, "")):
                yield f"{number}: {struct} has no field {field}"
            elif not re.search(rf"\b({struct}_(set_)?)?{field}\b", used):  # or by its accessor
                yield f"{number}: {', '.join(bodies)} does not use {field}"


def layout_source(page: str) -> str:
    """A source that compiles only if each field of the page's table lies in its line."""
    checks = [
        f'_Static_assert(offsetof({struct}, {field}) / 64 == {line}, "{struct}.{field}");'
        for struct, line, fields in ROW.findall(page)
        for field in re.findall(r"`(\w+)`", fields)
    ]
    assert len(checks) > 40
    return "\n".join(['#include "heap/cache.h"', *checks, ""])


def compiles(source: str) -> subprocess.CompletedProcess[str]:
    """Compiles a source against the tree's headers, without output."""
    compiler = shutil.which("cc")
    assert compiler is not None, "the tests need a C compiler"
    return subprocess.run(
        [compiler, "-std=gnu11", "-fsyntax-only", "-DSW_CHECK=1", "-Isrc", "-Iinclude", "-xc", "-"],
        cwd=ROOT,
        input=source,
        text=True,
        capture_output=True,
        check=False,
    )


def test_every_name_is_the_codes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(SENTENCE.findall(page)) == 40
    assert list(problems(ROOT, page)) == []


def test_every_line_is_the_compilers() -> None:
    result = compiles(layout_source(PAGE.read_text(encoding="utf-8")))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("written", "planted", "problem"),
    [
        (
            "`sw_free_hinted` (src",
            "`sw_free_gone` (src",
            "26: src/heap/free.c defines no sw_free_gone",
        ),
        ("(src/heap/refill.c) takes", "(src/heap/gone.c) takes", "gone.c defines no take_unowned"),
        ("`sw_hint.at`,", "`sw_hint.gone`,", "26: sw_hint has no field gone"),
        ("`sw_hint.at`,", "`sw_gone.at`,", "26: sw_gone has no field at"),
        (
            "`sw_cache_cold.idle_spans`",
            "`sw_cache_cold.full`",
            "23: release_or_count_idle does not use full",
        ),
        ("The slots can", "`sw_word` can", "37: sw_word is no function with a file, and no field"),
        ("\n12. ", "\n13. ", "13: the sentence before it has the number 11"),
    ],
)
def test_what_is_gone_is_found(written: str, planted: str, problem: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written in page
    found = list(problems(ROOT, page.replace(written, planted, 1)))
    assert any(problem in each for each in found), found


def test_a_wrong_line_is_found() -> None:
    page = PAGE.read_text(encoding="utf-8")
    planted = page.replace("| `sw_cache` | 1 |", "| `sw_cache` | 0 |")
    assert planted != page
    assert '"sw_cache.hazard"' in compiles(layout_source(planted)).stderr
