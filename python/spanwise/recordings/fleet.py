# SPDX-License-Identifier: Apache-2.0
"""Many sampled recordings as one: estimates over all processes, by call site, host or version.

Processes are sampled independently, so estimates and variances add up (sampled.py). One recording
is read at a time in each worker, and only the sums of its groups are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanwise import _format, errors
from spanwise.recordings.sampled import (
    Estimates,
    GroupSums,
    SampledRecording,
    fields_of,
    sum_of,
)
from spanwise.results.jobs import Progress, ctrl_c_heard, first_ended, progress_bar
from spanwise.tables.table import SizeClassTable, as_table

FLEET_GROUPS = ("site", "class", "host", "version", "program")
_AHEAD = 4
"""Tasks per worker that are submitted before earlier ones have ended."""


@dataclass(frozen=True, repr=False, eq=False)
class Fleet(Estimates):
    """Estimates over many processes, each at its own moment.

    Attributes:
        processes: recordings that were read.
        hosts: machines that they were made on.
        versions: labels or build ids of their programs.
        failed: recordings that could not be read, with the reasons.
        gaps: recordings that lack something, with what.
    """

    processes: int = 0
    hosts: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    gaps: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        more = {
            "processes": self.processes,
            "hosts": list(self.hosts),
            "versions": list(self.versions),
            "failed": [{"path": path, "error": why} for path, why in self.failed],
            "gaps": [{"path": path, "gap": what} for path, what in self.gaps],
        }
        return {**super().to_dict(), **more}

    def _source(self) -> str:
        parts = (
            _format.plural(self.processes, "process"),
            _format.plural(len(self.hosts), "host"),
            _format.plural(len(self.versions), "version"),
        )
        return ", ".join(parts)


@dataclass
class _Read:
    """What is kept of a recording: the sums of its groups by a name that others share."""

    groups: dict[tuple[str, ...], GroupSums]
    host: str
    version: str
    when: str
    sample_bytes: int
    gaps: list[str]


@dataclass
class _Totals:
    """The sums so far."""

    groups: dict[tuple[str, ...], GroupSums] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    means: set[int] = field(default_factory=set)
    when: str = ""
    processes: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)

    def add(self, path: str, read: _Read) -> None:
        for name, sums in read.groups.items():
            if name in self.groups:
                self.groups[name].add(sums)
            else:
                self.groups[name] = sums
        self.hosts.add(read.host)
        self.versions.add(read.version)
        self.means.add(read.sample_bytes)
        self.when = read.when
        self.processes += 1
        self.gaps += [(path, gap) for gap in read.gaps]


def fleet(
    recordings: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    by: str = "site",
    at: str | float = "peak",
    table: SizeClassTable | str = "c16",
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Progress = None,
) -> Fleet:
    """Estimate over many sampled recordings, such as those of all processes of a service.

    A recording that cannot be read is listed in the result, and the others count.

    Args:
        recordings: files, or folders that are searched for *.swt.
        by: "site", "class", "host", "version" (see `SampledRecording.version`) or "program".
        at: of each process: "peak" (of its estimated requested bytes), "end", or seconds since its
            start.
        table: size classes of the round-up, or a table's name.
        executor: any `concurrent.futures.Executor` whose workers can open the files; None: threads.
        workers: number of threads; None: one per processor.
        progress: a function to call with the number of recordings done since its last call; True: a
            bar; False: none; None: a bar if it takes more than a second.

    Raises:
        InvalidError: an argument is not allowed, or there is no recording.
        SpanwiseError, OSError: no recording could be read; the error of the first one.
    """
    if by not in FLEET_GROUPS:
        raise errors.InvalidError(f"by {by!r} is unknown; give one of {', '.join(FLEET_GROUPS)}")
    made = as_table(table)
    paths = find_recordings(recordings)
    totals = _Totals()
    with ExitStack() as cleanup:
        cleanup.enter_context(ctrl_c_heard())
        count = workers or os.cpu_count() or 1
        if executor is None:
            executor = cleanup.enter_context(ThreadPoolExecutor(count))
        step = cleanup.enter_context(progress_bar(progress, len(paths), "read", "recordings"))
        first = None
        for path, ended in _ended(executor, paths, (by, at, made), count * _AHEAD):
            error = ended.exception()
            if error is None:
                totals.add(path, ended.result())
            elif isinstance(error, (errors.SpanwiseError, OSError)):
                first = first or error
                totals.failed.append((path, str(error)))
            else:
                raise error
            step(1)
    if not totals.processes and first is not None:
        raise first
    return _result(totals, by)


def find_recordings(
    recordings: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[str]:
    """Return the files, and the *.swt in the folders, sorted; raises InvalidError for none."""
    given = [recordings] if isinstance(recordings, (str, os.PathLike)) else list(recordings)
    found: dict[str, None] = {}
    for one in map(Path, given):
        inside = sorted(one.rglob("*.swt")) if one.is_dir() else [one]
        found |= dict.fromkeys(str(path) for path in inside)
    if not found:
        names = ", ".join(str(one) for one in given) or "nothing was given"
        raise errors.InvalidError(
            f"{names}: no recordings (*.swt); spanwise record --sample makes them"
        )
    return list(found)


def _ended(
    executor: Executor, paths: list[str], arguments: tuple[Any, ...], ahead: int
) -> Iterator[tuple[str, Future[_Read]]]:
    """Run the tasks, `ahead` of them at a time, and yield each when it has ended."""
    waiting: dict[Future[_Read], str] = {}
    left = iter(paths)
    try:
        while True:
            for path in left:
                waiting[executor.submit(_read, path, *arguments)] = path
                if len(waiting) >= ahead:
                    break
            if not waiting:
                return
            for future in first_ended(waiting):
                yield waiting.pop(future), future
    finally:
        for future in waiting:
            future.cancel()


def _read(path: str, by: str, at: str | float, table: SizeClassTable) -> _Read:
    """Read a recording, in a worker."""
    one = SampledRecording.open(path)
    attribute = {
        "host": one.host or "(unknown)",
        "version": one.version or "(none)",
        "program": one.program,
    }
    groups, when = one.sums(by if by not in attribute else "class", at, table)
    parts = list(groups.values())
    if by in attribute:
        parts = [sum_of(parts)]
        parts[0].what = (attribute[by],)
    return _Read(
        _by_name(parts), attribute["host"], attribute["version"], when, one.sample_bytes, one.gaps
    )


def _by_name(groups: Iterable[GroupSums]) -> dict[tuple[str, ...], GroupSums]:
    found: dict[tuple[str, ...], GroupSums] = {}
    for one in groups:
        if one.what in found:
            found[one.what].add(one)
        else:
            found[one.what] = one
    return found


def _result(totals: _Totals, by: str) -> Fleet:
    known = {"peak": "the peak of each", "end": "the end of each"}
    return Fleet(
        by,
        known.get(totals.when, f"{totals.when} of each"),
        "",
        max(totals.means),
        *fields_of(dict(enumerate(totals.groups.values()))),
        processes=totals.processes,
        hosts=tuple(sorted(totals.hosts)),
        versions=tuple(sorted(totals.versions)),
        failed=tuple(sorted(totals.failed)),
        gaps=tuple(sorted(totals.gaps)),
    )
