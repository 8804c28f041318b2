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

import pytest
from spanwise import _lib
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
        self.summary_tool = self._build_summary()

    def _compile(self, *arguments: str | Path) -> None:
        command: list[str | Path] = [
            CC,
            "-O1",
            "-std=gnu11",
            "-fPIC",
            "-I",
            ROOT / "include",
            "-I",
            ROOT / "src",
        ]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if "zstd.h" in done.stderr or "libzstd" in done.stderr:
                pytest.skip("the zstd development files are missing")
            raise AssertionError(done.stderr)

    def _floor(self) -> list[Path]:
        rooms = ["base", "os/linux", "ds", "trace"]
        return [path for room in rooms for path in sorted((ROOT / "src" / room).glob("*.c"))]

    def _build_summary(self) -> Path:
        tool = self.build / "summary"
        sources = [PROGRAMS / "summary.c", *self._floor()]
        self._compile(*sources, "-o", tool, "-l:libzstd.a", "-lpthread")
        return tool

    def program(self, name: str, *flags: str) -> Path:
        """Compiles tests/recorder/NAME.c, unless that was done already."""
        out = self.build / "-".join([name, *flags])
        if not out.exists():
            source = PROGRAMS / f"{name}.c"
            self._compile("-fno-builtin", *flags, source, "-o", out, "-lpthread", "-ldl")
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
        done = subprocess.run(
            [self.summary_tool, "--salvage", areas, path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def summarise(self, path: Path, *, prefix: bool = False) -> dict[str, str]:
        """The recording's totals and metadata, by name."""
        arguments = ["--valid-prefix"] if prefix else []
        done = subprocess.run(
            [self.summary_tool, *arguments, path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)

    def threads(self, path: Path) -> list[ThreadSeen]:
        """What each thread did, by its number."""
        done = subprocess.run(
            [self.summary_tool, "--threads", path], capture_output=True, text=True, check=True
        )
        rows = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
        assert [row[0] for row in rows] == list(range(len(rows)))
        assert not any(row[4] for row in rows), "an end after an end"
        return [ThreadSeen(row[1], row[2], bool(row[3])) for row in rows]

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
