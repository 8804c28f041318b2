# SPDX-License-Identifier: Apache-2.0
"""Record a program: start it under the recorder, then order its events."""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, overload

from spanwise import _format, _lib, errors
from spanwise.recordings.programs import (
    examine,
    passing_on,
    preload_of,
    python_variables,
    seen_from,
    wait_for,
    words_of,
)
from spanwise.recordings.snapshot import taking_snapshots
from spanwise.results.files import check_regular, followed

if TYPE_CHECKING:
    from spanwise.recordings.history import History
    from spanwise.recordings.recording import Recording
    from spanwise.recordings.recording_set import RecordingSet


# --- temporary recordings -------------------------------------------------------------------------

_temporaries: list[tuple[int, Path]] = []


def temporary_recording() -> Path:
    """Create a new, empty file in the temporary directory."""
    handle, name = tempfile.mkstemp(prefix="spanwise-", suffix=".swt")
    os.close(handle)
    if not _temporaries:
        atexit.register(_remove_temporaries)
    _temporaries.append((os.getpid(), Path(name)))
    return Path(name)


def _remove_temporaries() -> None:
    for process, path in _temporaries:
        if process == os.getpid():
            with suppress(OSError):
                path.unlink()


_LINES_MAX = 3
_CHILDREN_MAX = 10
_COMMAND_MAX = 50
"""Lines on unrecorded memory, child processes, and characters of their commands to print."""

# --- results --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordResult:
    """The result of running a program under the recorder."""

    path: Path  # the recording of the program itself
    others: tuple[Path, ...]  # recordings of its children, and of the process before it called exec
    status: int  # exit status of the program; negative: the signal that ended it
    stopped_by: int = 0  # the signal that interrupted the run; 0: none
    unordered: str = ""  # why recordings were left unordered; "": they were ordered
    python_sites: bool = False  # whether lines of Python were requested
    sample_bytes: int = 0  # mean bytes between sample points; 0: all objects were recorded

    def recordings(self) -> RecordingSet:
        """Return the program's recording, then the others."""
        from spanwise.recordings.recording import Recording  # noqa: PLC0415  as the recorder does
        from spanwise.recordings.recording_set import RecordingSet  # noqa: PLC0415

        return RecordingSet(
            Recording.open(path, valid_prefix=bool(self.unordered))
            for path in (self.path, *self.others)
        )

    def histories(self) -> list[History]:
        """Return what is known of the program's recording, then of the others."""
        from spanwise.recordings.history import History  # noqa: PLC0415  as the recorder does
        from spanwise.recordings.sources import FileSource  # noqa: PLC0415

        return [
            History(FileSource(path, bool(self.unordered)), path=str(path), name=path.name)
            for path in (self.path, *self.others)
        ]

    def findings(self) -> list[str]:
        """Return what the recordings lack, and why; empty if nothing is missing."""
        gaps = [f"kept as it was recorded, not in order: {self.unordered}"] * bool(self.unordered)
        each = [(Path(str(one.path)).name, one) for one in self.histories()]
        if self.python_sites and not any(one.has_python_lines for _, one in each):
            gaps.append("no line of Python was seen: --python-sites needs CPython 3.9 to 3.14")
        from spanwise.recordings.summary import NO_EVENTS  # noqa: PLC0415  loaded by now

        ignored = NO_EVENTS if self.sample_bytes else None
        each_gap = ((name, gap) for name, one in each for gap in one.summary.gaps())
        return gaps + [f"{name}: {gap}" for name, gap in each_gap if gap != ignored]

    def outside(self) -> list[str]:
        """Return lines about heaps that bypass malloc, whose objects are not recorded."""
        each = self.histories()
        found = {
            f"{Path(one.program).name} has its own heap, {runtime}'s, which a recording of"
            " malloc does not see"
            for one in each
            if one.memory is None
            for runtime in one.runtimes
        }
        return sorted(found | ({one.missing for one in each} - {""}))

    def lines(self) -> list[str]:
        """Return the lines to print: how the program failed, what is missing, and the counts."""
        return [*self.failures(), self._counts(), *self._children()]

    def failures(self, kept: bool = True) -> list[str]:
        """Return the lines about how the program failed, and about what is missing."""
        found = []
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            rest = "; the recording of what ran until then is kept" if kept else ""
            found.append(f"ended after {name}{rest}")
        if self.status < 0:
            found.append(f"the program was ended by signal {-self.status}")
        elif self.status > 0:
            found.append(f"the program exited with {self.status}")
        outside = self.outside()
        more = [f"and of {len(outside) - _LINES_MAX:,} other processes"]
        outside = outside if len(outside) <= _LINES_MAX else outside[:_LINES_MAX] + more
        return [*found, *outside, *self.findings()]

    def _children(self) -> list[str]:
        """Return a table of the child processes with the highest peaks."""
        first, *others = self.histories()
        children = [one for one in others if one.info["pid"] != first.info["pid"]]
        largest = sorted(children, key=lambda one: -one.summary.peak_requested_bytes)
        rows = [
            (
                Path(str(one.path)).name,
                _format.size(one.summary.peak_requested_bytes),
                _format.shortened(" ".join(" ".join(one.arguments).split()), _COMMAND_MAX),
            )
            for one in largest[:_CHILDREN_MAX]
        ]
        if not rows:
            return []
        head = ("child", "peak requested", "command")
        more = len(children) - len(rows)
        return [
            _format.table(rows, head, indent="  ", names_last=True),
            *([f"  and {more:,} with lower peaks"] if more else []),
        ]

    def _counts(self) -> str:
        first, *others = self.histories()
        own = first.summary
        kinds = (("allocation", own.allocs), ("free", own.frees), ("reallocation", own.reallocs))
        counts = ", ".join(_format.plural(count, noun) for noun, count in kinds)
        sample = f"a sample of one point per {_format.size(self.sample_bytes)}"
        parts = [
            f"{_format.plural(own.events, 'event')} ({counts})",
            sample
            if self.sample_bytes
            else f"peak {_format.size(own.peak_requested_bytes)} requested",
            *([str(first.memory)] if first.memory else []),
            *([first.before] if first.before else []),
            *(f"{title}: {count:,}" for title, count in own.troubles()[:1] if own.dropped_calls),
        ]
        line = f"{self.path}: {', '.join(parts)}"
        children = [one for one in others if one.info["pid"] != first.info["pid"]]
        images = [one for one in others if one.info["pid"] == first.info["pid"]]
        for group, noun in ((images, "program after exec"), (children, "child")):
            events = _format.plural(sum(one.events for one in group), "event")
            line += f"; {_format.plural(len(group), noun)} recorded ({events})" if group else ""
        if own.children_unrecorded:
            line += f"; {_format.plural(own.children_unrecorded, 'child')} not recorded"
            line += "" if children or first.attached else " (--children records them)"
        return line


