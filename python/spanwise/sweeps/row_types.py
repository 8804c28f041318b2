# SPDX-License-Identifier: Apache-2.0
"""What the fields of row files may hold. A file is checked when it is read, so its rows add up."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from spanwise.errors import InvalidError
from spanwise.results.files import is_text

_HASH = re.compile(r"[0-9a-f]{16}")
_NUMBER_MAX = 1e300
_SHOWN = 40


class FieldType(NamedTuple):
    """A type of a field: what a message calls it, and whether a value is of it."""

    noun: str
    holds: Callable[[Any], bool]


def optional(kind: FieldType) -> FieldType:
    """The same, or null."""
    return FieldType(f"{kind.noun} or null", lambda value: value is None or kind.holds(value))


def list_of(noun: str, holds: Callable[[Any], bool]) -> FieldType:
    """A list whose items all hold."""
    return FieldType(
        f"a list of {noun}", lambda value: isinstance(value, list) and all(map(holds, value))
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_NUMBER_MAX < value < _NUMBER_MAX


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _is_versions(value: Any) -> bool:
    return isinstance(value, dict) and is_text(value.get("spanwise"))


def _is_table(value: Any) -> bool:
    """Whether it is a table as tasks have it: name, hash, page_bytes, [[size, pages, first]]."""
    return (
        isinstance(value, dict)
        and is_text(value.get("name"))
        and _is_hash(value.get("hash"))
        and _is_count(value.get("page_bytes"))
        and isinstance(value.get("classes"), list)
        and all(
            isinstance(one, list) and len(one) == 3 and all(map(_is_count, one))
            for one in value["classes"]
        )
    )


TEXT = FieldType("a text", is_text)
COUNT = FieldType("an integer from 0 to 2^63 - 1", _is_count)
NUMBER = FieldType("a number", _is_number)
HASH = FieldType("16 hexadecimal digits", _is_hash)
MOMENT = FieldType("a text or a number", lambda value: is_text(value) or _is_number(value))
OBJECT = FieldType("an object", _is_object)
VERSIONS = FieldType("an object with the version of spanwise", _is_versions)
OBJECTS = list_of("objects", _is_object)
TABLES = list_of("tables", _is_table)


def check_fields(line: Mapping[str, Any], types: Mapping[str, FieldType]) -> None:
    """Checks the fields that a line has.

    Raises:
        InvalidError: naming the field, and what it must be.
    """
    for name, kind in types.items():
        if name in line and not kind.holds(line[name]):
            raise InvalidError(f"{name} must be {kind.noun}, not {_shown(line[name])}")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list of others"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "one of more than 64 bits"
    text = "null" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
