# SPDX-License-Identifier: Apache-2.0
"""Parsers and helpers that all commands share."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeAlias

from spanwise import _format
from spanwise.commands import COMMANDS, _options
from spanwise.commands._options import add_option

if TYPE_CHECKING:
    from spanwise.heap.options import HeapOptions
    from spanwise.measure.bench_result import BenchResult
    from spanwise.recordings.recording import Recording
    from spanwise.recordings.recording_set import RecordingSet
    from spanwise.sweeps.result import Sweep
    from spanwise.tables.table import SizeClassTable


SubParsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean WORD?" to end an error message with, or "" if no word is close."""
    import difflib  # noqa: PLC0415  errors only

    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and suggest a similar word."""

    def format_help(self) -> str:
        """Return the summary, then the example, then the rest of the description."""
        first, _, rest = (self.description or "").partition("\n\n")
        notes, mark, example = (self.epilog or "").partition("example:\n")
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        for text in (first, mark + example, rest):
            formatter.add_text(text)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(notes.rstrip("\n"))
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Exits with an error that names the first unknown word or option."""
        word = words[0].partition("=")[0]
        if not word.startswith("-") or word == "-":
            self.error(f"unexpected {words[0]!r}")
        known = [name for action in self._actions for name in action.option_strings]
        self.error(f"unknown option {word}{suggestion(word, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            known = [str(choice) for choice in action.choices or ()]
            raise argparse.ArgumentError(
                action, f"{error.message}{suggestion(str(value), known)}"
            ) from None


def new_command(
    commands: SubParsers, name: str, example: str, run: Callable[[Any], int]
) -> argparse.ArgumentParser:
    """Declares a command with its help, an example and --json."""
    import textwrap  # noqa: PLC0415

    text = COMMANDS[name].help
    parser = commands.add_parser(
        name,
        help=text,
        description=textwrap.fill(f"{text[0].upper()}{text[1:]}.", 79),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run, parser=parser)
    add_option(parser, "--json", "print JSON, for machines")
    return parser


def add_description(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds a paragraph about what a command does and prints to its help."""
    import textwrap  # noqa: PLC0415

    parser.description = f"{parser.description}\n\n{textwrap.fill(text, 79)}"


def open_recordings(options: argparse.Namespace) -> Recording | RecordingSet:
    """Open the recording, or the set if there are several."""
    from spanwise.recordings.recording_set import RecordingSet  # noqa: PLC0415  brings numpy

    opened = RecordingSet.open(options.files, options.valid_prefix)
    return opened[0] if len(opened) == 1 else opened


def simulation_of(
    options: argparse.Namespace,
) -> tuple[SizeClassTable, Recording | RecordingSet, HeapOptions]:
    """Return the table, recordings and heap options of a command, checked before it simulates."""
    from spanwise.tables.table import SizeClassTable  # noqa: PLC0415  brings numpy

    table = SizeClassTable.named(options.table)
    return table, open_recordings(options), _options.heap_options_of(options)


def warn_gaps(recordings: Iterable[Recording]) -> bool:
    """Prints the gaps of recordings to stderr; returns whether there are any."""
    gaps = [f"{one.name}: {gap}" for one in recordings for gap in one.summary.gaps()]
    for line in gaps:
        print(f"spanwise: {line}", file=sys.stderr)
    return bool(gaps)


def each_of(recordings: Recording | RecordingSet) -> list[Recording]:
    """Return a list of the recording, or of the recordings of the set."""
    from spanwise.recordings.recording import Recording  # noqa: PLC0415  brings numpy

    return [recordings] if isinstance(recordings, Recording) else list(recordings)


def print_json(value: Any) -> None:
    """Print JSON with the indentation of the installed data files."""
    import json  # noqa: PLC0415

    print(json.dumps(value, indent=1))


# --- files of rows -------------------------------------------------------------------------------


def add_session_options(parser: argparse.ArgumentParser, noun: str, picture: str) -> None:
    """Adds `--output`, `--force` and `--plot`."""
    add_option(parser, "-o --output FILE.jsonl", f"file for the {noun}s, written as they finish")
    _options.add_force_option(parser, "replace FILE.jsonl even if it is not JSON")
    _options.add_plot_option(parser, picture)


def check_session(options: argparse.Namespace) -> None:
    """Check that all output files can be written, before the work begins."""
    from spanwise import plots  # noqa: PLC0415  brings numpy
    from spanwise.results.files import check_output  # noqa: PLC0415

    if options.output:
        check_output(options.output, json=not options.force)
    if options.plot:
        plots.check_place(options.plot)
    if options.force and options.output and Path(options.output).is_file():
        Path(options.output).unlink()


def print_session(found: Sweep | BenchResult, noun: str) -> None:
    """Print the notes of a result and the path of its rows to stderr."""
    for note in found.notes:
        print(f"spanwise: {note}", file=sys.stderr)
    if found.path is not None:
        count = _format.plural(len(found), noun)
        print(f"spanwise: {count} in {found.path}", file=sys.stderr)


# --- completion -----------------------------------------------------------------------------------

SHELLS = ("bash", "zsh", "tcsh")


class PrintCompletion(argparse.Action):
    """Prints a shell's completion script, made by shtab (extra `completion`), and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Prints the script; exits with a usage error if shtab is not installed."""
        try:
            shtab = importlib.import_module("shtab")
        except ImportError:
            parser.error(f"{option_string} needs shtab: pip install 'spanwise[completion]'")
        for action in _actions(parser):
            what = f"{action.metavar} {action.dest}"
            if "DIR" in what:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif any(word in what for word in ("FILE", ".swt", ".json", "PROGRAM")):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, shell=str(values)))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of all its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def add_completion_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--print-completion`."""
    add_option(
        parser,
        "--print-completion SHELL",
        "print the completion script for bash, zsh or tcsh, e.g. into"
        " ~/.local/share/bash-completion/completions/spanwise",
        action=PrintCompletion,
        choices=SHELLS,
    )


# --- results as text ------------------------------------------------------------------------------


_RULE = re.compile(r" *-{4,}")
_BOLD, _RED, _GREEN, _END = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[m"
_PERCENT = r"[\d.,]+ (?:%|[KMGT]?i?B)"
_WORDS = (
    (_RED, rf"\b(?:loses {_PERCENT}|costs {_PERCENT} more|loss of {_PERCENT}|no table beats)"),
    (_RED, r"\b(?:TOO MUCH|NOT equal)\b|\bfailed:"),
    (_GREEN, rf"\bsaves? {_PERCENT}|^ok\b|\bequal to the byte\b"),
)


def show(*results: Any, file: TextIO | None = None) -> None:
    """Prints results, each as text with a line feed, to standard output or another file."""
    out = file or sys.stdout
    for result in results:
        given = str(result).split("\n")
        if in_color(out):
            lines = list(_colored(given, _verdict(result)))
        else:
            lines = [part for line in given for part in _wrapped(line)]
        print("\n".join(lines), file=out)


def _wrapped(line: str) -> list[str]:
    """Break a line of prose; tables fit already."""
    width = _format.screen_width()
    if not width or len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return _format.wrapped(line.strip(), width, indent, indent + "  ")


def in_color(out: TextIO) -> bool:
    """Return whether a terminal shows it and its user has not refused (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _verdict(result: Any) -> set[str]:
    """Return the lines of a result's verdict as they are printed."""
    found = getattr(result, "verdict", "")
    text = str(found() if callable(found) else found)
    return {part.strip() for part in _wrapped(text)}


def _colored(given: list[str], verdict: set[str]) -> Iterator[str]:
    """Yield the lines, wrapped: titles, the first of several lines and the verdict in bold."""
    for i, line in enumerate(given):
        first = i == 0 and len(given) > 1
        title = first or (given[i - 1] == "" and any(map(_RULE.fullmatch, given[i + 2 : i + 3])))
        for part in _wrapped(line):
            start = _BOLD if part and (title or part.strip() in verdict) else ""
            text = part
            for color, words in _WORDS:
                text = re.sub(words, rf"{color}\g<0>{_END}{start}", text)
            yield f"{start}{text}{_END}" if start else text
