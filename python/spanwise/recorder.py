# SPDX-License-Identifier: Apache-2.0
"""Recording a program: start it with the recorder preloaded, then put its events in order."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, overload

import numpy as np

from spanwise import _format, _lib, errors
from spanwise._child import passing_on, preload_of, python_variables, seen_from, wait_for, words_of
from spanwise._lib import check, ffi, lib
from spanwise._program import examine, runtime_of
from spanwise._run import interruptible
from spanwise.trace import Recording, RecordingSet

RECORDER = "libspanwise-record.so"
_MEMORY = "/dev/shm"
STACKS_MAX = 128


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        path: the recording of the program itself.
        others: recordings of its children, and of what the process was before it called exec.
        status: exit status of the program; negative: the signal that ended it.
        stopped_by: the signal by which we were asked to stop meanwhile; 0: none.
        unordered: why recordings stayed as the recorder wrote them; "": they did not.
    """

    path: Path
    others: tuple[Path, ...]
    status: int
    stopped_by: int = 0
    unordered: str = ""

    def recordings(self) -> RecordingSet:
        """The program's recording first, then the others."""
        return RecordingSet(
            Recording.open(path, valid_prefix=bool(self.unordered))
            for path in (self.path, *self.others)
        )

    def findings(self) -> list[str]:
        """What the recordings do not have of the program, and why; none: nothing is known."""
        told = [f"kept as it was recorded, not in order: {self.unordered}"] * bool(self.unordered)
        each = [(Path(str(one.path)).name, one) for one in self.recordings()]
        return told + [f"{name}: {gap}" for name, one in each for gap in one.summary.gaps()]

    def outside(self) -> list[str]:
        """Heaps in the program that do not go through malloc, which alone is recorded."""
        brought: dict[str, str] = {}
        told = set()
        for one in self.recordings():
            for path in {one.program, *(module.path for module in one.modules)}:
                if path not in brought:
                    brought[path] = runtime_of(path)
                if brought[path]:
                    told.add((Path(one.program).name, brought[path]))
        return [
            f"{name} has a heap of its own, {runtime}'s, which a recording of malloc does not see"
            for name, runtime in sorted(told)
        ]

    def lines(self) -> list[str]:
        """What to tell: how the program ended if badly, what is missing; last the counts."""
        told = []
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            told.append(f"stopped by {name}; the recording of what ran until then is kept")
        if self.status < 0:
            told.append(f"the program was ended by signal {-self.status}")
        elif self.status > 0:
            told.append(f"the program exited with {self.status}")
        return [*told, *self.outside(), *self.findings(), self._counts()]

    def _counts(self) -> str:
        first, *others = self.recordings()
        own = first.summary
        kinds = (("allocation", own.allocs), ("free", own.frees), ("reallocation", own.reallocs))
        counts = ", ".join(_format.plural(count, noun) for noun, count in kinds)
        parts = [
            f"{_format.plural(own.events, 'event')} ({counts})",
            f"peak {_format.size(own.peak_requested_bytes)}",
            *(f"{title}: {count:,}" for title, count in own.troubles()[:1] if own.dropped_calls),
        ]
        line = f"{self.path}: {', '.join(parts)}"
        children = [one for one in others if one.info["pid"] != first.info["pid"]]
        images = [one for one in others if one.info["pid"] == first.info["pid"]]
        for group, noun in ((images, "image before exec"), (children, "child")):
            events = _format.plural(sum(one.events for one in group), "event")
            line += f"; {_format.plural(len(group), noun)} recorded ({events})" if group else ""
        if own.children_unrecorded:
            line += f"; {_format.plural(own.children_unrecorded, 'child')} not recorded"
            line += "" if children else " (--children records them)"
        return line


