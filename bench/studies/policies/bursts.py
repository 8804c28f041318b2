# SPDX-License-Identifier: Apache-2.0
"""Programs that take memory, give all of it up and take it again: what giving it back may cost.

None of the study's programs works in this way for long, but a server may: pages are kept for this
case.
"""

from __future__ import annotations

import shutil

import spanwise as sw
from spanwise.measure.field_cases import case_of

_OBJECTS = "for _ in range({n}): x = [str(i) * 3 for i in range(20000)]; del x"
_BUFFERS = "for i in range({n}): x = bytes(100_000 + 40_000 * (i % 7))"
_TABLES = (
    "for r = 1, {n} do local t = {{}} for i = 1, 20000 do t[i] = {{i}} end"
    " t = nil collectgarbage() end"
)

BURSTS = {
    "python, bursts of objects": (("python3", "-c", _OBJECTS), 60),
    "python, buffers": (("python3", "-c", _BUFFERS), 4000),
    "lua, bursts of tables": (("lua5.4", "-e", _TABLES), 60),
}
"""By name the words of a program, in which {n} stands for its number of bursts, and that number."""


def burst_cases(bursts: int | None = None) -> tuple[list[sw.FieldCase], dict[str, str]]:
    """Those that this machine can run, and the reasons of the others.

    Args:
        bursts: of each; None: as many as stand in BURSTS.
    """
    cases, skipped = [], {}
    for name, (words, count) in BURSTS.items():
        if shutil.which(words[0]) is None:
            skipped[name] = f"{words[0]} is not installed"
            continue
        number = count if bursts is None else bursts
        argv = [word.format(n=number) for word in words]
        cases.append(case_of(argv, name, f"{number:,}"))
    return cases, skipped
