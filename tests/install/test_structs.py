# SPDX-License-Identifier: Apache-2.0
"""scripts/check_structs.py finds structs that have neither a check nor a reason for having none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT

SCRIPT = ROOT / "scripts/check_structs.py"
PAGE = "docs/design/checks.md"
PLANTED = "tests/unit/test_*grades.c"

HEADER = """\
#define SW_NO_STRUCT struct sw_macro { int a; };
/* struct sw_comment { int a; }; */
struct sw_elsewhere;
typedef struct sw_span {
    struct { int inner; } part;
    union sw_inner { int a; } other;
} sw_span;
typedef struct { int size; } sw_size;
static inline struct sw_span *sw_span_of(struct sw_span *span) { return span; }
const char *sw_span_check(const sw_span *span);
"""

SOURCE = """\
static struct {
    int count;
} own = {.count = 1};
const char *sw_span_check(const sw_span *span) {
    return span == 0 ? "struct sw_string { int a; }" : 0;
}
const char *sw_size_record_check(const sw_size *size) { return 0; }
void sw_span_push(sw_span *span) {
    struct local { int a; } here;
    sw_check2(sw_span_check(span) ?: sw_size_record_check(0));
}
"""

DOCUMENT = """\
# Checks

- not here: `sw_span`.

## Structs without a check

- What lives in one source has
  no rules: `own`,
  `local`.

## Next

- nor here: `sw_size`.
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of four structs, two of which have a check."""
    for folder in ("src/span", "src/gen", "include/spanwise", "docs/design"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/span/span.h").write_text(HEADER)
    (tmp_path / "src/span/span.c").write_text(SOURCE)
    (tmp_path / "src/gen/paths.h").write_text("struct sw_generated { int a; };\n")
    (tmp_path / PAGE).write_text(DOCUMENT)
    return tmp_path


def check(tree: Path) -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), "--root", str(tree)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def test_structs_with_check_or_reason_pass(tree: Path) -> None:
    """Declarations, parameters, nested structs, comments, strings and macros do not count."""
    assert check(tree) == (0, ["check_structs: 4 structs, 2 with a check, 0 findings"])


@pytest.mark.parametrize(
    ("path", "old", "new", "finding"),
    [
        (
            "src/span/span.h",
            "struct sw_elsewhere;",
            "typedef struct sw_new {\n    int a;\n} sw_new;",
            f"src/span/span.h: sw_new: there is no sw_new_check, and {PAGE} gives no reason",
        ),
        (
            "src/span/span.h",
            "struct sw_elsewhere;",
            "union __attribute__((packed)) sw_new { int a; };",
            f"src/span/span.h: sw_new: there is no sw_new_check, and {PAGE} gives no reason",
        ),
        (
            "src/span/span.c",
            "static struct {",
            "static struct { int a; } new;\nstatic struct {",
            f"src/span/span.c: new: there is no new_check, and {PAGE} gives no reason",
        ),
        (
            "src/span/span.c",
            "sw_check2(sw_span_check(span) ?: sw_size_record_check(0));",
            "sw_check2(sw_size_record_check(0));",
            "src/span/span.h: sw_span: nobody calls its check",
        ),
        (
            "src/span/span.c",
            "const char *sw_size_record_check(const sw_size *size) { return 0; }",
            "",
            f"src/span/span.h: sw_size: there is no sw_size_check, and {PAGE} gives no reason",
        ),
        (
            "src/span/span.h",
            "struct sw_elsewhere;",
            "struct local { int a; };",
            "src/span/span.h: local: a struct of this name is in src/span/span.c, too",
        ),
        (
            PAGE,
            "`local`",
            "`local`, `sw_span`",
            f"src/span/span.h: sw_span: it has a check, and {PAGE} says that it has none",
        ),
        (
            "src/span/span.c",
            "const char *sw_size_record_check(const sw_size *size) { return 0; }",
            "static const char *fits(const sw_size *size) {\n"
            "    return SW_RULE(size->a < f(1, 2));\n}\n"
            "const char *sw_size_record_check(const sw_size *size) {\n    return fits(size);\n}",
            f"src/span/span.h: sw_size: no damage in {PLANTED} breaks a rule of its check",
        ),
        (PAGE, "`local`", "`local`, `own`", f"{PAGE}: own: it is listed more than once"),
        (PAGE, "`local`", "`local`, `gone`", f"{PAGE}: gone: there is no such struct"),
        (
            PAGE,
            "## Next",
            "- No names.\n\n## Next",
            f"{PAGE}: a bullet without a reason or without names: []",
        ),
    ],
)
def test_planted_fault_is_found(tree: Path, path: str, old: str, new: str, finding: str) -> None:
    text = (tree / path).read_text()
    assert old in text
    (tree / path).write_text(text.replace(old, new, 1))
    status, lines = check(tree)
    assert status == 1
    assert lines[:-1] == [finding]


@pytest.mark.parametrize(
    ("literal", "found"), [("size->a == '\\\\0'", True), ("size->b == 1", False), ("size->", False)]
)
def test_planted_damage_is_known_by_a_rule(tree: Path, literal: str, found: bool) -> None:
    """The beginning of a rule is enough, if it is no shorter than eight characters."""
    (tree / "tests/unit").mkdir(parents=True)
    (tree / "tests/unit/test_span_grades.c").write_text(
        f'static cases[] = {{{{2, "{literal}"}}}};\n'
    )
    source = tree / "src/span/span.c"
    rule = "{\n    return SW_RULE(size->a == '\\0' ||\n                   size->a == 1);\n}"
    source.write_text(source.read_text().replace("{ return 0; }", rule))
    assert check(tree)[0] == (0 if found else 1)


def test_page_without_the_section_is_bad_input(tree: Path) -> None:
    (tree / PAGE).write_text("# Checks\n")
    expected = f"check_structs: {PAGE}: no section '## Structs without a check'"
    assert check(tree) == (2, [expected])


def test_the_project_itself_is_clean() -> None:
    status, lines = check(ROOT)
    assert status == 0, lines


def test_struct_planted_in_the_project_is_found(tmp_path: Path) -> None:
    for folder in ("src", "include", "docs/design", "tests/unit"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    header = tmp_path / "src/recorder/thread.h"
    header.write_text(header.read_text() + "struct record_gizmo {\n    int a;\n};\n")
    status, lines = check(tmp_path)
    assert status == 1
    assert lines[0].startswith("src/recorder/thread.h: record_gizmo: there is no ")
