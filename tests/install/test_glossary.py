# SPDX-License-Identifier: Apache-2.0
"""scripts/check_glossary.py finds words that the glossary lacks, has twice or has in vain."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT

SCRIPT = ROOT / "scripts/check_glossary.py"
GLOSSARY = "docs/design/glossary.md"

HEADER = """\
#ifndef SW_SPAN_H
#define SW_SPAN_H
#define SW_NOT_A_NAME(gadget) gadget
#ifdef __cplusplus
extern "C" {
#endif
/* A widget here is a comment, "sw_widget" a string. */
typedef struct sw_span {
    int widget; /* members are no names */
    struct { int gadget; } inner;
} sw_span;
enum sw_span_state { SW_SPAN_WIDGET };
typedef void sw_slot_fn(sw_span *span, int (*gadget)(int));
typedef int (*sw_slots_fn)(int);
struct stat;
SW_API SW_NONNULL(1) int
sw_span_take(sw_span *span, struct gizmo *gadget);
int sw_span_print(const char *widget, ...) __attribute__((format(printf, 1, 2)));
extern int sw_span_gadget;
static inline int sw_span_put64(sw_span *span) { return sw_gadget(span); }
_Static_assert(sizeof(sw_span) == 8, "widget");
#ifdef __cplusplus
}
#endif
#endif
"""

PAGE = """\
| noun | meaning |
|---|---|
| `span` | pages in a row |
| `slot` | a cell of a span |
| `state` | what it is in |
| `stat` | figures |

`take`, `print`,
`put`.

`sw`, `fn`
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of one header, whose words the glossary has."""
    (tmp_path / "src/span").mkdir(parents=True)
    (tmp_path / "src/gen").mkdir()
    (tmp_path / "docs/design").mkdir(parents=True)
    (tmp_path / "src/span/span.h").write_text(HEADER)
    (tmp_path / "src/gen/paths.h").write_text("int sw_generated_16(void);\n")
    (tmp_path / GLOSSARY).write_text(PAGE)
    return tmp_path


def check(tree: Path) -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), "--root", str(tree)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def test_words_that_are_all_there_pass(tree: Path) -> None:
    """Members, parameters, comments, macros, variables, bodies and generated names do not count."""
    assert check(tree) == (
        0,
        ["check_glossary: 8 names, 4 nouns, 5 further words, 0 findings"],
    )


@pytest.mark.parametrize(
    ("declaration", "name", "word"),
    [
        ("typedef struct sw_widget { int a; } sw_widget;", "sw_widget", "widget"),
        ("typedef struct { int a; } sw_span_widget;", "sw_span_widget", "widget"),
        ("struct sw_widget;", "sw_widget", "widget"),
        ("enum sw_widgets { SW_A };", "sw_widgets", "widgets"),
        ("typedef uint32_t sw_widget;", "sw_widget", "widget"),
        ("typedef bool sw_widget_fn(void);", "sw_widget_fn", "widget"),
        ("typedef bool (*sw_widget_fn)(void);", "sw_widget_fn", "widget"),
        ("sw_span *sw_span_any(void);", "sw_span_any", "any"),
        ("static inline int sw_span_rest(int a) { return a; }", "sw_span_rest", "rest"),
        (
            "int sw_span_more(int)\n    __attribute__((format(printf, 1, 2)));",
            "sw_span_more",
            "more",
        ),
    ],
)
def test_planted_word_is_found(tree: Path, declaration: str, name: str, word: str) -> None:
    (tree / "src/span/extra.h").write_text(declaration + "\n")
    status, lines = check(tree)
    assert status == 1
    assert lines[0] == f"src/span/extra.h: {name}: '{word}' is not in {GLOSSARY}"
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("`take`,", "`take`, `dance`,", "docs/design/glossary.md:8: 'dance' is in no C name"),
        (
            "| `stat` |",
            "| `widget` | - |\n| `stat` |",
            "docs/design/glossary.md:6: 'widget' is in no C name",
        ),
        (
            "`sw`, `fn`",
            "`sw`, `fn`, `slot`",
            "docs/design/glossary.md:11: 'slot' is listed already, in line 4",
        ),
        ("| figures |", "| |", "docs/design/glossary.md:6: 'stat' has no meaning"),
    ],
)
def test_planted_row_is_found(tree: Path, old: str, new: str, message: str) -> None:
    path = tree / GLOSSARY
    assert old in PAGE
    path.write_text(PAGE.replace(old, new))
    status, lines = check(tree)
    assert status == 1
    assert lines[0] == message
    assert len(lines) == 2


def test_page_without_nouns_is_bad_input(tree: Path) -> None:
    (tree / GLOSSARY).write_text("`sw`\n")
    status, lines = check(tree)
    assert status == 2
    assert lines == [f"check_glossary: {GLOSSARY}: no row of the form '| `noun` | meaning |'"]


def test_the_project_itself_is_clean() -> None:
    status, lines = check(ROOT)
    assert status == 0, lines


def test_noun_planted_in_the_project_is_found(tmp_path: Path) -> None:
    for folder in ("src", "include", "docs/design"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    header = tmp_path / "src/heap/heap.h"
    header.write_text(header.read_text() + "typedef struct sw_gizmo sw_gizmo;\n")
    status, lines = check(tmp_path)
    assert status == 1
    assert lines[0] == f"src/heap/heap.h: sw_gizmo: 'gizmo' is not in {GLOSSARY}"
