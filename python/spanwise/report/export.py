# SPDX-License-Identifier: Apache-2.0
"""What a recording says, in the formats of other tools: docs/design/export.md."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise._lib import OPS_DTYPE
from spanwise.errors import InvalidError
from spanwise.recordings.outputs import check_output
from spanwise.report import series, stacks
from spanwise.results.files import write_whole
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from spanwise.heap.options import HeapOptions
    from spanwise.recordings.recording import Recording
    from spanwise.results.progress import Progress

FORMATS = ("pprof", "speedscope", "collapsed", "perfetto", "openmetrics", "npz")
MOMENTS = 1000


@dataclass(frozen=True)
class Wanted:
    """What is to be written.

    Attributes:
        form: one of FORMATS.
        value: of a call site, for collapsed lines.
        table: size classes of the simulated heap.
        at: the moment.
    """

    form: str
    value: str
    table: SizeClassTable
    at: str | float

    def __post_init__(self) -> None:
        """Refuses formats and values that are not known."""
        for word, known, what in (
            (self.form, FORMATS, "format"),
            (self.value, tuple(stacks.VALUES), "value"),
        ):
            if word not in known:
                raise InvalidError(f"{what} {word!r}: use one of {', '.join(known)}")


def write(
    recording: Recording,
    path: str | os.PathLike[str],
    wanted: Wanted,
    options: HeapOptions | None,
    progress: Progress,
) -> None:
    """Writes one file, whole or not at all; as `Recording.export`."""
    check_output(path)
    write_whole(path, content_of(recording, wanted, options, progress))


def content_of(
    recording: Recording, wanted: Wanted, options: HeapOptions | None, progress: Progress
) -> str | bytes:
    """What the file holds."""
    table, at, program = wanted.table, wanted.at, Path(recording.program).name
    if wanted.form == "npz":
        return _npz(recording)
    if wanted.form == "openmetrics":
        return series.openmetrics(recording.ledger(table, at, options=options, progress=progress))
    if wanted.form == "perfetto":
        rows = recording.timeline(
            table, samples=MOMENTS, detail="parts", options=options, progress=progress
        )
        return series.perfetto(rows, program)
    live = recording.live_sites(table, at, options=options, progress=progress)
    found = stacks.stacks_of(recording.sites.named(), live.named())
    name = f"{program} at {live.ledger.at}, table {table.name}"
    if wanted.form == "collapsed":
        return stacks.collapsed(found, wanted.value)
    if wanted.form == "speedscope":
        return stacks.speedscope(found, name)
    return stacks.pprof(found, recording.summary.duration_ns, name)


def _npz(recording: Recording) -> bytes:
    """All operations, a column each, and the metadata as pairs of texts in JSON."""
    ops = np.asarray(recording.ops)
    columns: dict[str, Any] = {name: ops[name] for name in OPS_DTYPE.names or ()}
    room = io.BytesIO()
    np.savez_compressed(room, meta=np.array(json.dumps(recording.meta)), **columns)
    return room.getvalue()
