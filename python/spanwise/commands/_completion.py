# SPDX-License-Identifier: Apache-2.0
"""`spanwise --print-completion SHELL`: completion of commands, options, files and folders."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")


class PrintCompletion(argparse.Action):
    """Prints a script for a shell, made by shtab (extra `completion`), and ends the process."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Prints the script; without shtab it ends with the error of wrong use."""
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
    """The options and arguments of a parser and of all its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def add(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        metavar="SHELL",
        help="print completion for bash, zsh or tcsh, e.g. into"
        " ~/.local/share/bash-completion/completions/spanwise",
    )
