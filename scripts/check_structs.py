# SPDX-License-Identifier: Apache-2.0
"""Finds for every struct either its check or the reason why it has none.

Structs and unions are those that src/ and include/spanwise/ define, generated files left out; one
without a tag has the name of its variable or typedef, and one inside another belongs to it. A
struct has a check when src/ defines a function `<name>_check` or `<name>_record_check` that returns
the broken rule (docs/design/checks.md), and a source in src/ calls it. Every further struct is
listed in that document's section "Structs without a check", in a bullet that begins with the reason
and ends with the names, in backquotes, after a colon. No struct is in both, no listed name is
without a struct, and two structs do not share a name. One rule at least of each check stands in
tests/unit/test_*grades.c, where a damage is planted that breaks it; a check that only asks others
has no rule. Exit status: 0 clean, 1 findings (one line each), 2 bad usage or input.

Example:
    python3 scripts/check_structs.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checking import COMMENTS, InputError, bare, command_line, run, written

PAGE = "docs/design/checks.md"
SECTION = "## Structs without a check"
PLANTED = "tests/unit/test_*grades.c"
SHORTEST = 8

BRACE = re.compile(r"[{}]")
OPENING = re.compile(r"\b(?:struct|union)\b(?:\s+__attribute__\s*\(\(.*?\)\))?\s*(\w*)\s*$")
NAME_BEHIND = re.compile(r"[\s*]*(\w+)")
DEFINITION = re.compile(r"\bconst\s+char\s*\*\s*(\w+?)_check\s*\([^;{]*\)\s*\{")
CALL = re.compile(r"(?<!char \*)\b(\w+?)_check\s*\(")
LISTED = re.compile(r"`(\w+)`")
# A function that returns a rule, up to its end; a literal of a test.
FUNCTION = re.compile(
    r"\bconst\s+char\s*\*\s*(\w+)\([^;{]*\)\s*\{(.*?)^\}", re.DOTALL | re.MULTILINE
)
RULE = re.compile(r"\bSW_RULE\(")
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')


@dataclass
class Sources:
    """What the sources have.

    Attributes:
        structs: name and path of each struct, in the order of the paths.
        defined: names before `_check` of the functions that are defined.
        called: names before `_check` of the functions that are called.
        rules: what each of the functions that are defined compares, with its own helpers.
        planted: the literals of the tests of grades.
    """

    structs: list[tuple[str, str]]
    defined: set[str]
    called: set[str]
    rules: dict[str, list[str]]
    planted: list[str]


def structs_of(text: str) -> Iterator[str]:
    """The names of the structs and unions that a bare source defines, but for nested ones."""
    open_braces: list[str | None] = []  # the tag of a struct; None: a brace of something else
    for brace in BRACE.finditer(text):
        if brace[0] == "{":
            opening = OPENING.search(text, 0, brace.start())
            open_braces.append(opening[1] if opening else None)
            continue
        tag = open_braces.pop() if open_braces else None
        if tag is None or any(outer is not None for outer in open_braces):
            continue
        behind = NAME_BEHIND.match(text, brace.end())
        name = tag or (behind[1] if behind else "")
        if name:
            yield name


def conditions(text: str) -> Iterator[str]:
    """What a function compares: the argument of each SW_RULE, with single spaces."""
    for match in RULE.finditer(text):
        depth, end = 1, match.end()
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield " ".join(text[match.end() : end - 1].split())


def rules_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """The checks that a source defines, each with its rules; those of helpers beside it count."""
    bodies = {match[1]: match[2] for match in FUNCTION.finditer(text)}
    for name, body in bodies.items():
        if not name.endswith("_check"):
            continue
        helpers = [one for one in bodies if not one.endswith("_check") and f"{one}(" in body]
        parts = [body, *(bodies[one] for one in helpers)]
        yield name.removesuffix("_check"), [rule for part in parts for rule in conditions(part)]


def read_planted(root: Path) -> list[str]:
    """The literals of the tests of grades that are long enough to be a part of a rule."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(root.glob(PLANTED)))
    found = (match[1].replace("\\\\", "\\") for text in texts for match in LITERAL.finditer(text))
    return [literal for literal in found if len(literal) >= SHORTEST]