@overload
def record(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = ...,
    *,
    children: Literal[False] = ...,
    stacks: int = ...,
    keep_pymalloc: bool = ...,
    env: Mapping[str, str] | None = ...,
    cwd: str | os.PathLike[str] | None = ...,
) -> Recording: ...
@overload
def record(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = ...,
    *,
    children: bool = ...,
    stacks: int = ...,
    keep_pymalloc: bool = ...,
    env: Mapping[str, str] | None = ...,
    cwd: str | os.PathLike[str] | None = ...,
) -> Recording | RecordingSet: ...
def record(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    children: bool = False,
    stacks: int = 1,
    keep_pymalloc: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Recording | RecordingSet:
    """Runs a program and records every call of its malloc family.

    The counts are printed to stderr, in one line. KeyboardInterrupt ends the program (it has two
    seconds to end by itself) and is raised again once the recording of what ran is in place.

    Args:
        argv: program and arguments; the program's output goes where this process's goes.
        output: the recording; None: a new file in the system's folder for temporary files. What
            the process was before it called exec goes to STEM.PID.swt beside it.
        children: also record the processes that it starts, to STEM.PID.swt beside output.
        stacks: return addresses kept of each call, 0 to 128.
        keep_pymalloc: leave CPython its own allocator. Else a CPython program runs with
            PYTHONMALLOC=malloc, so that each of its objects is seen.
        env: the program's environment; None: that of this process.
        cwd: its working folder; None: that of this process.

    Returns:
        The recording; with children a RecordingSet, the program's own recording first.

    Raises:
        ProgramError: the program was not found, or cannot be recorded (statically linked,
            set-user-ID, of another machine).
        UnsupportedError: the recorder is not installed.
        OSError: the system refused to write or to start it.
    """
    path = Path(output) if output is not None else _temporary()
    outcome = _run_recorded(
        argv,
        path,
        children=children,
        stacks=stacks,
        keep_pymalloc=keep_pymalloc,
        env=env,
        cwd=cwd,
    )
    for line in outcome.lines():
        print(line, file=sys.stderr)
    if outcome.stopped_by:
        raise KeyboardInterrupt
    return outcome.recordings() if children else Recording.open(outcome.path)


def _temporary() -> Path:
    handle, name = tempfile.mkstemp(prefix="spanwise-", suffix=".swt")
    os.close(handle)
    return Path(name)


def run_recorded(
    argv: Sequence[str | os.PathLike[str]],
    output: Path,
    *,
    children: bool = False,
    stacks: int = 1,
    keep_pymalloc: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdout: int | IO[Any] | None = None,
    patient: bool = False,
) -> Outcome:
    """As `record`, without a word.

    Args:
        argv: as of `record`.
        output: the recording.
        children: as of `record`.
        stacks: as of `record`.
        keep_pymalloc: as of `record`.
        env: as of `record`.
        cwd: as of `record`.
        stdout: the program's.
        patient: Ctrl-C is the program's affair: we wait for its end and return; the second one
            kills it. SIGTERM is passed on. Only in the main thread.

    Raises:
        KeyboardInterrupt: unless patient; the recording of what ran until then is in place.
    """
    outcome = _run_recorded(
        argv,
        output,
        children=children,
        stacks=stacks,
        keep_pymalloc=keep_pymalloc,
        env=env,
        cwd=cwd,
        stdout=stdout,
        patient=patient,
    )
    if outcome.stopped_by and not patient:
        raise KeyboardInterrupt
    return outcome


def _run_recorded(
    argv: Sequence[str | os.PathLike[str]],
    output: Path,
    *,
    children: bool,
    stacks: int,
    keep_pymalloc: bool,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    stdout: int | IO[Any] | None = None,
    patient: bool = False,
) -> Outcome:
    words = words_of(argv)
    _lib.c_path(output)
    stacks = _lib.as_index(stacks, "stacks", STACKS_MAX)
    base = dict(os.environ if env is None else env)
    recorder = _lib.native_library(RECORDER)
    program = examine(seen_from(words[0], cwd), base.get("PATH"))
    variables = {
        **base,
        **python_variables(program, keep_pymalloc),
        "LD_PRELOAD": preload_of(recorder, base),
        "SPANWISE_RECORD_STACKS": str(stacks),
        "SPANWISE_RECORD_CHILDREN": str(int(children)),
    }
    variables.pop("SPANWISE_RECORD_PID", None)
    with _workshop(output) as folder, _areas_folder(folder) as areas:
        raw = folder / output.name
        variables["SPANWISE_RECORD_FILE"] = str(raw)
        variables["SPANWISE_RECORD_AREAS"] = str(areas)
        executable = Path(program.path).absolute()

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                words, executable=executable, env=variables, cwd=cwd, stdout=stdout
            )

        running: list[subprocess.Popen[bytes]] = []
        nobody: AbstractContextManager[list[int]] = nullcontext([])
        with passing_on(running, signal.SIGKILL) if patient else nobody as heard:
            status, stopped_by = _run_to_end(start, running, heard)
            if not raw.exists():
                raise errors.ProgramError(
                    f"{program.path}: nothing was recorded; the recorder said why, or the loader"
                    " did not take it"
                )
            others, unordered = _finish_all(folder, areas, raw, output)
        return Outcome(output, others, status, stopped_by, unordered)


