# SPDX-License-Identifier: Apache-2.0
"""The plan of a sweep: recordings and tables for tasks, and the header of its file.

Recordings and tables that cannot be opened are part of the plan and become failed rows.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spanwise import _lib, errors
from spanwise.heap.options import HeapOptions, as_options
from spanwise.recordings.recording import Recording
from spanwise.recordings.sources import ArraySource, FileSource
from spanwise.sweeps.row_file import Row
from spanwise.sweeps.tasks import Task, describe, file_sha256, ops_sha256, table_spec
from spanwise.tables.table import SizeClassTable, as_table

TABLES_A_TASK = 4
"""Maximum tables per pass. Reading takes about a quarter of the time of one table."""

_TASK_BYTES = 1 << 28
_OBJECT_BYTES = 64  # approximately, per live object of a dry heap and its runner


@dataclass
class Plan:
    """The recordings and tables of a sweep.

    Attributes:
        recordings: name, path, sha256, valid_prefix, events of each; path None: in memory.
        tables: specs as tasks have them.
        opened: the recordings by sha256.
        bad: names and errors of recordings and tables that could not be opened.
        notes: what was omitted and why.
        at: moment of the ledgers.
        options: of the heaps: fields of `HeapOptions`.
    """

    at: str | float
    options: dict[str, Any]
    recordings: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    opened: dict[str, Recording] = field(default_factory=dict)
    bad: dict[str, dict[str, str]] = field(default_factory=lambda: {"recordings": {}, "tables": {}})
    notes: list[str] = field(default_factory=list)

    def header(self, engine: str) -> dict[str, Any]:
        """Return the header of this session."""
        return session_header(
            executor=engine,
            at=self.at,
            options=self.options,
            recordings=[dict(one) for one in self.recordings],
            tables=self.tables,
        )

    def failed_rows(self) -> list[Row]:
        """Return failed rows for the recordings and tables that could not be opened."""
        rows = []
        for name, error in self.bad["recordings"].items():
            rows += self._task({"name": name, "sha256": None}, self.tables).failures(error)
        specs: list[dict[str, Any]] = [
            {"name": name, "hash": None, "classes": ()} for name in self.bad["tables"]
        ]
        for recording in self.recordings:
            task = self._task(recording, specs)
            rows += [task.row(one, error=self.bad["tables"][one["name"]]) for one in specs]
        return rows

    def tasks(self, done: set[tuple[str, str]], width: int) -> Iterator[Task]:
        """Yield the remaining tasks for `width` workers.

        `done` has the recording's sha256 and the table's hash of existing rows.
        """
        for recording in self.recordings:
            left = [t for t in self.tables if (recording["sha256"], t["hash"]) not in done]
            count = self._tables_a_task(recording, len(left), width)
            for first in range(0, len(left), count):
                yield self._task(recording, left[first : first + count])

    def _task(self, recording: dict[str, Any], tables: list[dict[str, Any]]) -> Task:
        return Task(_lib.version(), recording, self.at, self.options, tuple(tables))

    def _tables_a_task(self, recording: dict[str, Any], left: int, width: int) -> int:
        """Return tables per task, few enough that workers end together and memory is bounded."""
        even = math.ceil(left * len(self.recordings) / (3 * width))
        room: int = _TASK_BYTES // max(1, _OBJECT_BYTES * recording["live"])
        return max(1, min(TABLES_A_TASK, even, room))


def make_plan(
    recordings: Any,
    tables: Any,
    at: str | float,
    valid_prefix: bool,
    options: HeapOptions | None,
) -> Plan:
    """Open and hash all recordings and tables."""
    plan = Plan(_moment(at), as_options(options).to_dict())
    first_error: Exception | None = None
    for one in _each(tables, (str, SizeClassTable)):
        error = _add_table(plan, one)
        first_error = first_error or error
    if not plan.tables:
        raise first_error or errors.InvalidError("no table to sweep; give at least one")
    for one in _each(recordings, (str, os.PathLike, Recording)):
        error = _add_recording(plan, one, valid_prefix, at)
        first_error = first_error or error
    if not plan.recordings:
        raise first_error or errors.InvalidError("no recording to sweep; give at least one")
    return plan


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _moment(at: str | float) -> str | float:
    """Check a moment and return it for JSON."""
    at = _plain(at)
    Recording.from_ops(np.empty(0, _lib.OPS_DTYPE))._moment(at)
    return at


def _each(value: Any, kinds: tuple[type, ...]) -> Iterable[Any]:
    return [value] if isinstance(value, kinds) else value


def _add_table(plan: Plan, given: SizeClassTable | str) -> Exception | None:
    """Add a table. A missing or wrong file is part of the plan; an unknown name raises."""
    try:
        table = as_table(given)
    except (errors.InvalidError, OSError) as error:
        if not str(given).endswith(".json"):
            raise
        plan.bad["tables"][str(given)] = describe(error)
        return error
    spec = table_spec(table)
    same = next((one for one in plan.tables if one["hash"] == spec["hash"]), None)
    if same is not None:
        if spec["name"] != same["name"]:
            plan.notes.append(f"{spec['name']} is the same table as {same['name']}: omitted")
        return None
    plan.tables.append(spec)
    return None


def _add_recording(plan: Plan, given: Any, valid_prefix: bool, at: str | float) -> Exception | None:
    """Add a recording. A missing, damaged or too short file is part of the plan."""
    try:
        known = _describe_recording(given, valid_prefix)
        known[0]._check_moment(at)
    except (errors.SpanwiseError, OSError) as error:
        name = given.name if isinstance(given, Recording) else os.fspath(given)
        plan.bad["recordings"][name] = describe(error)
        return error
    recording, entry = known
    same = next((one for one in plan.recordings if one["sha256"] == entry["sha256"]), None)
    if same is not None:
        if entry["path"] != same["path"]:
            plan.notes.append(f"{entry['name']} is the same recording as {same['name']}: omitted")
        return None
    if any(one["name"] == entry["name"] for one in plan.recordings):
        entry["name"] = entry["path"] or f"{entry['name']} {len(plan.recordings) + 1}"
    plan.recordings.append(entry)
    plan.opened[entry["sha256"]] = recording
    return None


def _describe_recording(given: Any, valid_prefix: bool) -> tuple[Recording, dict[str, Any]]:
    if isinstance(given, Recording):
        recording = given
    elif isinstance(given, str | os.PathLike):
        recording = Recording.open(given, valid_prefix)
    else:
        raise TypeError(f"a recording must be a Recording or a path, not {type(given).__name__}")
    entry: dict[str, Any] = {"name": recording.name, "path": None, "valid_prefix": False}
    source = recording._source
    if isinstance(source, FileSource):
        entry["path"] = str(Path(source.path).absolute())
        entry["valid_prefix"] = bool(source.flags)
        entry["sha256"] = file_sha256(entry["path"])
    else:
        assert isinstance(source, ArraySource)
        entry["sha256"] = ops_sha256(source.ops)
    # Finding the end of a raw recording takes a pass, which the workers make.
    ordered = not entry["path"] or recording.info["form"] == int(_lib.lib.SW_TRACE_ORDERED)
    whole = not recording.info.get("damaged")
    entry["events"] = recording.info["ops"] if entry["path"] else len(recording)
    entry["live"] = (
        recording.summary.peak_live_objects if ordered and whole else entry["events"] // 4
    )
    return recording, entry


def expand(words: Iterable[str]) -> list[str]:
    """Expand glob patterns such as `tables/*.json` in a list of names."""
    names: list[str] = []
    for word in words:
        if glob.has_magic(word) and not Path(word).exists():
            found = sorted(glob.glob(word))  # noqa: PTH207  the pattern may be absolute
            if not found:
                raise errors.InvalidError(f"{word}: no file matches")
            names += found
        else:
            names.append(word)
    return names


# --- identity of the code -------------------------------------------------------------------------


def session_header(**fields: Any) -> dict[str, Any]:
    """Return the header of a session of a row file: time, versions, commit, build, machine, ..."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {
            "spanwise": _lib.version(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "commit": commit(),
        "build": build(),
        "machine": f"{platform.system()} {platform.machine()}",
        **fields,
    }


@functools.cache
def commit() -> str | None:
    """Return the commit of the checkout, with "+changes" if it is dirty; None: no checkout."""
    root = _git("rev-parse", "--show-toplevel")
    if root is None or not (Path(root) / "include/spanwise/spanwise.h").is_file():
        return None
    head = _git("rev-parse", "--short=12", "HEAD")
    dirty = _git("status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if head and dirty else head


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def build() -> str | None:
    """Return a prefix of the compiled library's hash, to distinguish builds of one commit."""
    path = getattr(sys.modules.get("spanwise._spanwise"), "__file__", None)
    if path is None:
        return None
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


@functools.cache
def made_by() -> dict[str, str | None]:
    """Return the provenance of a stored figure: version, compiled library, Python files."""
    found = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    for path in sorted(package.rglob("*.py")):
        found.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return {"spanwise": _lib.version(), "build": build(), "python": found.hexdigest()[:16]}
