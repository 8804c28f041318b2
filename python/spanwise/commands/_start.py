# SPDX-License-Identifier: Apache-2.0
"""Handle Ctrl-C while a command starts. It is loaded first, so it imports no other module."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130
_SAID = b"spanwise: interrupted\n"


def is_command() -> bool:
    """Return whether this process is the command line: `spanwise` or `python -m spanwise`.

    While `python -m` looks for its module, sys.argv[0] is "-m".
    """
    words = sys.orig_argv
    first = next(iter(getattr(sys, "argv", [])), "")
    if first == "-m":
        return "spanwise" in words[1:] or "-mspanwise" in words[1:]
    return first.rpartition(os.sep)[2] == "spanwise"


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the process without the traceback of an import; there is nothing to clean up yet."""
    os.write(2, _SAID)
    os._exit(EXIT_INTERRUPTED)


def quiet() -> None:
    """Let Ctrl-C end the process with one line until `loud`; an ignored Ctrl-C stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def loud() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
