# SPDX-License-Identifier: Apache-2.0
"""Export recordings to the formats of other tools (docs/design/export.md)."""

from __future__ import annotations

import html
import importlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import OPS_DTYPE
from spanwise.errors import InvalidError, UnsupportedError
from spanwise.recordings.names import name_frames
from spanwise.recordings.sites import unknown_only, unknown_text
from spanwise.report import flame, perfetto, stacks
from spanwise.report.page import document, json_script
from spanwise.report.stack_data import StackData
from spanwise.results.files import check_output, whole_file, write_whole
from spanwise.results.jobs import Step, progress_bar
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from spanwise.heap.options import HeapOptions
    from spanwise.recordings.live_sites import LiveSites
    from spanwise.recordings.recording import Recording
    from spanwise.results.jobs import Progress

FORMATS = ("pprof", "speedscope", "collapsed", "perfetto", "openmetrics", "npz", "parquet")
MOMENTS = 1000
PARQUET_ROWS = 1 << 18
"""Operations per row group."""
_COLUMNS = OPS_DTYPE.names or ()
_PASSES = {"npz": 1 + len(_COLUMNS), "perfetto": 2, "pprof": 2}
"""Passes over the operations, where there are several: for the progress bar."""


@dataclass(frozen=True)
class Wanted:
    """What to export.

    Attributes:
        form: one of FORMATS.
        value: key of stacks.VALUES, for collapsed stacks.
        table: size classes of the simulated heap.
        at: moment of the recording.
        names: arguments of `LiveSites.named`.
    """

    form: str
    value: str
    table: SizeClassTable
    at: str | float
    names: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises InvalidError for an unknown format or value."""
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
    """Writes one file atomically; arguments and errors as of `Recording.export`."""
    check_output(path)
    total = _PASSES.get(wanted.form, 1) * len(recording)
    with progress_bar(progress, total, f"export to {wanted.form}", "operations") as step:
        if wanted.form == "parquet":
            _write_parquet(recording, path, step)
        else:
            write_whole(path, content_of(recording, wanted, options, step))


def _blocks(recording: Recording, rows: int, step: Step) -> Iterator[NDArray[np.void]]:
    for block in recording.blocks(rows):
        yield block
        step(len(block))


def _write_parquet(recording: Recording, path: str | os.PathLike[str], step: Step) -> None:
    """Write all operations, a row group per block, so that memory stays bounded."""
    try:
        arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    except ImportError:
        raise UnsupportedError(
            "parquet needs pyarrow, which is not installed: pip install 'spanwise[parquet]'"
        ) from None
    fields = [(name, arrow.from_numpy_dtype(OPS_DTYPE[name])) for name in _COLUMNS]
    schema = arrow.schema(fields, metadata={"spanwise.meta": json.dumps(recording.meta)})
    with (
        whole_file(path) as growing,
        parquet.ParquetWriter(growing, schema, compression="zstd") as writer,
    ):
        for block in _blocks(recording, PARQUET_ROWS, step):
            columns = [np.ascontiguousarray(block[name]) for name in _COLUMNS]
            writer.write_table(arrow.table(columns, schema=schema))


def content_of(
    recording: Recording, wanted: Wanted, options: HeapOptions | None, step: Step
) -> str | bytes:
    """Return the content of the file."""
    table, at, program = wanted.table, wanted.at, Path(recording.program).name
    if wanted.form == "npz":
        return _npz(recording, step)
    if wanted.form == "openmetrics":
        return perfetto.openmetrics(recording.ledger(table, at, options=options, progress=step))
    if wanted.form == "perfetto":
        rows = recording.timeline(
            table, samples=MOMENTS, detail="parts", options=options, progress=step
        )
        duration_ns = recording.summary.duration_ns
        lanes = perfetto.lanes(_blocks(recording, 1 << 18, step), duration_ns, MOMENTS)
        return perfetto.text_of(program, [*perfetto.counters(rows), *lanes])
    live = recording.live_sites(table, at, options=options, progress=step).named(**wanted.names)
    sites = recording.sites.named(**wanted.names)
    names = name_frames(
        (frame for site in (*sites, *live) for frame in site.frames), dict(live.build_ids)
    )
    name = f"{program} at {live.ledger.at}, table {table.name}"
    if wanted.form == "pprof":
        rows = recording.site_groups(table, at, options=options, progress=step)
        groups = stacks.groups_of(rows, (*sites, *live), names)
        return stacks.pprof(groups, recording.summary.duration_ns, name)
    found = stacks.stacks_of(sites, live, names)
    if wanted.form == "collapsed":
        return stacks.collapsed(found, wanted.value)
    return stacks.speedscope(found, name)


def check_flame(path: str | os.PathLike[str], of: str, *, is_difference: bool = False) -> None:
    """Check before the work that the graph exists and its file can be written.

    Raises:
        OSError: as `check_output`.
        InvalidError: `of` is unknown, or the name has another ending.
    """
    flame.check_of(of)
    check_output(path)
    suffix = Path(path).suffix.lower()
    if is_difference and suffix != ".html":
        raise InvalidError(f"{path}: a difference of two recordings ends in .html")
    if suffix not in (".svg", ".html"):
        raise InvalidError(f"{path}: a flame graph ends in .svg or .html; give another name")


def write_flame(
    live: LiveSites, path: str | os.PathLike[str], of: str, before: LiveSites | None = None
) -> str:
    """Writes a flame graph atomically; as `Recording.to_flame`."""
    if unknown_only(live):
        raise InvalidError(f"{live.ledger.source}: {unknown_text(live.imported)}")
    said = flame.sentence(live, of, before)
    if Path(path).suffix.lower() == ".svg":
        write_whole(path, flame.file_of(flame.tree_of(live, of), said))
        return said
    quantities = (*flame.OF, "objects")
    data = StackData(live, before=before).to_dict()
    keys = "" if before is None else _KEYS
    body = (
        f"<main class=graph><h1>{html.escape(said)}</h1>{keys}"
        f"{flame.part_of_page(quantities, said, of)}</main>{json_script('stacks', data)}"
    )
    scripts = ("common.js", "flame.js")
    write_whole(path, document(said, body, ("report.css", "flame.css"), scripts))
    return said


_KEYS = (
    '<p class="keys"><span><i class="key key-more"></i>▲ grew</span><span><i class="key key-less">'
    "</i>▼ shrank</span><span>A stack is as wide as the larger of its two values.</span></p>"
)


def _npz(recording: Recording, step: Step) -> bytes:
    """Return an npz file: a column per field of the operations, and the metadata as JSON.

    It is what numpy.savez_compressed makes, written in pieces, since compression takes long.
    """
    blocks = list(_blocks(recording, PARQUET_ROWS, step))
    ops = np.concatenate([np.empty(0, OPS_DTYPE), *blocks])
    room = io.BytesIO()
    with zipfile.ZipFile(room, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("meta.npy", "w") as file:
            np.lib.format.write_array(file, np.array(json.dumps(recording.meta)))
        for name in _COLUMNS:
            head = np.lib.format.header_data_from_array_1_0(np.ascontiguousarray(ops[name]))
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, head)
                for first in range(0, len(ops), PARQUET_ROWS):
                    part = ops[name][first : first + PARQUET_ROWS]
                    file.write(part.tobytes())
                    step(len(part))
    return room.getvalue()
