# SPDX-License-Identifier: Apache-2.0
"""The tracked replay: the ledger of a heap with real memory beside the simulator's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from spanwise import _format, errors
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.measure.replayer import Allocator, operations_file, run_program
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import as_recording
from spanwise.results.jobs import Progress, progress_bar
from spanwise.results.rows import Result, Value
from spanwise.tables.table import SizeClassTable, as_table


@dataclass(frozen=True, repr=False, eq=False)
class LedgerCheck(Result, Value):
    """The ledger of a tracked heap with real memory beside the simulator's.

    Attributes:
        measured: parts of the real heap's ledger, bytes, and held_bytes, spans, live_objects.
        model: the simulator's ledger.
    """

    measured: dict[str, int]
    model: Ledger

    @property
    def different(self) -> dict[str, tuple[int, int]]:
        """Parts that are not equal: (measured, model); empty when all are, to the byte."""
        pairs = {
            name: (self.measured[name], int(getattr(self.model, name))) for name in self.measured
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "table": self.model.table,
            "at": self.model.at,
            "equal": not self.different,
            "measured": self.measured,
            "model": {name: int(getattr(self.model, name)) for name in self.measured},
        }

    def __str__(self) -> str:
        names = {**PARTS, "held_bytes": "held"}
        rows = [
            (title, _format.number(self.measured[name]), _format.number(getattr(self.model, name)))
            for name, title in names.items()
        ]
        head = ("", "real heap", "simulator")
        verdict = "equal to the byte" if not self.different else "NOT equal"
        title = f"{self.model.source} under {self.model.table} at {self.model.at}, bytes: {verdict}"
        return f"{title}\n{_format.table(rows, head, indent='  ')}"

    __repr__ = __str__


def check_ledger(
    recording: Recording | str | os.PathLike[str],
    table: SizeClassTable | str = "c16",
    at: str = "peak",
    *,
    touch: bool = True,
    progress: Progress = None,
) -> LedgerCheck:
    """Replays with one thread on a tracked heap with real memory, and beside it in the model.

    The clock is the recording's, and each recorded thread has a cache of its own.

    Args:
        recording: what is replayed, or its file.
        table: size classes, or a table's name.
        at: "peak" or "end".
        touch: write the ends of each object.
        progress: as of `Recording.ledger`.

    Raises:
        InvalidError: for another `at`, or a recording without operations. Else as `replay`.
    """
    source = as_recording(recording)
    made = as_table(table)
    if at not in ("peak", "end"):
        raise errors.InvalidError(f"at {at!r}: use peak or end")
    if len(source) == 0:
        raise errors.InvalidError(f"{source.name}: no operations; record something that allocates")
    stop = source.summary.peak_op if at == "peak" else len(source)
    words = [f"ledger={stop}", f"touch={'ends' if touch else 'none'}"]
    with (
        operations_file(source) as fd,
        progress_bar(progress, len(source), "replay", "operations") as tell,
    ):
        told, _ = run_program(fd, Allocator("spanwise", table=made), words, tell)
    return LedgerCheck(told["ledger"], source.ledger(made, at))
