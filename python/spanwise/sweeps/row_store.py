# SPDX-License-Identifier: Apache-2.0
"""The rows of a session, of a sweep or a benchmark: by key, and in a file if one is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from spanwise.results.jobs import Step
from spanwise.sweeps.row_file import RowFile, RowKind

Row = dict[str, Any]


class RowStore:
    """Rows by key. With a file, what it held is there at first, and each row goes to it at once.

    Attributes:
        rows: by key; a later row of a key takes the place of an earlier one.
        before: the rows that the file held, oldest first.
        notes: what a person should know of the file.
        path: of the file; None: there is none.

    Args:
        output: the file, JSON lines; None: there is none.
        header: of this session.
        kind: what the rows are of.
        key: of a row.

    Raises:
        As `RowFile`.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] | None,
        header: dict[str, Any],
        kind: RowKind,
        key: Callable[[Row], Hashable],
    ) -> None:
        self._file = RowFile(output, header, kind) if output is not None else None
        self._key = key
        self.rows: dict[Hashable, Row] = {}
        self.before: list[Row] = self._file.before.rows if self._file else []
        self.notes: list[str] = self._file.before.notes if self._file else []
        self.path = self._file.path if self._file else None

    def keep(self, rows: Iterable[Row]) -> None:
        """Takes rows that the file has already."""
        self.rows.update((self._key(row), row) for row in rows)

    def add(self, rows: Sequence[Row], tell: Step) -> None:
        """Takes new rows: to the file first, and then they are told as done."""
        if self._file is not None:
            self._file.append(rows)
        self.keep(rows)
        tell(len(rows))

    def close(self) -> None:
        """Ends the file."""
        if self._file is not None:
            self._file.close()
