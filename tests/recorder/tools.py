# SPDX-License-Identifier: Apache-2.0
"""What the tests of the recorder share: the library, and programs to record.

The library is the installed one; set SPANWISE_RECORD_LIB to test another. The
programs are compiled here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import spanwise as sw
from spanwise import _lib
from spanwise._lib import check, lib
from spanwise.recordings.recorder import RECORDER

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent
CC = os.environ.get("CC", "cc")
ATEXIT_BLOCKS = 10  # blocks that the destructor of lifecycle.c makes in each image that ends well


@dataclass
class Run:
    """One recorded run: the finished process and what its recordings hold, by file name."""

    process: subprocess.CompletedProcess[str]
    recordings: dict[str, dict[str, str]] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)

    @property
    def main(self) -> dict[str, str]:
        """Summary of FILE itself."""
        return self.recordings["out.swt"]

    def number(self, name: str, recording: str = "out.swt") -> int:
        """One number of a recording's summary."""
        return int(self.recordings[recording][name])


@dataclass
class ThreadSeen:
    """Operations of a thread, its ends among them, and whether an end is the last."""

    ops: int
    ends: int
    ended: bool


class Recorder:
    """Builds what the tests need, once, and runs programs under the recorder."""

    def __init__(self, build: Path) -> None:
        self.build = build
        self.library = Path(os.environ.get("SPANWISE_RECORD_LIB") or _lib.native_library(RECORDER))

    def program(self, name: str, *flags: str) -> Path:
        """Compiles tests/recorder/NAME.c, unless that was done already."""
        out = self.build / "-".join([name, *flags])
        if not out.exists():
            source = PROGRAMS / f"{name}.c"
            command: list[str | Path] = [
                CC,
                "-O1",
                "-std=gnu11",
                "-fPIC",
                "-fno-builtin",
                *flags,
                source,
            ]
            subprocess.run([*command, "-o", out, "-lpthread", "-ldl"], check=True)
        return out

    def environment(
        self, file: Path | str, options: dict[str, str] | None = None
    ) -> dict[str, str]:
        """Environment of a recorded program; options without their SPANWISE_RECORD_ prefix."""
        keep = {k: v for k, v in os.environ.items() if not k.startswith("SPANWISE_RECORD")}
        named = {f"SPANWISE_RECORD_{k}": v for k, v in (options or {}).items()}
        preload = {"LD_PRELOAD": str(self.library), "SPANWISE_RECORD_FILE": str(file)}
        return {**keep, **preload, **named}

    def salvage(self, path: Path, areas: Path) -> None:
        """Takes what a program left in its areas into its recording."""
        check(lib.sw_trace_salvage(_lib.c_path(path), _lib.c_path(areas), 0, 0))

    def summarise(self, path: Path, *, prefix: bool = False) -> dict[str, str]:
        """The recording's totals and metadata, by name."""
        one = sw.Recording.open(path, valid_prefix=prefix)
        meta = {f"meta.{name}": value for name, value in one.meta}
        found = {**one.info, **one.summary.to_dict(), **meta}
        return {name: str(value) for name, value in found.items()}

    def threads(self, path: Path) -> list[ThreadSeen]:
        """What each thread did, by its number."""
        ops = np.asarray(sw.Recording.open(path).ops)
        found = []
        for thread in range(int(ops["thread"].max()) + 1):
            ends = ops["kind"][ops["thread"] == thread] == lib.SW_OP_THREAD_END
            assert len(ends) and not (ends[1:] & ends[:-1]).any(), "an end after an end"
            found.append(ThreadSeen(len(ends), int(ends.sum()), bool(ends[-1])))
        return found

    def run(
        self,
        command: Sequence[str | Path],
        directory: Path,
        *,
        prefix: bool = False,
        extra: dict[str, str] | None = None,
        options: dict[str, str] | None = None,
    ) -> Run:
        """Runs a command under the recorder and reads every recording that it left."""
        environment = {**self.environment(directory / "out.swt", options), **(extra or {})}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        run = Run(done)
        for path in sorted(directory.iterdir()):
            if path.suffix == ".swt":
                run.recordings[path.name] = self.summarise(path, prefix=prefix)
            else:
                run.leftovers.append(path.name)
        return run


def lifecycle(recorder: Recorder, directory: Path, mode: str, n: int, **options: str) -> Run:
    """Runs the program of all kinds of ends."""
    return recorder.run([recorder.program("lifecycle"), mode, str(n)], directory, options=options)


def assert_consistent(summary: dict[str, str]) -> None:
    for name in ("unknown_frees", "unknown_reallocs", "missed_frees", "incomplete"):
        assert summary[name] == "0", name
    events = int(summary["ops"]) - int(summary["thread_ends"])
    assert int(summary["calls"]) == events + int(summary["dropped_calls"])