# --- recording ------------------------------------------------------------------------------------

RECORDER = "libspanwise-record.so"
_MEMORY = "/dev/shm"
STACKS_MAX = 128
LABEL_BYTES = 200
STACKS, PYTHON_STACKS = 16, 40
"""Default return addresses and lines of Python per call site, as in src/recorder/state.h."""
SAMPLE, SAMPLE_MAX = 512 << 10, 1 << 40
"""Default and largest mean bytes between sample points."""


@dataclass(frozen=True)
class RecordOptions:
    """Options of a recording.

    Attributes:
        stacks: return addresses or lines of Python per call, 0 to 128; None: STACKS addresses,
            PYTHON_STACKS lines.
        patient: pass Ctrl-C to the program and wait for its end; a second one kills it. SIGTERM is
            forwarded. SIGUSR1 takes a snapshot. Only in the main thread.
        force: remove the recordings of other processes that an earlier run left next to the output.
        watch: called while the program runs, with its process, its raw recording, and the directory
            of its open blocks; the program is waited for afterwards.
    """

    children: bool = False  # also record child processes
    stacks: int | None = None
    keep_pymalloc: bool = False  # let CPython use its own allocator
    python_sites: bool | None = None  # call sites of CPython are lines of Python, if possible
    sample_bytes: int = 0  # mean bytes between sample points; 0: record all objects
    label: str = ""  # stored in the recording, such as a version; at most 200 bytes
    env: Mapping[str, str] | None = None  # the program's environment; None: that of this process
    cwd: str | os.PathLike[str] | None = None  # its working folder; None: that of this process
    stdin: int | IO[Any] | None = None  # of the program; None: that of this process
    stdout: int | IO[Any] | None = None
    stderr: int | IO[Any] | None = None
    patient: bool = False
    force: bool = False
    watch: Callable[[subprocess.Popen[bytes], Path, Path], None] | None = None