def read_sources(root: Path) -> Sources:
    """Reads all of src/ and the public headers.

    Raises:
        InputError: no struct is there.
    """
    sources = Sources([], set(), set(), {}, read_planted(root))
    for path, name in written(root, "src/**/*.[ch]", "include/spanwise/**/*.h"):
        whole = path.read_text(encoding="utf-8")
        sources.rules.update(rules_of(COMMENTS.sub(" ", whole)))
        text = bare(whole)
        sources.structs += [(struct, name) for struct in structs_of(text)]
        defined = [(match.start(1), match[1]) for match in DEFINITION.finditer(text)]
        places = {place for place, _ in defined}
        sources.defined.update(struct for _, struct in defined)
        if path.suffix == ".c":
            calls = (match for match in CALL.finditer(text) if match.start(1) not in places)
            sources.called.update(match[1] for match in calls)
    if not sources.structs:
        raise InputError(f"{root}: no struct below src/ or include/spanwise/")
    return sources


def read_reasons(text: str) -> list[tuple[str, list[str]]]:
    """The bullets of the section: the reason of each, and the names behind it.

    Raises:
        InputError: the section is missing.
    """
    _, found, section = text.partition(f"\n{SECTION}\n")
    if not found:
        raise InputError(f"{PAGE}: no section '{SECTION}'")
    section = section.partition("\n## ")[0]
    bullets = re.findall(r"^- (.*?)(?=^- |^$|\Z)", section, re.DOTALL | re.MULTILINE)
    reasons = []
    for bullet in bullets:
        reason, _, names = " ".join(bullet.split()).rpartition(": ")
        reasons.append((reason, LISTED.findall(names)))
    return reasons


def check_for(struct: str, sources: Sources) -> tuple[bool, bool]:
    """Whether the struct's check is defined, and whether it is called."""
    names = [struct, f"{struct}_record"]
    defined = [name for name in names if name in sources.defined]
    return bool(defined), any(name in sources.called for name in defined)


def is_planted(struct: str, sources: Sources) -> bool:
    """Whether a damage breaks a rule of the struct's check, or the check has no rule of its own."""
    rules = sources.rules.get(struct, []) + sources.rules.get(f"{struct}_record", [])
    return not rules or any(literal in rule for rule in rules for literal in sources.planted)


def check(sources: Sources, reasons: list[tuple[str, list[str]]]) -> Iterator[str]:
    """Yields one line for each finding."""
    listed = [name for _, names in reasons for name in names]
    paths: dict[str, str] = {}
    for struct, path in sources.structs:
        if struct in paths:
            yield f"{path}: {struct}: a struct of this name is in {paths[struct]}, too"
            continue
        paths[struct] = path
        defined, called = check_for(struct, sources)
        if defined and struct in listed:
            yield f"{path}: {struct}: it has a check, and {PAGE} says that it has none"
        elif defined and not called:
            yield f"{path}: {struct}: nobody calls its check"
        elif defined and not is_planted(struct, sources):
            yield f"{path}: {struct}: no damage in {PLANTED} breaks a rule of its check"
        elif not defined and struct not in listed:
            yield f"{path}: {struct}: there is no {struct}_check, and {PAGE} gives no reason"
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        yield f"{PAGE}: {name}: it is listed more than once"
    for name in sorted(set(listed) - paths.keys()):
        yield f"{PAGE}: {name}: there is no such struct"
    for reason, names in reasons:
        if not reason or not names:
            yield f"{PAGE}: a bullet without a reason or without names: {reason}{names}"


def main(arguments: list[str] | None = None) -> int:
    """Runs the comparison and returns the exit status."""
    root = command_line(__doc__).parse_args(arguments).root

    def compare() -> tuple[list[str], str]:
        reasons = read_reasons((root / PAGE).read_text(encoding="utf-8"))
        sources = read_sources(root)
        checked = sum(check_for(struct, sources)[0] for struct, _ in sources.structs)
        seen = f"{len(sources.structs)} structs, {checked} with a check"
        return list(check(sources, reasons)), seen

    return run("check_structs", compare, "findings")


if __name__ == "__main__":
    sys.exit(main())
