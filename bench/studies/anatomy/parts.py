# SPDX-License-Identifier: Apache-2.0
"""The parts of an allocation by names of our source; the part that an instruction belongs to.

An instruction comes with its stack of frames, inlined functions among them. The outermost frame
that is a *root* claims everything below it (refill, free). Otherwise the innermost frame decides,
by its line or by its function; frames of HELPERS are passed over. If the table does not know the
frame, the instruction counts as `other`, never silently as a part. `missing` lists names and lines
of the table that the source no longer has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from runner.errors import BenchError

_ROOT = Path(__file__).resolve().parents[3]

OTHER = "other"
COLLECTOR = "collector's share"
NO_COLLECTOR = "no collector is built in"


@dataclass(frozen=True)
class Frame:
    """A function, inlined or not, and the line of it.

    Attributes:
        function: its name in the source; of another library, as that library tells it.
        file: absolute path; "" in another library.
        line: 0 when unknown.
    """

    function: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Part:
    """A part of an allocation by names of the source.

    Attributes:
        name: what tables call it.
        colour: of the flame graph: seven in all, so some parts share one and differ by `hatch`.
        functions: patterns of whole names; all of such a function that no line below names.
        lines: (function, pattern): lines of it that belong here.
        roots: functions that belong here with everything that they call.
        hatch: over the colour.
    """

    name: str
    colour: str
    functions: tuple[str, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()
    roots: tuple[str, ...] = field(default=())
    hatch: str = ""


PARTS = (
    Part(
        "loop",
        "#B8BCC2",
        functions=(
            r"run_value",
            r"run_pointers",
            r"run_inline",
            r"run_cache",
            r"run_scan",
            r"use",
            r"free_inline",
            r"free_cache",
        ),
    ),
    Part(
        "the function itself",
        "#B8BCC2",
        hatch="////",
        functions=(r"stack_it", r"stack_it2", r"stack_it2_pointer", r"stack_it2_inline_\d+"),
    ),
    Part(
        "call and cache",
        "#0072B2",
        functions=(
            r"sw_cache_alloc",
            r"sw_alloc_by_table",
            r"alloc_from_cache",
            r"alloc_by_table",
            r"alloc_small",
            r"alloc_plain",
            r"alloc_plain_size",
            r"alloc_zeroed",
            r"sw_path_c16_(no)?scan_\d+",
            r"sw_template_small",
            r"sw_template_plain",
            r"sw_fast_zalloc",
            r"sw_fast_cache_alloc",
            r"sw_fast_take",
            r"is_tiny",
            r"sw_heap_is_collected",
            r"sw_large_alloc",
            r"sw_object_from_word",
            r"finish",
        ),
    ),
    Part(
        "class lookup",
        "#0072B2",
        hatch="////",
        functions=(r"sw_size_class", r"sw_cache_noscan_bin"),
        lines=(
            ("alloc_from_cache", r"by_size\[|cutoff|plain_end"),
            ("alloc_plain_size", r"small_map"),
            ("alloc_by_table", r"max_size|sw_size_class"),
            ("alloc_small", r"cache->bins"),
            ("sw_template_small", r"span_class = |cache->bins"),
            ("sw_fast_take", r"span_class = |cache->bins"),
        ),
    ),
    Part(
        "window",
        "#009E73",
        functions=(r"sw_template_pop", r"sw_word_free", r"sw_word_set_free"),
        lines=(
            ("sw_template_small", r"\bbits\b"),
            ("sw_template_plain", r"\bbits\b"),
            ("sw_fast_take", r"\bbits\b"),
            ("sw_object_from_word", r"sw_template_pop"),
        ),
    ),
    Part(
        "hints",
        "#009E73",
        hatch="....",
        functions=(r"sw_template_take_hinted", r"take_hinted", r"sw_object_finish"),
        lines=(("sw_template_plain", r"hint(?!ed \|\|)"), ("alloc_small", r"hinted")),
    ),
    Part(
        "zeroing",
        "#E69F00",
        functions=(
            r"sw_template_must_zero",
            r"sw_template_clear(_\w+)?",
            r"zero",
            r"sw_fast_clear",
        ),
        lines=(
            ("sw_template_small", r"sw_fast_clear"),
            ("sw_fast_take", r"sw_fast_clear"),
            ("sw_template_plain", r"SW_ZERO|SW_TEMPLATE_SHORT|memset"),
            ("alloc_from_cache", r"flags == 0"),
            ("finish", r"SW_ZERO"),
        ),
    ),
    # The heap has no bitmap of pointers: scan and noscan objects have spans of their own, and this
    # part chooses between these.
    Part(
        "pointer bits",
        "#E69F00",
        hatch="////",
        lines=(
            ("alloc_from_cache", r"\(flags & SW_SCAN\)"),
            ("alloc_small", r"\(flags & SW_SCAN\)"),
            ("zero", r"\(flags & SW_SCAN\)"),
        ),
    ),
    Part(
        "accounting",
        "#E69F00",
        hatch="....",
        functions=(r"note", r"note_requested"),
        lines=(("finish", r"cache->mode"),),
    ),
    Part(
        "refill",
        "#D55E00",
        functions=(
            r"sw_alloc_slow(_path)?",
            r"alloc_slow",
            r"sw_variety_note",
            r"sw_refill_(quick|next_word|span_class)",
        ),
        roots=("sw_refill_alloc",),
    ),
    Part("free", "#5E4FA2", roots=("sw_cache_free", "sw_fast_free")),
)
# Small functions that many parts use: the caller decides the part.
HELPERS = (
    "sw_span_class_of",
    "sw_cache_is_open",
    "sw_word_local",
    "sw_word_remote",
    "sw_word_set_local",
    "sw_cache_hints",
    "sw_span_slot_of",
    "sw_slack_set",
    "sw_slot_bytes",
    "sw_space_cold",
    "sw_space_span_id",
    "sw_space_span",
    "sw_space_entry",
)
# Functions of the C library, inlined by its headers or called, which our source does not define.
FOREIGN = ("memset",)
SOURCES = ("bench/studies/anatomy/anatomy.c", "include/spanwise/*.h", "src/**/*.[ch]")


def names() -> list[str]:
    """The parts in the order of tables; the collector's share and `other` last."""
    return [*(part.name for part in PARTS), COLLECTOR, OTHER]