def _run_to_end(
    start: Callable[[], subprocess.Popen[bytes]],
    running: list[subprocess.Popen[bytes]],
    heard: list[int],
) -> tuple[int, int]:
    """Status of the program, and the signal that asked us to stop (0: none).

    Args:
        start: starts it.
        running: it is entered here.
        heard: signals that handlers of ours took.
    """
    child = start()
    running.append(child)
    try:
        status = wait_for(child)
    except KeyboardInterrupt:
        return child.returncode, signal.SIGINT
    return status, heard[0] if heard else 0


@contextmanager
def _workshop(output: Path) -> Iterator[Path]:
    """A folder beside the output where files grow; it goes, whatever happens."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".spanwise-", dir=output.absolute().parent))
    except OSError as error:
        raise errors.RecordingIOError(
            f"{output}: cannot write there: {error.strerror}; choose another place with -o"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _areas_folder(folder: Path) -> Iterator[Path]:
    """Where open blocks outlive the program: in memory if there is such a place, else `folder`."""
    try:
        place = Path(tempfile.mkdtemp(prefix="spanwise-", dir=_MEMORY))
    except OSError:
        yield folder
        return
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _finish_all(folder: Path, areas: Path, raw: Path, output: Path) -> tuple[tuple[Path, ...], str]:
    """Ordered recordings in place of the raw ones.

    Returns:
        The files beside the program's own. Why raw ones were put in place (no room for both on a
        full disk), or "".
    """
    unordered = ""
    finished = {raw: output}
    stem = output.name.removesuffix(".swt")
    for child in sorted(folder.glob("*.swt")):
        if child != raw and child.name.startswith(stem + "."):
            finished[child] = output.with_name(child.name)
    for path in finished:
        try:
            _salvage(path, areas, raw)
            finish(path, path)
        except errors.RecordingIOError as error:
            unordered = str(error)
    for path, place in finished.items():
        path.replace(place)
    return tuple(place for path, place in finished.items() if path != raw), unordered


def _salvage(path: Path, areas: Path, root: Path) -> None:
    """Takes in what a program had not written when it ended without a word.

    Args:
        path: its raw recording.
        areas: the folder of open blocks.
        root: the raw recording of the process that was started: it has the list of children.
    """
    unrecorded, recorded = _children_of(root) if path == root else (0, 0)
    check(
        lib.sw_trace_salvage(
            _lib.c_path(path), _lib.c_path(areas / f"{path.name}.areas"), unrecorded, recorded
        )
    )


def _children_of(raw: Path) -> tuple[int, int]:
    """Children that were not recorded, and that were, by the list that the recorder keeps.

    Each entry is a process id; the highest bit says that it was recorded. The first one counts.
    """
    try:
        entries = np.fromfile(raw.with_name(raw.name.removesuffix(".swt") + ".children"), "<u4")
    except OSError:
        return 0, 0
    own = Recording.open(raw, valid_prefix=True).info["pid"]
    _, first = np.unique(entries & 0x7FFFFFFF, return_index=True)
    kept = entries[first]
    kept = kept[(kept & 0x7FFFFFFF) != own]
    recorded = int((kept >> 31).sum())
    return len(kept) - recorded, recorded


def finish(raw: Path, output: Path) -> None:
    """Puts a raw recording in order. What a killed program left is read as far as it is whole.

    Raises:
        TraceFormatError, RecordingIOError: it cannot be read or written.
    """
    error: errors.SpanwiseError | None = None
    for flags in (0, int(lib.SW_TRACE_VALID_PREFIX)):
        error = _finish_once(raw, output, flags)
        if not isinstance(error, errors.TraceFormatError):
            break
    if error is not None:
        raise error


def _finish_once(raw: Path, output: Path, flags: int) -> errors.SpanwiseError | None:
    cancel = ffi.new("int *")

    def call() -> errors.SpanwiseError | None:
        status = lib.sw_trace_finish(
            _lib.c_path(raw), _lib.c_path(output), flags, cancel, ffi.NULL, ffi.NULL
        )
        return _lib.failure(status) if status != 0 else None

    return interruptible(call, cancel)
