# SPDX-License-Identifier: Apache-2.0
"""Families of size classes, span lengths for them, and the table file format."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise.errors import InvalidError

SIZE_MAX = 256 * 1024
SPAN_BYTES_MAX = 4 << 20
_SMALL_LIMIT = 1024
_REQUIRED = ("name", "page_bytes", "classes")
_OPTIONAL = ("parameters", "provenance")
_CLASS_KEYS = ("size", "pages")


# --- sizes ----------------------------------------------------------------------------------------


def powers_of_two(largest: int) -> list[int]:
    """8, 16, 32, ... up to `largest` bytes, which must be one of them."""
    if largest < 8 or largest > SIZE_MAX or largest & (largest - 1):
        raise InvalidError(f"largest {largest}: must be a power of two from 8 to {SIZE_MAX}")
    return [1 << bit for bit in range(3, largest.bit_length())]


def geometric(ratio: float, smallest: int, largest: int, align: int) -> list[int]:
    """Sizes from `smallest` to `largest` bytes, each at most `ratio` times the one below.

    The step is at least `align`, to which each is rounded up.
    """
    if not (math.isfinite(ratio) and ratio > 1):
        raise InvalidError(f"ratio {ratio}: must be above 1")
    if align not in (8, 16):
        raise InvalidError(f"align {align}: must be 8 or 16")
    if not 8 <= smallest <= largest <= SIZE_MAX:
        raise InvalidError(
            f"sizes {smallest} to {largest}: must rise, from 8 at least to {SIZE_MAX} at most"
        )
    sizes = [-(-smallest // align) * align]
    while sizes[-1] < largest:
        step = max(int(sizes[-1] * ratio) // align * align, sizes[-1] + align)
        sizes.append(min(step, -(-largest // align) * align))
    return sizes


def parse_ratio(name: str) -> float:
    """The R of geometric-R."""
    word = name.removeprefix("geometric-")
    try:
        return float(word)
    except ValueError:
        raise InvalidError(
            f"unknown table {name!r}; after geometric- comes a ratio, e.g. geometric-1.25"
        ) from None


# --- spans ----------------------------------------------------------------------------------------


def _division_is_exact(size: int, span: int) -> bool:
    """Whether slots of the span are found by a 32-bit multiplication (docs/design/sizeclasses.md).

    The last offset of the last slot and the end of the span decide for all offsets.
    """
    magic = 0xFFFFFFFF // size + 1
    slots = span // size
    return (slots * size - 1) * magic >> 32 == slots - 1 and span * magic >> 32 == slots


def span_pages(size: int, page_bytes: int) -> int:
    """The fewest pages whose tail behind whole slots is at most 1/8 of the span.

    Where exact division allows no such span (large odd sizes), the one with the least tail. A size
    that no span serves gets one that holds it; making the table then says what is wrong.
    """
    if size == 0 or page_bytes == 0:
        return 1
    fitting = max(1, -(-size // page_bytes))
    best, least = fitting, 1.0
    for pages in range(fitting, SPAN_BYTES_MAX // page_bytes + 1):
        span = pages * page_bytes
        if not _division_is_exact(size, span):
            continue
        tail = span % size / span
        if tail <= 1 / 8:
            return pages
        if tail < least:
            best, least = pages, tail
    return best


def large_step(sizes: NDArray[np.int64]) -> int:
    """Step of the look-up above 1024 B: 128, or less where classes lie closer."""
    bits = 128
    for size in sizes[sizes > _SMALL_LIMIT].tolist():
        bits |= size
    return bits & -bits


# --- table files ----------------------------------------------------------------------------------


def parse_table_file(raw: bytes) -> tuple[str, int, list[tuple[int, int]]]:
    """The content of a table file: name, page bytes, (size, pages) of each class.

    Raises:
        InvalidError: naming the line and column, or the class and key, that is wrong.
    """
    top = _object(_load(raw), "top level", _REQUIRED, _OPTIONAL)
    name = top["name"]
    if not isinstance(name, str):
        raise InvalidError(f"name must be a string, not {_shown(name)}")
    page_bytes = _integer(top["page_bytes"], "page_bytes")
    classes = top["classes"]
    if not isinstance(classes, list):
        raise InvalidError(f"classes must be a list, not {_shown(classes)}")
    return name, page_bytes, [_class_of(item, cls) for cls, item in enumerate(classes, 1)]


def _load(raw: bytes) -> object:
    try:
        value: object = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        raise InvalidError(
            f"line {error.lineno}, column {error.colno}: not valid JSON ({what}); mend it there"
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidError(f"byte {error.start}: not UTF-8; save the table as UTF-8") from None
    except RecursionError:
        raise InvalidError("nested too deeply to be a table") from None
    except InvalidError:
        raise
    except ValueError:
        raise InvalidError("a number is too long to be of a table") from None
    return value


def _no_constant(word: str) -> object:
    raise InvalidError(f"{word} is not valid JSON; give a number")


def _class_of(value: object, cls: int) -> tuple[int, int]:
    item = _object(value, f"class {cls}", _CLASS_KEYS, ())
    size = _integer(item["size"], f"class {cls}: size")
    return size, _integer(item["pages"], f"class {cls} ({size} bytes): pages")


def _object(
    value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidError(f"{where}: must be an object, not {_shown(value)}")
    for key in value:
        if key not in required + optional:
            known = ", ".join(required + optional)
            raise InvalidError(f"{where}: unknown key {key[:40]!r}; known are {known}")
    for key in required:
        if key not in value:
            raise InvalidError(f"{where}: key {key!r} is missing; add it")
    return value


def _integer(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidError(f"{what} must be an integer, not {_shown(value)}")
    if not 0 <= value < 1 << 32:
        raise InvalidError(f"{what} must be from 0 to 4294967295, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """The value as JSON, cut short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of more than 64 bits"
    content = json.dumps(value)
    return content if len(content) <= 40 else content[:37] + "..."