def looks() -> dict[str, tuple[str, str]]:
    """A colour and a hatch for each part that instructions can have."""
    return {**{part.name: (part.colour, part.hatch) for part in PARTS}, OTHER: ("#FFFFFF", "xxxx")}


@cache
def _source_line(file: str, line: int) -> str:
    try:
        lines = _text(file).split("\n")
    except OSError as error:
        raise BenchError(
            f"{file}: {error.strerror}; the program was built from other sources: build it anew"
        ) from error
    return lines[line - 1] if 0 < line <= len(lines) else ""


@cache
def _text(file: str) -> str:
    """The text of a file by its name in the debug information, from the project's root on.

    A compiler cache may have made the name relative to the build folder, build/bench.
    """
    return (_ROOT / file.removeprefix("../../")).read_text(encoding="utf-8")


@cache
def _part_by_line(frame: Frame) -> str | None:
    for part in PARTS:
        for function, pattern in part.lines:
            if function == frame.function and re.search(
                pattern, _source_line(frame.file, frame.line)
            ):
                return part.name
    return None


@cache
def _part_by_function(function: str) -> str | None:
    for part in PARTS:
        if any(re.fullmatch(pattern, function) for pattern in part.functions):
            return part.name
    return None


_ROOTS = {root: part.name for part in PARTS for root in part.roots}


def part_of(stack: Sequence[Frame]) -> str:
    """The part that an instruction belongs to.

    Args:
        stack: outermost frame first, the instruction's own last.

    Raises:
        BenchError: a source file is not there.
    """
    for frame in stack:
        if frame.function in _ROOTS and frame.file:
            return _ROOTS[frame.function]
    for frame in reversed(stack):
        if not frame.file or frame.function in HELPERS or frame.function in FOREIGN:
            continue
        return _part_by_line(frame) or _part_by_function(frame.function) or OTHER
    return OTHER


# --- the table beside the source ------------------------------------------------------------------


_ATTRIBUTE = re.compile(r"__attribute__\(\(.*?\)\)+ ?|\bSW_NONNULL\(\d+\) ?")


def bodies(root: Path) -> dict[str, str]:
    """The text of every function that our sources define; macros are not expanded.

    Args:
        root: the checkout.
    """
    found: dict[str, str] = {}
    for pattern in SOURCES:
        for file in sorted(root.glob(pattern)):
            text = _ATTRIBUTE.sub("", _text(str(file)))
            for match in re.finditer(r"^\w[^\n;#{}=]*?\b(\w+)\([^;{}]*\) \{", text, re.MULTILINE):
                end = text.find("\n}", match.end())
                line = text.find("\n", match.end())
                one_line = text[match.end() : line].rstrip().endswith("}")
                stop = line if one_line else end
                found[match[1]] = found.get(match[1], "") + text[match.start() : stop]
    return found


def missing(root: Path) -> list[str]:
    """One line for each name of the table that the sources do not have, and each line pattern.

    Args:
        root: the checkout.
    """
    known = bodies(root)
    # Made by a macro of anatomy.c.
    known["stack_it2_inline_8"] = ""
    lines = []
    for part in PARTS:
        for pattern in part.functions:
            if not any(re.fullmatch(pattern, name) for name in known):
                lines.append(f"{part.name}: no function '{pattern}'")
        for name in part.roots:
            if name not in known:
                lines.append(f"{part.name}: no function '{name}'")
        for name, pattern in part.lines:
            if not re.search(pattern, known.get(name, "")):
                lines.append(f"{part.name}: no line '{pattern}' in a function '{name}'")
    lines += [f"helpers: no function '{name}'" for name in HELPERS if name not in known]
    return lines
