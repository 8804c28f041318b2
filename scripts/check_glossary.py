# SPDX-License-Identifier: Apache-2.0
"""Compares the words of the C names with docs/design/glossary.md.

Names are those of the types (struct, union and enum tags, typedefs) and functions in the headers
of src/ and include/; the generated ones, whose names are numbers, are left out. Each of their words
has to be in the glossary: as a noun with its one meaning, or in one of its lists of verbs,
adjectives, units and prefixes. A plural is the word without its s. No word is listed twice, and
none that no name uses. Exit status: 0 clean, 1 findings (one line each), 2 bad usage or input.

Example:
    python3 scripts/check_glossary.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from checking import COMMENTS, DIRECTIVES, STRINGS, InputError, command_line, run, written

GLOSSARY = "docs/design/glossary.md"

NOUN_ROW = re.compile(r"^\| `(?P<word>[a-z0-9]+)` \| (?P<meaning>.*?) *\|$")
LIST_LINE = re.compile(r"^(?:`[a-z0-9]+`(?:, *|\.$|,$|$))+$")
DECORATIONS = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\b[A-Z_]+\s*\([^()]*\)")
TAG = re.compile(r"\b(?:struct|union|enum)\s+(\w+)\s*$")
FUNCTION = re.compile(r"\b(\w+)\s*\(")
FUNCTION_POINTER = re.compile(r"[^(]*\(\s*\*\s*(\w+)")


@dataclass
class Glossary:
    """The words of the document, each with the lines that list it.

    Attributes:
        nouns: words that have a meaning of their own.
        lines: of every word, nouns included.
    """

    nouns: dict[str, str] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=dict)

    def word_for(self, word: str) -> str | None:
        """The listed word that a part of a name is: as it is, in the plural, or with a width."""
        forms = [word, word.rstrip("0123456789")]
        if word.endswith("s"):
            forms.append(word[:-1])
        if word.endswith("es"):
            forms.append(word[:-2])
        if word.endswith("ies"):
            forms.append(word[:-3] + "y")
        return next((form for form in forms if form in self.lines), None)


def read_glossary(text: str) -> Glossary:
    """Parses the rows of the tables and the lists of words in backquotes.

    Raises:
        InputError: there is no noun in it.
    """
    glossary = Glossary()
    for number, line in enumerate(text.splitlines(), 1):
        row = NOUN_ROW.match(line)
        words = [row["word"]] if row else []
        if row:
            glossary.nouns[row["word"]] = row["meaning"]
        elif LIST_LINE.match(line):
            words = re.findall(r"`([a-z0-9]+)`", line)
        for word in words:
            glossary.lines.setdefault(word, []).append(number)
    if not glossary.nouns:
        raise InputError(f"{GLOSSARY}: no row of the form '| `noun` | meaning |'")
    return glossary


def file_level(text: str) -> str:
    """C source without comments, directives and the insides of braces."""
    for pattern in (COMMENTS, DIRECTIVES):
        text = pattern.sub(" ", text)
    text = re.sub(r'extern\s+"C"\s*\{', " ", text)
    text = STRINGS.sub("", text)
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                kept.append("{}")
            depth = max(depth, 0)
        elif depth == 0:
            kept.append(character)
    return DECORATIONS.sub(" ", "".join(kept))


def names_of(text: str) -> set[str]:
    """The names of the types and functions that a header's text declares or defines."""
    names: set[str] = set()
    pieces = re.split(r"(;|\{\})", file_level(text))
    in_typedef = False
    for piece, end in zip(pieces[0::2], pieces[1::2], strict=False):
        words = re.findall(r"\w+", piece)
        begins_typedef = words[:1] == ["typedef"]
        tag = TAG.search(piece)
        if tag and (end == "{}" or not begins_typedef):
            names.add(tag[1])
        if end == "{}" and begins_typedef:
            in_typedef = True
            continue
        if in_typedef or begins_typedef:
            called = FUNCTION_POINTER.match(piece) or FUNCTION.search(piece)
            names.add(called[1] if called else words[-1])
        elif "(" in piece and "=" not in piece:
            called = FUNCTION.search(piece)
            if called and called[1] not in ("_Static_assert", "_Alignas"):
                names.add(called[1])
        in_typedef = False
    return names


def read_names(root: Path) -> dict[str, str]:
    """Every name of the headers, with the first header that declares it.

    Raises:
        InputError: there is no header.
    """
    names: dict[str, str] = {}
    for header, path in written(root, "src/**/*.h", "include/**/*.h"):
        for name in names_of(header.read_text(encoding="utf-8")):
            names.setdefault(name, path)
    if not names:
        raise InputError(f"{root}: no C header below src/ or include/")
    return names


def check(glossary: Glossary, names: dict[str, str]) -> Iterator[str]:
    """Yields one line for each finding."""
    used: set[str] = set()
    for name, path in sorted(names.items(), key=lambda item: (item[1], item[0])):
        for word in filter(None, name.lower().split("_")):
            known = glossary.word_for(word)
            if known is None:
                yield f"{path}: {name}: '{word}' is not in {GLOSSARY}"
            else:
                used.add(known)
    for word, lines in sorted(glossary.lines.items(), key=lambda item: item[1]):
        if len(lines) > 1:
            yield f"{GLOSSARY}:{lines[1]}: '{word}' is listed already, in line {lines[0]}"
        if word not in used:
            yield f"{GLOSSARY}:{lines[0]}: '{word}' is in no C name"
    for word, meaning in glossary.nouns.items():
        if not meaning:
            yield f"{GLOSSARY}:{glossary.lines[word][0]}: '{word}' has no meaning"


def main(arguments: list[str] | None = None) -> int:
    """Runs the comparison and returns the exit status."""
    root = command_line(__doc__).parse_args(arguments).root

    def compare() -> tuple[list[str], str]:
        glossary = read_glossary((root / GLOSSARY).read_text(encoding="utf-8"))
        names = read_names(root)
        nouns, words = len(glossary.nouns), len(glossary.lines)
        seen = f"{len(names)} names, {nouns} nouns, {words - nouns} further words"
        return list(check(glossary, names)), seen

    return run("check_glossary", compare, "findings")


if __name__ == "__main__":
    sys.exit(main())
