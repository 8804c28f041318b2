# SPDX-License-Identifier: Apache-2.0
"""Recording a program: start it with the recorder preloaded, then put its events in order."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, overload

from spanwise import _lib, errors
from spanwise.recordings.outcome import Outcome
from spanwise.recordings.outputs import check_regular
from spanwise.recordings.preload import (
    passing_on,
    preload_of,
    python_variables,
    seen_from,
    wait_for,
    words_of,
)
from spanwise.recordings.programs import examine
from spanwise.recordings.temporary import temporary_recording
from spanwise.results.files import followed

if TYPE_CHECKING:
    from spanwise.recordings.recording import Recording
    from spanwise.recordings.recording_set import RecordingSet

RECORDER = "libspanwise-record.so"
_MEMORY = "/dev/shm"
STACKS_MAX = 128
STACKS = 8
"""Return addresses of a call site, unless asked otherwise."""


@overload
def record(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = ...,
    *,
    children: Literal[False] = ...,
    stacks: int = ...,
    keep_pymalloc: bool = ...,
    python_sites: bool = ...,
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
    stacks: int = ...,
    keep_pymalloc: bool = ...,
    python_sites: bool = ...,
    env: Mapping[str, str] | None = ...,
    cwd: str | os.PathLike[str] | None = ...,
    force: bool = ...,
) -> Recording | RecordingSet: ...
def record(
    argv: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    children: bool = False,
    stacks: int = STACKS,
    keep_pymalloc: bool = False,
    python_sites: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Recording | RecordingSet:
    """Runs a program and records every call of its malloc family.

    The counts are printed to stderr, in one line. KeyboardInterrupt ends the program (it has two
    seconds to end by itself) and is raised again once the recording of what ran is in place.

    Args:
        argv: program and arguments; the program's output goes where this process's goes.
        output: the recording; None: a file in the system's folder for temporary files that goes
            when this Python ends. What the process was before it called exec goes to STEM.PID.swt
            beside it.
        children: also record the processes that it starts, to STEM.PID.swt beside output.
        stacks: return addresses kept of each call, 0 to 128; 0: no call sites, which is quickest.
        keep_pymalloc: leave CPython its own allocator. Else a CPython program runs with
            PYTHONMALLOC=malloc, so that each of its objects is seen.
        python_sites: a call site of CPython 3.11 is the line of Python that runs, with its function
            and file, and its callers up to stacks of them; where no Python runs it is the
            return address as ever.
        env: the program's environment; None: that of this process.
        cwd: its working folder; None: that of this process.
        force: replace the output when it exists, and remove the recordings of other processes that
            an earlier run left next to it.

    Returns:
        The recording; with children a RecordingSet, the program's own recording first.

    Raises:
        InvalidError: the output exists, and force was not given; python_sites without call
            sites, or with keep_pymalloc.
        ProgramError: the program was not found, or cannot be recorded (statically linked,
            set-user-ID, of another machine).
        UnsupportedError: the recorder is not installed.
        OSError: the system refused to write or to start it.
    """
    path = Path(output) if output is not None else temporary_recording()
    if output is not None and path.is_file() and not force:
        raise errors.InvalidError(f"{path}: exists already; give another name, or force=True")
    outcome = _run_recorded(
        argv,
        path,
        children=children,
        stacks=stacks,
        keep_pymalloc=keep_pymalloc,
        python_sites=python_sites,
        env=env,
        cwd=cwd,
        force=force,
    )
    for line in outcome.lines():
        print(line, file=sys.stderr)
    if outcome.stopped_by:
        raise KeyboardInterrupt
    if children:
        return outcome.recordings()
    from spanwise.recordings.recording import Recording  # noqa: PLC0415  loaded by now

    return Recording.open(outcome.path)


def run_recorded(
    argv: Sequence[str | os.PathLike[str]],
    output: Path,
    *,
    children: bool = False,
    stacks: int = STACKS,
    keep_pymalloc: bool = False,
    python_sites: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdout: int | IO[Any] | None = None,
    patient: bool = False,
    force: bool = False,
) -> Outcome:
    """Records a program as `record` does, and prints nothing.

    Args:
        argv: as of `record`.
        output: the recording.
        children: as of `record`.
        stacks: as of `record`.
        keep_pymalloc: as of `record`.
        python_sites: as of `record`.
        env: as of `record`.
        cwd: as of `record`.
        stdout: the program's.
        patient: Ctrl-C is left to the program, whose end is waited for; a second one kills it.
            SIGTERM is passed on. Only in the main thread.
        force: remove the recordings of other processes that an earlier run left next to the
            output. The output itself is replaced in any case.

    Raises:
        KeyboardInterrupt: unless patient; the recording of what ran until then is in place.
    """
    outcome = _run_recorded(
        argv,
        output,
        children=children,
        stacks=stacks,
        keep_pymalloc=keep_pymalloc,
        python_sites=python_sites,
        env=env,
        cwd=cwd,
        stdout=stdout,
        patient=patient,
        force=force,
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
    python_sites: bool,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    stdout: int | IO[Any] | None = None,
    patient: bool = False,
    force: bool = False,
) -> Outcome:
    words = words_of(argv)
    _lib.c_path(output)
    check_regular(output)
    output = followed(output)
    stacks = _lib.as_index(stacks, "stacks", STACKS_MAX)
    if python_sites and (stacks == 0 or keep_pymalloc):
        other = "keep_pymalloc (--keep-pymalloc)" if keep_pymalloc else "stacks 0 (--stacks)"
        raise errors.InvalidError(f"python_sites (--python-sites) with {other}: give one of them")
    base = dict(os.environ if env is None else env)
    recorder = _lib.native_library(RECORDER)
    program = examine(seen_from(words[0], cwd), base.get("PATH"))
    variables = {
        **base,
        **python_variables(program, keep_pymalloc),
        "LD_PRELOAD": preload_of(recorder, base),
        "SPANWISE_RECORD_STACKS": str(stacks),
        "SPANWISE_RECORD_CHILDREN": str(int(children)),
        "SPANWISE_RECORD_PYTHON": str(int(python_sites)),
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
        no_handlers: AbstractContextManager[list[int]] = nullcontext([])
        with passing_on(running, signal.SIGKILL) if patient else no_handlers as heard:
            status, stopped_by = _run_to_end(start, running, heard)
            if not raw.exists():
                raise errors.ProgramError(
                    f"{program.path}: nothing was recorded; the recorder said why, or the loader"
                    " did not take it"
                )
            from spanwise.recordings.finish import finish_all  # noqa: PLC0415  loaded by now

            others, unordered = finish_all(folder, areas, raw, output, force=force)
        return Outcome(output, others, status, stopped_by, unordered, python_sites)


def _run_to_end(
    start: Callable[[], subprocess.Popen[bytes]],
    running: list[subprocess.Popen[bytes]],
    heard: list[int],
) -> tuple[int, int]:
    """Runs the program; returns its status and the signal that asked us to stop (0: none).

    Args:
        start: starts it.
        running: it is entered here.
        heard: signals that handlers of ours took.
    """
    child = start()
    running.append(child)
    try:
        status = wait_for(child, _load_what_follows)
    except KeyboardInterrupt:
        return child.returncode, signal.SIGINT
    return status, heard[0] if heard else 0


def _load_what_follows() -> None:
    """Imports what puts events in order while the program runs: numpy is slow to load."""
    importlib.import_module("spanwise.recordings.finish")
    importlib.import_module("spanwise.recordings.recording_set")


@contextmanager
def _workshop(output: Path) -> Iterator[Path]:
    """A folder beside the output in which files grow; it is removed in every case."""
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
