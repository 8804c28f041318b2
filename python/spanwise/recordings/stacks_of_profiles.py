# SPDX-License-Identifier: Apache-2.0
"""Stacks of heap profiles as call sites of a recording: docs/design/trace.md, MODULES.

A return address stays one. A call that the profile names becomes an address in a module that stands
for its function: beyond all addresses of programs, as functions of Python are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from spanwise.recordings.elf import ElfError, ElfFile
from spanwise.recordings.python_lines import FUNCTION_BASE, LINE_BITS, PYTHON_BASE
from spanwise.recordings.snapshots import Call, Frame
from spanwise.recordings.sources import Module

DEPTH_MAX = 128
"""Frames of a call site that a recording keeps, from the innermost on: SWT_SITE_DEPTH_MAX."""

_NAME_BYTES, _FILE_BYTES = 3000, 1000  # together below SWT_MODULE_PATH_MAX


def sites_of(
    stacks: Iterable[tuple[Frame, ...]], modules: Sequence[Module]
) -> tuple[list[tuple[int, ...]], list[Module]]:
    """Addresses of each stack, and the modules that these are in.

    Args:
        stacks: innermost frame first.
        modules: in which return addresses may be.
    """
    functions: dict[tuple[str, str], int] = {}
    used: dict[Module, None] = {}

    def address_of(frame: Frame) -> int:
        if not isinstance(frame, Call) and frame < PYTHON_BASE:
            used.update((one, None) for one in modules if one.start <= frame < one.end)
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


def mapped_module(start: int, end: int, offset: int, path: str, build_id: str = "") -> Module:
    """A module that is mapped from a file's offset on; its bias needs the file if that is here."""
    address = offset
    with suppress(ElfError, OSError):
        found = ElfFile(Path(path)).address_of(offset)
        address = offset if found is None else found
    return Module(start, end, (start - address) % (1 << 64), path, build_id)
