# SPDX-License-Identifier: Apache-2.0
"""Call sites as people name them: return addresses by module, lines of Python by function and file.

A function of Python is in a recording as a module beyond all addresses; its path is the function's
name, a line feed and its file, and an offset in it is a line (docs/design/trace.md). So is a
function that an imported heap profile names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from spanwise.recordings.sources import Module

PYTHON_BASE = 0xFFF0_0000_0000_0000
"""SWT_PYTHON_BASE of src/trace/raw.h: where functions of Python begin."""

FUNCTION_BASE = 0xFFF8_0000_0000_0000
"""Where functions begin that an imported profile names; numbers of Python's end before."""

LINE_BITS = 20
_MARK = "python: "
_PROFILE_MARK = "profile: "
_FRAME = re.compile(rf"{_MARK}(.*?) \((.*):(\d+)\)", re.DOTALL)
_PROFILE_FRAME = re.compile(rf"{_PROFILE_MARK}(.*?)(?: \(([^()]*):(\d+)\))?", re.DOTALL)


def is_function(module: Module) -> bool:
    """Whether it stands for a function, of Python or of an imported profile."""
    return module.start >= PYTHON_BASE


def is_python(module: Module) -> bool:
    """Whether it stands for a function of Python."""
    return PYTHON_BASE <= module.start < FUNCTION_BASE


class FrameNames:
    """What the addresses of call sites are called.

    Args:
        modules: of the recording, functions of Python among them.
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        each = list(modules)
        self._native = [module for module in each if not is_function(module)]
        self._functions = {module.start: module for module in each if is_function(module)}

    def name(self, address: int) -> str:
        """The module of an address, and where in its file; the bare address if it is in none.

        Of a line of Python "python: function (file:line)", of a call that a profile names
        "profile: function (file:line)".
        """
        if address >= PYTHON_BASE:
            function = self._functions.get(address >> LINE_BITS << LINE_BITS)
            if function is not None:
                return _call(function, address - function.start)
        for module in self._native:
            if module.start <= address < module.end:
                return f"{module.path}+{address - module.bias:#x}"
        return f"{address:#x}"


def _call(function: Module, line: int) -> str:
    """A line in a function."""
    name, _, file = function.path.partition("\n")
    if is_python(function):
        return f"{_MARK}{name} ({file}:{line})"
    return f"{_PROFILE_MARK}{name} ({file}:{line})" if file else f"{_PROFILE_MARK}{name}"


def short_line(frame: str) -> str | None:
    """A named call as "function (folder/file:line)", as far as known; None: it is an address."""
    found = _FRAME.fullmatch(frame) or _PROFILE_FRAME.fullmatch(frame)
    if found is None:
        return None
    function, file, line = found.groups()
    if file is None:
        return str(function)
    return f"{function} ({'/'.join(PurePosixPath(file).parts[-2:])}:{line})"
