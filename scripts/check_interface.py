# SPDX-License-Identifier: Apache-2.0
"""Compares the functions and variables of the public headers with a checked-in record.

The record, tests/data/interface.txt, has the version of the shared library's SONAME, then a line
with the type of each exported name. Within a version, lines may be added but not removed
(docs/stability.md). tests/install/exports.sh checks that the libraries export the declared names.
Exit status: 0 no difference, 1 a difference, 2 bad input.

Example:
    python3 scripts/check_interface.py --write
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from checking import InputError, command_line, run

RECORD = "tests/data/interface.txt"
VERSION = "include/spanwise/spanwise.h"
HEADERS = ("spanwise.h", "fast.h", "gc_fast.h")
# From SW_API to the end of a declaration. The sw_table_is_ symbol depends on the default table.
DECLARATION = re.compile(
    r"SW_DECLARED (?P<type>[^(;[]*?)(?P<name>\w+)(?P<rest>\(.*?\)|\[.*?\])?\s*;"
)
TABLE = "sw_table_is_"


def version_of(root: Path) -> str:
    """Return major.minor of the headers."""
    text = (root / VERSION).read_text(encoding="utf-8")
    found = re.search(r'^#define SPANWISE_VERSION "(\d+\.\d+)\.\d+"$', text, re.MULTILINE)
    if found is None:
        raise InputError(f"{VERSION}: no line '#define SPANWISE_VERSION \"x.y.z\"'")
    return found[1]


def spaced(text: str) -> str:
    """Return a type with one space before each star."""
    return re.sub(r"\* const\b", "*const", " ".join(text.replace("*", " * ").split()))


def types_of(parameters: str) -> str:
    """Return the types of parameters, without their names."""
    return ", ".join(type_of(one) for one in re.split(r",(?![^()]*\))", parameters))


def type_of(parameter: str) -> str:
    """Return the type of a parameter, without its name."""
    function = re.fullmatch(r"(.*)\( ?\*\w*\)\((.*)\)", parameter.strip())
    if function is not None:
        return f"{spaced(function[1])} ({types_of(function[2])}) *"
    words = spaced(re.sub(r"\[.*\]", " *", parameter)).split()
    is_named = len(words) > 1 and re.fullmatch(r"\w+", words[-1]) is not None
    return " ".join(words[:-1] if is_named else words)


def interface(root: Path) -> list[str]:
    """Return one line per name that the headers declare for export."""
    done = subprocess.run(
        [
            "cc",
            "-E",
            "-P",
            *("-DSW_API=SW_DECLARED", "-D__attribute__(x)="),
            f"-I{root}/include",
            "-",
        ],
        input="".join(f"#include <spanwise/{name}>\n" for name in HEADERS),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise InputError(f"the headers do not compile: {done.stderr.splitlines()[0]}")
    lines = set()
    for found in DECLARATION.finditer(" ".join(done.stdout.split())):
        rest = found["rest"] or ""
        if rest.startswith("("):
            rest = f" ({types_of(rest[1:-1])})"
        if not found["name"].startswith(TABLE):
            result = re.sub(r"\b(extern|_Thread_local|__thread)\b", "", found["type"])
            lines.add(f"name {found['name']}: {spaced(result)}{rest}")
    return sorted(lines)


def differences(version: str, lines: list[str], recorded: list[str]) -> Iterator[str]:
    """Yield a line per difference, beginning with names that were removed within a version."""
    if recorded[:1] != [version]:
        yield f"{RECORD} is of version {recorded[0] if recorded else '?'}, the headers of {version}"
        return
    yield from (f"gone within version {version}: {one}" for one in recorded[1:] if one not in lines)
    yield from (f"not on record: {one}" for one in lines if one not in recorded)


def main() -> int:
    """Compare the headers with the record, or add new names to it."""
    parser = command_line(__doc__)
    parser.add_argument("--write", action="store_true", help="add new names, or start a version")
    options = parser.parse_args()
    path: Path = options.root / RECORD

    def work() -> tuple[list[str], str]:
        version, lines = version_of(options.root), interface(options.root)
        recorded = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = list(differences(version, lines, recorded))
        broken = any(one.startswith("gone") for one in found)
        if options.write and not broken:
            path.write_text("\n".join([version, *lines]) + "\n", encoding="utf-8")
            found = []
        if broken:
            found.append(f"raise the minor version in {VERSION}, or keep the names")
        elif found:
            found.append("run scripts/check_interface.py --write")
        return found, f"{len(lines)} names of version {version}"

    return run("check_interface", work, "findings")


if __name__ == "__main__":
    raise SystemExit(main())