@overload
def record(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = ...,
    *,
    children: Literal[False] = ...,
    stacks: int | None = ...,
    keep_pymalloc: bool = ...,
    python_sites: bool | None = ...,
    env: Mapping[str, str] | None = ...,
    cwd: str | os.PathLike[str] | None = ...,
    force: bool = ...,
) -> Recording: ...
@overload
def record(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = ...,
    *,
    children: bool = ...,
    stacks: int | None = ...,
    keep_pymalloc: bool = ...,
    python_sites: bool | None = ...,
    env: Mapping[str, str] | None = ...,
    cwd: str | os.PathLike[str] | None = ...,
    force: bool = ...,
) -> Recording | RecordingSet: ...
def record(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    children: bool = False,
    stacks: int | None = None,
    keep_pymalloc: bool = False,
    python_sites: bool | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Recording | RecordingSet:
    """Runs a program and records all its calls of the malloc family.

    The counts are printed to stderr on one line. KeyboardInterrupt ends the program (it has two
    seconds to exit by itself) and is raised again once the recording until then is written.

    Args:
        argv: program and arguments; it inherits the output streams.
        output: the recording; None: a file in the temporary directory, which is removed when this
            process exits.
        children: also record child processes, and each program that replaces a process by exec,
            to STEM.PID.swt next to output. Otherwise the output is of the last such program.
        stacks: return addresses or lines of Python per call, 0 to 128; None: 16 addresses, 40
            lines; 0: no call sites, which is fastest.
        keep_pymalloc: let CPython use its own allocator. By default it runs with
            PYTHONMALLOC=malloc, so that all its objects are recorded.
        python_sites: call sites of CPython 3.9 to 3.14 are the lines of Python that run, with
            function, file and callers. Where no Python runs, and in a free-threaded build, they
            are return addresses. False: return addresses everywhere, which costs less; None: lines,
            but with keep_pymalloc or stacks 0.
        env: the program's environment; None: that of this process.
        cwd: its working folder; None: that of this process.
        force: replace the output if it exists, and remove the recordings of other processes that
            an earlier run left next to it.

    Returns:
        The recording; with children a RecordingSet, the program's own recording first.

    Raises:
        InvalidError: the output exists, and force was not given; python_sites without call
            sites, or with keep_pymalloc.
        ProgramError: the program was not found, or cannot be recorded (statically linked,
            set-user-ID, of another architecture).
        UnsupportedError: the recorder is not installed.
        OSError: the system refused to write or to start it.
    """
    options = RecordOptions(
        children=children,
        stacks=stacks,
        keep_pymalloc=keep_pymalloc,
        python_sites=python_sites,
        env=env,
        cwd=cwd,
        force=force,
    )
    result = record_and_print(argv, output, options)
    if children:
        return result.recordings()
    from spanwise.recordings.recording import Recording  # noqa: PLC0415  loaded by now

    return Recording.open(result.path)


def record_and_print(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None,
    options: RecordOptions,
) -> RecordResult:
    """Record a program as `record` does, and print the counts."""
    path = Path(output) if output is not None else temporary_recording()
    if output is not None and path.is_file() and not options.force:
        raise errors.InvalidError(f"{path}: exists already; give another name, or force=True")
    result = _run(argv, path, options)
    for line in result.lines():
        print(line, file=sys.stderr)
    if result.stopped_by:
        raise KeyboardInterrupt
    return result


def run_recorded(
    argv: Sequence[str | os.PathLike[str]], output: Path, options: RecordOptions = RecordOptions()
) -> RecordResult:
    """Record a program as `record` does, and print nothing. An existing output is replaced."""
    result = _run(argv, output, options)
    if result.stopped_by and not options.patient:
        raise KeyboardInterrupt
    return result


def _run(
    argv: Sequence[str | os.PathLike[str]], output: Path, options: RecordOptions
) -> RecordResult:
    words = words_of(argv)
    _lib.c_path(output)
    check_regular(output)
    output = followed(output)
    depth = options.stacks
    stacks = None if depth is None else _lib.as_index(depth, "stacks", STACKS_MAX)
    can_have_lines = stacks != 0 and not options.keep_pymalloc
    lines = can_have_lines if options.python_sites is None else options.python_sites
    if lines and not can_have_lines:
        other = (
            "keep_pymalloc (--keep-pymalloc)" if options.keep_pymalloc else "stacks 0 (--stacks)"
        )
        raise errors.InvalidError(f"python_sites (--python-sites) with {other}: give one of them")
    base = dict(os.environ if options.env is None else options.env)
    recorder = _lib.native_library(RECORDER)
    program = examine(seen_from(words[0], options.cwd), base.get("PATH"))
    variables = {
        **base,
        **python_variables(program, options.keep_pymalloc),
        "LD_PRELOAD": preload_of(recorder, base),
        "SPANWISE_RECORD_CHILDREN": str(int(options.children)),
        "SPANWISE_RECORD_PYTHON": str(int(lines)),
    }
    variables.pop("SPANWISE_RECORD_PID", None)
    variables.pop("SPANWISE_RECORD_STACKS", None)
    variables.pop("SPANWISE_RECORD_SAMPLE", None)
    if options.sample_bytes:
        between = _lib.as_index(options.sample_bytes, "sample_bytes", SAMPLE_MAX)
        variables["SPANWISE_RECORD_SAMPLE"] = str(between)
    variables["SPANWISE_RECORD_LABEL"] = checked_label(options.label)
    if stacks is not None:
        variables["SPANWISE_RECORD_STACKS"] = str(stacks)
    with workshop(output) as folder, areas_folder(folder) as areas:
        raw = folder / output.name
        variables["SPANWISE_RECORD_FILE"] = str(raw)
        variables["SPANWISE_RECORD_AREAS"] = str(areas)
        executable = Path(program.path).absolute()

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                words,
                executable=executable,
                env=variables,
                cwd=options.cwd,
                stdin=options.stdin,
                stdout=options.stdout,
                stderr=options.stderr,
            )

        running: list[subprocess.Popen[bytes]] = []
        no_handlers: AbstractContextManager[list[int]] = nullcontext([])
        handlers = passing_on(running, signal.SIGKILL) if options.patient else no_handlers
        shots = taking_snapshots(running, raw, areas, output)
        with shots if options.patient else nullcontext(_nothing) as ready, handlers as heard:

            def meanwhile() -> None:
                ready()
                if options.watch is not None:
                    options.watch(running[0], raw, areas)

            status, stopped_by = _run_to_end(start, running, heard, meanwhile)
            if not raw.exists():
                raise errors.ProgramError(
                    f"{program.path}: nothing was recorded; the recorder said why, or the loader"
                    " did not take it"
                )
            from spanwise.recordings.finish import finish_all  # noqa: PLC0415  loaded by now

            others, unordered = finish_all(
                folder, areas, raw, output, children=options.children, force=options.force
            )
        return RecordResult(
            output,
            others,
            status,
            stopped_by,
            unordered,
            bool(options.python_sites),
            options.sample_bytes,
        )


