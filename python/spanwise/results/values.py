# SPDX-License-Identifier: Apache-2.0
"""Results as values: they are equal when all they say is equal, may be hashed, and become JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from spanwise.results.files import write_whole
from spanwise.results.rows import Rows


class Result:
    """What has `to_dict`: it becomes JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON; of a dataclass its fields."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """`to_dict` as text; also written to `path`, whole or not at all, unless None.

        Raises:
            OSError: the system refused to write.
        """
        content = json.dumps(self.to_dict(), indent=1, default=_json_value) + "\n"
        if path is not None:
            write_whole(path, content)
        return content


class Value:
    """A frozen dataclass that may hold arrays: equal, and hashed, by all fields with compare=True.

    The dataclass is made with eq=False.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(_content(self) == _content(other))

    def __hash__(self) -> int:
        return hash(_content(self))


def _content(value: Any) -> Any:
    """What a value says, as something that Python compares and hashes."""
    if isinstance(value, np.ndarray | Rows):
        return (value.dtype.str, str(value.dtype.descr), value.shape, value.tobytes())
    if isinstance(value, Value):
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        said = (_content(getattr(value, field.name)) for field in fields if field.compare)
        return (type(value), *said)
    if isinstance(value, Mapping):
        return tuple((key, _content(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_content(item) for item in value)
    return value


def _json_value(value: Any) -> Any:
    """Numbers and arrays of numpy, as JSON has them."""
    if isinstance(value, np.generic | np.ndarray | Rows):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
