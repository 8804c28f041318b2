# SPDX-License-Identifier: Apache-2.0
"""Reads and writes table files: a table as JSON. Errors are one line.

    {"name": "mine", "page_bytes": 8192, "classes": [{"size": 16, "pages": 1}, ...],
     "parameters": {...}, "provenance": ...}

A class may have "first_pages" if its spans grow up to "pages". The last two keys are optional:
parameters is an object (from a generator or an optimizer), provenance an object or a string.
"""

from __future__ import annotations

import json
from pathlib import Path

from .families import make_table
from .model import (
    BUILTINS,
    SizeClass,
    SizeClassError,
    Table,
    check_classes,
    check_name,
    check_page_bytes,
)

FILE_BYTES_MAX = 1 << 20
_REQUIRED = ("name", "page_bytes", "classes")
_OPTIONAL = ("parameters", "provenance")
_CLASS_KEYS = ("size", "pages")
_CLASS_OPTIONAL = ("first_pages",)


def load_table(path: str) -> Table:
    """Read and check a table file."""
    try:
        return parse_table(_read(path))
    except SizeClassError as error:
        raise SizeClassError(f"{path}: {error}") from None


def parse_table(data: bytes) -> Table:
    """Parse and check the bytes of a table file."""
    if len(data) > FILE_BYTES_MAX:
        raise SizeClassError(f"longer than {FILE_BYTES_MAX} bytes; a table file is not")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SizeClassError(f"offset {error.start}: not UTF-8; save it as UTF-8") from None
    return _table_of(_parse(text))


def dump_table(table: Table) -> str:
    """Return the table as a file that load_table accepts."""
    rows = [_class_row(c) for c in table.classes]
    value: dict[str, object] = {"name": table.name, "page_bytes": table.page_bytes, "classes": rows}
    if table.parameters is not None:
        p = table.parameters
        value["parameters"] = {
            "align": p.align,
            "page_bytes": p.page_bytes,
            "max_size": p.max_size,
            "tail_limit": str(p.tail_limit),
            "span_slots": p.span_slots,
            "growing": p.growing,
        }
    if table.source:
        value["provenance"] = table.source
    return json.dumps(value, indent=1) + "\n"


def _class_row(c: SizeClass) -> dict[str, int]:
    row = {"size": c.size, "pages": c.pages}
    return row if c.shortest == c.pages else {**row, "first_pages": c.shortest}


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SizeClassError(f"cannot be read ({reason}); give go, c16 or a table file") from None


def _parse(text: str) -> object:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        seen: dict[str, object] = {}
        for key, value in pairs:
            if key in seen:
                raise SizeClassError(f"key {key!r} occurs twice in one object; keep one")
            seen[key] = value
        return seen

    def constant(word: str) -> object:
        raise SizeClassError(f"{word} is not valid JSON; give a number")

    try:
        value: object = json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise SizeClassError(
            f"line {error.lineno}, column {error.colno}: not valid JSON"
            f" ({error.msg[:1].lower()}{error.msg[1:]}); fix it there"
        ) from None
    except (ValueError, RecursionError):
        raise SizeClassError("a number or a nesting is too long to be of a table") from None
    return value


def _table_of(value: object) -> Table:
    top = _object(value, "top level", _REQUIRED, _OPTIONAL)
    name = top["name"]
    if not isinstance(name, str):
        raise SizeClassError(f"name must be a string, not {_shown(name)}")
    check_name(name)
    page_bytes = _integer(top["page_bytes"], "page_bytes")
    check_page_bytes(page_bytes)
    if not isinstance(top["classes"], list):
        raise SizeClassError(f"classes must be a list, not {_shown(top['classes'])}")
    if not isinstance(top.get("parameters", {}), dict):
        raise SizeClassError(f"parameters must be an object, not {_shown(top['parameters'])}")
    if not isinstance(top.get("provenance", ""), dict | str):
        raise SizeClassError(
            f"provenance must be an object or a string, not {_shown(top['provenance'])}"
        )
    classes = tuple(_class_of(item, cls) for cls, item in enumerate(top["classes"], 1))
    check_classes(page_bytes, classes)
    return _not_disguised(Table(name, page_bytes, classes))


def _class_of(value: object, cls: int) -> SizeClass:
    where = f"class {cls}"
    item = _object(value, where, _CLASS_KEYS, _CLASS_OPTIONAL)
    size = _integer(item["size"], f"{where}: size")
    pages = _integer(item["pages"], f"{where} ({size} bytes): pages")
    if "first_pages" not in item:
        return SizeClass(size, pages)
    first = _integer(item["first_pages"], f"{where} ({size} bytes): first_pages")
    return SizeClass(size, pages, None if first in (0, pages) else first)


def _not_disguised(table: Table) -> Table:
    """Reject other classes under the name of a built-in table, which C symbols contain."""
    parameters = BUILTINS.get(table.name)
    if parameters is None:
        return table
    builtin = make_table(parameters)
    if builtin.hash != table.hash:
        raise SizeClassError(
            f"name {table.name!r} belongs to a built-in table with other classes; rename yours"
        )
    return builtin


def _object(
    value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SizeClassError(f"{where}: must be an object, not {_shown(value)}")
    for key in value:
        if key not in required + optional:
            known = ", ".join(required + optional)
            raise SizeClassError(f"{where}: unknown key {key[:40]!r}; known are {known}")
    for key in required:
        if key not in value:
            raise SizeClassError(f"{where}: key {key!r} is missing; add it")
    return value


def _integer(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SizeClassError(f"{what} must be an integer, not {_shown(value)}")
    if not 0 <= value < 1 << 32:
        raise SizeClassError(f"{what} must be from 0 to 4294967295, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """Return the value as JSON, truncated."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of more than 64 bits"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