def checked_label(label: str) -> str:
    """Return a label that a recording can have; raises InvalidError."""
    if "\0" in label or len(label.encode()) > LABEL_BYTES:
        raise errors.InvalidError(f"label {label!r}: give at most {LABEL_BYTES} bytes, none 0")
    return label


def _run_to_end(
    start: Callable[[], subprocess.Popen[bytes]],
    running: list[subprocess.Popen[bytes]],
    heard: list[int],
    ready: Callable[[], None],
) -> tuple[int, int]:
    """Runs the program; returns its status and the signal that interrupted us (0: none).

    `ready` is called once the modules are loaded that order events, while the program runs, since
    numpy loads slowly.
    """
    child = start()
    running.append(child)
    try:
        status = wait_for(child, partial(_load_and, ready))
    except KeyboardInterrupt:
        return child.returncode, signal.SIGINT
    return status, heard[0] if heard else 0


def _load_and(ready: Callable[[], None]) -> None:
    importlib.import_module("spanwise.recordings.finish")
    importlib.import_module("spanwise.recordings.recording_set")
    ready()


def _nothing() -> None:
    """No snapshots are taken."""


def _remove(folder: Path) -> None:
    """Remove a folder of files, also if the system refuses descriptors, which rmtree needs."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@contextmanager
def workshop(output: Path) -> Iterator[Path]:
    """Yield a directory next to the output for unfinished files; it is always removed."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".spanwise-", dir=output.absolute().parent))
    except OSError as error:
        message = f"{output}: cannot write there: {error.strerror}; give another output"
        missing = isinstance(error, FileNotFoundError)
        kind = errors.RecordingNotFoundError if missing else errors.RecordingIOError
        raise kind(message, errno=error.errno, filename=output) from None
    try:
        yield folder
    finally:
        _remove(folder)


@contextmanager
def areas_folder(folder: Path) -> Iterator[Path]:
    """Yield a directory for open blocks, which outlive the program: in memory, or else `folder`."""
    try:
        place = Path(tempfile.mkdtemp(prefix="spanwise-", dir=_MEMORY))
    except OSError:
        yield folder
        return
    try:
        yield place
    finally:
        _remove(place)
