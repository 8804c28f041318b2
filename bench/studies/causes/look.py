# SPDX-License-Identifier: Apache-2.0
"""Runs a program under each allocator, records it, and says where its resident bytes are."""

from __future__ import annotations

import re
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

import spanwise as sw
from real.launch import finish, start
from runner.contenders import PRELOADS
from spanwise.measure.process_ledger import ProcessLedger
from spanwise.measure.running import find_face
from spanwise.recordings.recorder import run_recorded

from studies.causes.programs import Case
from studies.causes.split import highest
from studies.resident.look import quiet
from studies.resident.shares import fitted, written

LIBRARY, OUTSIDE = "the library's file", "outside"
_ERROR = 0.02
"""The most that a prediction may exceed the process by; most programs have more outside of the
heap."""
PEERS = ("glibc", *PRELOADS)


@dataclass(frozen=True)
class Seen:
    """What was seen of a program. Sizes are in bytes.

    Attributes:
        name: of the program.
        causes: resident bytes by cause at the heap's highest; with the library's file, and what
            is outside of both. Their sum is `spanwise`, where `is_told`.
        large_share: of its large objects the percent that it is taken to write.
        spanwise: peak RSS under the preloaded malloc, the median of the runs.
        peers: peak RSS under the others; None: it did not end well.
    """

    name: str
    causes: dict[str, float]
    large_share: float
    spanwise: int
    peers: dict[str, int | None]

    @property
    def is_told(self) -> bool:
        """Whether causes are known: the predicted heap is not larger than the process was.

        It is larger if a program writes only parts of its objects in slots, which nothing records.
        """
        return sum(self.causes.values()) <= self.spanwise * (1 + _ERROR)


def _largest(run: sw.RunResult) -> ProcessLedger:
    """The process that held most."""
    told = [one for one in (run.main, *run.others) if one is not None]
    if not told:
        raise sw.StateError(run.why_no_ledger())
    return max(told, key=lambda one: one.peak_held_bytes)


def library_bytes(face: Path) -> int:
    """What is resident of the preloaded malloc's file in a small program."""
    told = subprocess.run(
        ["cat", "/proc/self/smaps"],
        env={"LD_PRELOAD": str(face), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    regions = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", told)
    sizes = [re.search(r"(?m)^Rss: +(\d+) kB", region) for region in regions if face.name in region]
    return 1024 * sum(int(size[1]) for size in sizes if size)


def _peak_rss(launcher: Path, preload: str, case: Case, place: Path) -> int | None:
    """Peak RSS of the largest process of a run; None: it did not end well."""
    work = place / "work"
    work.mkdir(parents=True)
    usage = finish(start(launcher, preload, case.argv, work, case.variables), work)
    return None if usage.error else usage.peak_rss_bytes


def _causes(case: Case, folder: Path) -> tuple[dict[str, float], float]:
    """The heap's resident bytes by cause; and the share of large objects that is written."""
    for name in ("recorded", "tracked"):
        (folder / name).mkdir(parents=True)
    with quiet():
        told = run_recorded(
            case.argv,
            folder / "program.swt",
            children=True,
            stacks=0,
            env=case.environment(folder),
            cwd=folder / "recorded",
        )
        run = sw.run(case.argv, env=case.environment(folder), cwd=folder / "tracked")
    recording, main = told.recordings().highest(), _largest(run)
    if main.peak is None or recording.path is None:
        raise sw.StateError(f"{case.name}: the tracked run told no peak")
    share = fitted(recording, written(main.peak), main.ledger.resident_bytes or 0)
    return highest(recording.path, sw.HeapOptions(large_touched_percent=share)), share


def look(case: Case, folder: Path, launcher: Path, repeat: int) -> Seen:
    """Everything about one program.

    Raises:
        SpanwiseError: it tells no ledger, or does not end well under the preloaded malloc.
    """
    face = find_face(None, None)
    causes, share = _causes(case, folder)
    peaks = [_peak_rss(launcher, str(face), case, folder / f"spanwise-{i}") for i in range(repeat)]
    well = [peak for peak in peaks if peak is not None]
    if len(well) < repeat:
        raise sw.StateError(f"{case.name}: did not end well under {face.name}")
    ours = int(statistics.median(well))
    causes[LIBRARY] = library_bytes(face)
    causes[OUTSIDE] = max(0.0, ours - sum(causes.values()))
    peers = {
        name: _peak_rss(
            launcher, PRELOADS[name][0] if name in PRELOADS else "", case, folder / name
        )
        for name in PEERS
    }
    return Seen(case.name, causes, share, ours, peers)
