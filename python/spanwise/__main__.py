# SPDX-License-Identifier: Apache-2.0
"""The command line: `spanwise COMMAND`, or `python -m spanwise COMMAND`."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import NoReturn

from spanwise.commands import COMMANDS, _start
from spanwise.commands._common import Parser, add_completion_option
from spanwise.errors import SpanwiseError

EXIT_BAD = 2
EXIT_PIPE = 141


class _PrintVersion(argparse.Action):
    """Print the version of the C library, which is loaded only for this, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from spanwise import _lib  # noqa: PLC0415

        print(f"spanwise {_lib.version()}")
        parser.exit()


def make_parser(names: Iterable[str] = COMMANDS, *, load: bool = True) -> Parser:
    """Return the parser of commands."""
    parser = Parser(
        prog="spanwise",
        description="Record what a program allocates; account for it under any size-class table.",
        epilog="spanwise COMMAND --help prints an example.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action=_PrintVersion, nargs=0, help="show program's version number and exit"
    )
    add_completion_option(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in names:
        if load:
            module = importlib.import_module(f"spanwise.commands.{COMMANDS[name].module}")
            getattr(module, f"add_{name}")(commands)
        else:
            commands.add_parser(name, help=COMMANDS[name].help)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names need not be UTF-8
    try:
        _start.loud()
        options = _parse(argv)
        status = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed our output, which is not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except KeyboardInterrupt:
        return _fail("interrupted", _start.EXIT_INTERRUPTED)
    except SpanwiseError as error:
        return _fail(str(error), EXIT_BAD)
    except OSError as error:
        what = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return _fail(f"{what}{error.strerror or error}", EXIT_BAD)
    except MemoryError as error:
        return _fail(str(error) or "out of memory", EXIT_BAD)
    except RuntimeError as error:
        from spanwise.results.jobs import is_refused  # noqa: PLC0415

        if not is_refused(error):
            raise
        return _fail("the system refused to start a thread; raise its limit (ulimit -u)", EXIT_BAD)
    return status


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options; the error for an unknown word names the help of its command."""
    words = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in words if not word.startswith("-")), None)
    if chosen in COMMANDS:
        parser = make_parser([chosen])
    else:  # what is left is help, an error, or the completion, which has the options of all
        parser = make_parser(load=any(word.startswith("--print-completion") for word in words))
    options, unknown = parser.parse_known_args(words)
    if unknown:
        options.parser.refuse(unknown)
    return options


def _fail(message: str, status: int) -> int:
    line = " ".join(message.splitlines())
    print(f"spanwise: {line}", file=sys.stderr)
    return status


def _raise_again(ignored: sys.UnraisableHookArgs) -> None:
    """Raise again a Ctrl-C that came in a destructor, where Python drops it."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        main_thread = threading.main_thread().ident  # a signal ends its system call, too
        timer = threading.Timer(0.01, signal.pthread_kill, (main_thread, signal.SIGINT))
        timer.daemon = True
        timer.start()
    else:
        sys.__unraisablehook__(ignored)


def command() -> NoReturn:
    """Run one command and exit; the entry point of `spanwise`."""
    sys.unraisablehook = _raise_again
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # Nothing here uses the threads that numpy's OpenBLAS starts when loaded, and it raises
        # SIGINT if the system refuses one. Programs that a command runs do not get the variable.
        os.putenv("OPENBLAS_NUM_THREADS", "1")
    try:
        status = main()
    finally:
        # The command is done; Ctrl-C during interpreter shutdown would print a traceback.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(status)


if __name__ == "__main__":
    command()
