#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages from the help texts of the commands: docs/man/spanwise.1 and one for each command.

    .venv/bin/python scripts/man_pages.py           # compares; 1 where a page differs
    .venv/bin/python scripts/man_pages.py --write   # writes them

The pages are in the checkout because a wheel is built before the package can be imported; it takes
them to share/man/man1. They have no date and no version of Python's own forms of help in them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from spanwise import _lib
from spanwise.__main__ import make_parser

FOLDER = Path(__file__).resolve().parents[1] / "docs/man"
_STATUS = (
    ("0", "all is well"),
    ("1", "a finding: a recording with gaps, a limit that is not kept, a table that stays"),
    ("2", "wrong use or bad input; one line on standard error says what, where and how to mend it"),
    ("130", "Ctrl-C stopped it; there is no part of an output file"),
)


def escaped(text: str) -> str:
    """Text for roff: backslashes, hyphens that are typed, and lines that would be requests."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line.startswith((".", "'")) else line for line in plain.split("\n")
    )


def named(action: argparse.Action) -> str:
    """An option with its value, or an argument, in roff."""
    metavar = action.metavar if isinstance(action.metavar, str) else None
    if metavar is None and action.choices is not None:
        metavar = "|".join(map(str, action.choices))
    value = metavar or action.dest.upper()
    if not action.option_strings:
        return f"\\fI{escaped(value)}\\fR"
    words = ", ".join(f"\\fB{escaped(word)}\\fR" for word in action.option_strings)
    return words if action.nargs == 0 else f"{words} \\fI{escaped(value)}\\fR"


def helped(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an option, with its default where the text asks for it."""
    text = action.help or ""
    values = {**vars(action), "prog": parser.prog}
    return escaped(" ".join((text % values).split()))


def synopsis(parser: argparse.ArgumentParser) -> str:
    """The words of a command: options first, needed ones without brackets, then arguments."""
    words = [f"\\fB{escaped(parser.prog)}\\fR"]
    for action in sorted(parser._actions, key=lambda one: not one.option_strings):
        if isinstance(action, argparse._SubParsersAction):
            words.append("\\fICOMMAND\\fR ...")
        elif action.option_strings:
            short = named(action).split(", ")[-1]
            words.append(short if action.required else f"[{short}]")
        else:
            many = " ..." if action.nargs in ("+", "*", argparse.REMAINDER) else ""
            words.append(f"{named(action)}{many}")
    return " ".join(words)


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Each option and argument with its help, by group."""
    for group in parser._action_groups:
        actions = [
            one
            for one in group._group_actions
            if not isinstance(one, argparse._SubParsersAction) and one.help != argparse.SUPPRESS
        ]
        if not actions:
            continue
        yield f".SS {escaped((group.title or '').capitalize())}"
        for action in actions:
            yield f".TP\n{named(action)}\n{helped(parser, action)}"


def page(parser: argparse.ArgumentParser, brief: str, others: list[str]) -> str:
    """One manual page."""
    name = parser.prog.replace(" ", "-")
    head = (name.upper(), "1", "", f"spanwise {_lib.version()}", "User Commands")
    parts = [
        '.\\" Written by scripts/man_pages.py from the help texts; not to be edited.',
        ".TH " + " ".join(f'"{escaped(word)}"' for word in head),
        f".SH NAME\n{escaped(name)} \\- {escaped(brief)}",
        f".SH SYNOPSIS\n{synopsis(parser)}",
        f".SH DESCRIPTION\n{escaped(parser.description or '')}",
    ]
    epilog = parser.epilog or ""
    notes, _, example = epilog.partition("example:\n")
    if notes:
        parts.append(f".SH NOTES\n.nf\n{escaped(notes.strip())}\n.fi")
    if example:
        parts.append(f".SH EXAMPLE\n.nf\n{escaped(example)}\n.fi")
    parts.append(".SH OPTIONS\n" + "\n".join(options(parser)))
    parts.append(
        ".SH EXIT STATUS\n" + "\n".join(f".TP\n{code}\n{escaped(what)}" for code, what in _STATUS)
    )
    parts.append(".SH SEE ALSO\n" + ",\n".join(f"\\fB{escaped(one)}\\fR(1)" for one in others))
    return "\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """All pages by the name of their file."""
    top = make_parser()
    (commands,) = (one for one in top._actions if isinstance(one, argparse._SubParsersAction))
    helps = {one.dest: one.help or "" for one in commands._choices_actions}
    names = [f"spanwise-{name}" for name in commands.choices]
    brief = "what a program allocates, under any size-class table"
    made = {"spanwise.1": page(top, brief, names)}
    for name, parser in commands.choices.items():
        others = ["spanwise", *(one for one in names if one != f"spanwise-{name}")]
        made[f"spanwise-{name}.1"] = page(parser, helps[name], others)
    return made


def main() -> int:
    """Compares or writes; 1 where pages differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help="write the pages")
    wanted = pages()
    there = {one.name: one.read_text(encoding="utf-8") for one in FOLDER.glob("*.1")}
    if parser.parse_args().write:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in set(there) - set(wanted):
            (FOLDER / name).unlink()
        for name, text in wanted.items():
            (FOLDER / name).write_text(text, encoding="utf-8")
        return 0
    wrong = sorted(name for name in {*there, *wanted} if there.get(name) != wanted.get(name))
    for name in wrong:
        print(f"docs/man/{name}: is not what the help says; run scripts/man_pages.py --write")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
