# SPDX-License-Identifier: Apache-2.0
"""Stacks of heap profiles as call sites of a recording: docs/design/trace.md, MODULES.

A return address stays one. A call that the profile names becomes an address in a module that stands
for its function: beyond all addresses of programs, as functions of Python are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress

from spanwise.recordings.elf import ElfError, ElfFile
from spanwise.recordings.python_lines import FUNCTION_BASE, LINE_BITS, PYTHON_BASE
from spanwise.recordings.snapshots import Call, Frame
from spanwise.recordings.sources import Module

DEPTH_MAX = 128
"""Frames of a call site that a recording keeps, from the innermost on: SWT_SITE_DEPTH_MAX."""

_NAME_BYTES, _FILE_BYTES = 3000, 1000  # together below SWT_MODULE_PATH_MAX


def sites_of(
    stacks: Iterable[tuple[Frame, ...]], modules: Iterable[Module]
) -> tuple[list[tuple[int, ...]], list[Module]]:
    """Addresses of each stack, and the modules that these are in.

    Args:
        stacks: innermost frame first.
        modules: in which return addresses may be.
    """
    functions: dict[tuple[str, str], int] = {}
    used: dict[Module, None] = {}
    find = finder(modules)

    def address_of(frame: Frame) -> int:
        if not isinstance(frame, Call) and frame < PYTHON_BASE:
            module = find(frame)
            used.update({module: None} if module else {})
            return frame
        call = frame if isinstance(frame, Call) else Call(f"{frame:#x}", "", 0)
        number = functions.setdefault((call.function, call.file), len(functions))
        line = call.line if 0 < call.line < 1 << LINE_BITS else 0
        return FUNCTION_BASE + (number << LINE_BITS) + line

    known: dict[Frame, int] = {}
    sites = []
    for stack in stacks:
        for frame in stack[:DEPTH_MAX]:
            if frame not in known:
                known[frame] = address_of(frame)
        sites.append(tuple(known[frame] for frame in stack[:DEPTH_MAX]))
    named = [_module(*names, number) for names, number in functions.items()]
    return sites, [*used, *named]


def _module(function: str, file: str, number: int) -> Module:
    """The module of a function."""
    start = FUNCTION_BASE + (number << LINE_BITS)
    path = b"\n".join((_clean(function)[:_NAME_BYTES], _clean(file)[-_FILE_BYTES:]))
    return Module(start, start + (1 << LINE_BITS), start, path.decode("utf-8", "ignore"), "")


def _clean(text: str) -> bytes:
    """What may be part of a module's path, which has one line feed and no NUL."""
    return text.translate({0: "?", 10: " "}).encode("utf-8", "replace")


def finder(modules: Iterable[Module]) -> Callable[[int], Module | None]:
    """A function that finds the module of an address."""
    ordered = sorted(modules)
    starts = [module.start for module in ordered]

    def find(address: int) -> Module | None:
        place = bisect_right(starts, address) - 1
        return ordered[place] if place >= 0 and address < ordered[place].end else None

    return find


class MappedFiles:
    """Modules of a profile, by what was mapped where.

    Attributes:
        modules: those that a recording can have.
    """

    def __init__(self) -> None:
        self.modules: list[Module] = []
        self._files: dict[str, ElfFile | None] = {}

    def add(self, start: int, end: int, offset: int, path: str, build_id: str = "") -> None:
        """Adds what is mapped from a file's offset on.

        The bias of the module needs the file; if that is not here, addresses in it are taken to be
        offsets, as they are in the text of most position-independent files.
        """
        if start >= end or not path.startswith("/") or not path.isprintable():
            return
        if path not in self._files:
            self._files[path] = None
            with suppress(ElfError, OSError):
                self._files[path] = ElfFile(path)
        address = None
        if (file := self._files[path]) is not None:
            with suppress(ElfError):
                address = file.address_of(offset)
        bias = (start - (offset if address is None else address)) % (1 << 64)
        self.modules.append(Module(start, end, bias, path, build_id))
