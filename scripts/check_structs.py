# SPDX-License-Identifier: Apache-2.0
"""Finds for every struct either its check or the reason why it has none.

Structs and unions are those that src/ and include/spanwise/ define, generated files left out; one
without a tag has the name of its variable or typedef, and one inside another belongs to it. A
struct has a check when src/ defines a function `<name>_check` or `<name>_record_check` that returns
the broken rule (docs/design/checks.md), and a source in src/ calls it. Every further struct is
listed in that document's section "Structs without a check", in a bullet that begins with the reason
and ends with the names, in backquotes, after a colon. No struct is in both, no listed name is
without a struct, and two structs do not share a name. Exit status: 0 clean, 1 findings (one line
each), 2 bad usage or input.

Example:
    python3 scripts/check_structs.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checking import InputError, bare, command_line, run, written

PAGE = "docs/design/checks.md"
SECTION = "## Structs without a check"

BRACE = re.compile(r"[{}]")
OPENING = re.compile(r"\b(?:struct|union)\b(?:\s+__attribute__\s*\(\(.*?\)\))?\s*(\w*)\s*$")
NAME_BEHIND = re.compile(r"[\s*]*(\w+)")
DEFINITION = re.compile(r"\bconst\s+char\s*\*\s*(\w+?)_check\s*\([^;{]*\)\s*\{")
CALL = re.compile(r"(?<!char \*)\b(\w+?)_check\s*\(")
LISTED = re.compile(r"`(\w+)`")


@dataclass
class Sources:
    """What the sources have.

    Attributes:
        structs: name and path of each struct, in the order of the paths.
        defined: names before `_check` of the functions that are defined.
        called: names before `_check` of the functions that are called.
    """

    structs: list[tuple[str, str]]
    defined: set[str]
    called: set[str]


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


def read_sources(root: Path) -> Sources:
    """Reads all of src/ and the public headers.

    Raises:
        InputError: no struct is there.
    """
    sources = Sources([], set(), set())
    for path, name in written(root, "src/**/*.[ch]", "include/spanwise/**/*.h"):
        text = bare(path.read_text(encoding="utf-8"))
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
