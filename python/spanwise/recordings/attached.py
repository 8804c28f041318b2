# SPDX-License-Identifier: Apache-2.0
"""Record a program that runs already, for a while: gdb lets it load the recorder."""

from __future__ import annotations

import importlib
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from spanwise import _lib, errors
from spanwise.errors import ProgramError
from spanwise.recordings.elf import ElfError, ElfFile
from spanwise.recordings.programs import check_running, is_python_file
from spanwise.recordings.recorder import (
    RECORDER,
    SAMPLE_MAX,
    STACKS_MAX,
    RecordResult,
    areas_folder,
    checked_label,
    workshop,
)
from spanwise.results.files import check_regular, followed

_ENTRY = "spanwise_record_attach"
_GDB_SECONDS = 15
"""Time for gdb, which waits until a thread of the program may call dlopen."""
_ANSWER_SECONDS = 10
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class AttachOptions:
    """Options of a recording of a running program.

    Attributes:
        seconds: length of the window; None: until Ctrl-C, SIGTERM, or the end of the program.
        stacks: as in RecordOptions.
        python_sites: None: lines of Python if it runs with PYTHONMALLOC=malloc.
        force: remove the recordings of other processes that an earlier run left next to the output.
    """

    seconds: float | None = None
    stacks: int | None = None
    python_sites: bool | None = None
    sample_bytes: int = 0  # mean bytes between sample points; 0: record all objects
    label: str = ""  # as in RecordOptions
    force: bool = False


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|min|h)?")
_SCALES = {"ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600}


def parse_duration(word: str) -> float:
    """Parse a length of time; a number alone is in seconds."""
    match = _DURATION.fullmatch(word.strip())
    if match is None or float(match[1]) == 0:
        raise errors.InvalidError(f"time {word!r}: give a number of seconds, or 500ms, 60s, 5m, 1h")
    return float(match[1]) * _SCALES[match[2] or "s"]


def record_running(
    pid: int, output: Path, options: AttachOptions = AttachOptions()
) -> RecordResult:
    """Records the calls of a running program from now on; it goes on afterwards.

    Ctrl-C, SIGTERM and SIGHUP end the recording; only in the main thread.

    Raises:
        ProgramError: the process cannot be recorded; the message says why.
        UnsupportedError: the recorder is not installed, or gdb is not.
    """
    _lib.c_path(output)
    check_regular(output)
    output = followed(output)
    stacks = options.stacks
    depth = None if stacks is None else _lib.as_index(stacks, "stacks", STACKS_MAX)
    between = _lib.as_index(options.sample_bytes, "sample_bytes", SAMPLE_MAX)
    library = _lib.native_library(RECORDER).resolve()
    target = _Target.of(pid, library)
    lines = target.lines_possible if options.python_sites is None else options.python_sites
    with workshop(output) as folder, areas_folder(folder) as areas:
        raw = folder / output.name
        given = {
            "SPANWISE_RECORD_FILE": str(raw),
            "SPANWISE_RECORD_AREAS": str(areas),
            "SPANWISE_RECORD_PYTHON": str(int(lines and depth != 0)),
            "SPANWISE_RECORD_SAMPLE": str(between),
            "SPANWISE_RECORD_LABEL": checked_label(options.label),
            **({} if depth is None else {"SPANWISE_RECORD_STACKS": str(depth)}),
        }
        with _hearing() as heard:
            _Window(target, areas, given, library).record(folder, heard, options.seconds)
        from spanwise.recordings.finish import finish_all  # noqa: PLC0415  loaded by now

        others, unordered = finish_all(
            folder, areas, raw, output, children=False, force=options.force
        )
        stopped_by = next((number for number in heard if number != signal.SIGINT), 0)
        wants_lines = bool(options.python_sites)
        return RecordResult(output, others, 0, stopped_by, unordered, wants_lines, between)


@contextmanager
def _hearing() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGHUP instead of ending; a second Ctrl-C raises."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in heard:
            raise KeyboardInterrupt
        heard.append(number)

    before = {}
    with suppress(ValueError):  # not the main thread
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, hear)
    try:
        yield heard
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


# --- the process ----------------------------------------------------------------------------------


class _Mapping(NamedTuple):
    start: int
    offset: int
    path: str


@dataclass(frozen=True)
class _Target:
    """A process that can be recorded.

    Attributes:
        dlopen: address of the function; likewise dlerror.
        mallocs: addresses of all functions malloc and free, of which it uses some.
        lines_possible: it is a CPython whose objects come from malloc.
    """

    pid: int
    user: int
    group: int
    dlopen: int
    dlerror: int
    mallocs: tuple[int, ...]
    lines_possible: bool

    @classmethod
    def of(cls, pid: int, library: Path) -> _Target:
        """Examine a process."""
        status = check_running(pid)
        try:
            maps = list(_mappings(pid))
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            program = str(Path(f"/proc/{pid}/exe").readlink())
        except OSError as error:
            raise ProgramError(f"process {pid}: cannot be read: {error.strerror}") from None
        preloads = [word for word in words if word.startswith(b"LD_PRELOAD=")]
        if any(RECORDER.encode() in word for word in preloads):
            raise ProgramError(f"process {pid}: is being recorded already, since it was started")
        functions = _functions(maps, ("dlopen", "dlerror", "malloc", "free"), library)
        if "dlopen" not in functions or "malloc" not in functions:
            raise ProgramError(
                f"process {pid}: dlopen or malloc was not found in its libraries; they may have"
                " been replaced on disk since it started: restart it"
            )
        return cls(
            pid,
            status.st_uid,
            status.st_gid,
            functions["dlopen"][0],
            functions["dlerror"][0],
            tuple(functions["malloc"] + functions.get("free", [])),
            is_python_file(program) and b"PYTHONMALLOC=malloc" in words,
        )

    def lives(self) -> bool:
        """Return whether the process still runs; a zombie does not."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text("ascii", "replace")
        except OSError:
            return False
        return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def _mappings(pid: int) -> Iterator[_Mapping]:
    """Yield the first mapping of each file of the process."""
    seen = set()
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape").splitlines():
        place, _, offset, _, _, *path = line.split(maxsplit=5)
        if path and path[0].startswith("/") and path[0] not in seen:
            seen.add(path[0])
            yield _Mapping(int(place.partition("-")[0], 16), int(offset, 16), path[0])


def _functions(maps: list[_Mapping], names: tuple[str, ...], library: Path) -> dict[str, list[int]]:
    """Return the addresses of the exported functions of these names, in all modules."""
    found: dict[str, list[int]] = {}
    for one in maps:
        if Path(one.path).name.startswith("ld-") or one.path == str(library):
            continue
        try:
            file = ElfFile(one.path)
            base = file.address_of(one.offset)
            for name, address in file.exports(names).items():
                if base is not None:
                    found.setdefault(name, []).append(one.start - base + address)
        except (OSError, ElfError):
            continue  # a data file
    return found


# --- gdb ------------------------------------------------------------------------------------------
#
# A thread that gdb lets call dlopen must not be inside malloc, which dlopen calls. So it is one
# that waits in a system call that malloc does not make; or, if there is none, the next one that
# calls malloc or free. All other threads run during the call. Nothing is read while the program is
# stopped: no symbols, and the file of the program before.

_X86_CALLS = (0, 7, 23, 34, 35, 43, 45, 47, 61, 128, 130, 208, 230, 232, 247, 270, 271, 281, 288)
_X86_MORE = (299, 426, 441)
_ARM_CALLS = (4, 22, 63, 72, 73, 95, 101, 115, 133, 137, 202, 207, 212, 242, 243, 260, 426, 441)
_WAITS = {
    "x86_64": ("$orig_rax", _X86_CALLS + _X86_MORE, "$orig_rax == 202 && ((int) $rsi & 127) == 9"),
    "aarch64": (
        "*(unsigned int *) ($pc - 4) == 0xd4000001 ? (long) $x8 : -1",
        _ARM_CALLS,
        "$sw_call == 98 && ((int) $x1 & 127) == 9",
    ),
}
"""By machine: the system call that a thread is in; read, poll, epoll_wait, accept, nanosleep, ...;
and a wait for a condition variable or for the end of a thread (FUTEX_WAIT_BITSET), but not for a
lock."""

_SCRIPT = """\
set confirm off
set pagination off
set width 0
set language c
set unwindonsignal on
set $sw_thread = 0
define sw_look
  if $sw_thread == 0
    set $sw_call = {call}
    if {waits}
      set $sw_thread = $_thread
    end
  end
end
file {program}
attach {pid}
handle all nostop noprint pass
sw_look
if $sw_thread == 0
  thread apply all -ascending sw_look
end
if $sw_thread != 0
  thread $sw_thread
  set $sw_ready = 1
else
{breaks}
  continue
  delete breakpoints
  set $sw_ready = {at_break}
end
if $sw_ready == 0
  printf "spanwise busy\\n"
else
  set $sw_stack = $sp
  set $sp = ((unsigned long) $sp - 16384) & ~15
  set $sw_words = (unsigned long) $sp + 64
  restore {words} binary $sw_words
  set $sw_handle = ((unsigned long (*)(unsigned long, int)) {dlopen})($sw_words, 2)
  if $sw_handle != 0
    set $sw_entry = *(unsigned long *) $sw_handle + {entry}
    set $sw_status = ((int (*)(unsigned long)) $sw_entry)($sw_words + {second})
    printf "spanwise status %d\\n", $sw_status
  else
    printf "spanwise refused %s\\n", ((char *(*)(void)) {dlerror})()
  end
  set $sp = $sw_stack
end
detach
"""

_OPTIONS = (
    *(
        "-nx",
        "-q",
        "-batch",
        "--readnever",
        "-iex",
        "set auto-load off",
        "-iex",
        "set auto-solib-add off",
    ),
    *("-iex", "set debug-file-directory /nonexistent"),
)
_BUSY = 16  # EBUSY


def _find_gdb() -> str:
    found = shutil.which("gdb")
    if found is None:
        raise errors.UnsupportedError(
            "gdb was not found, which lets a running program load the recorder; install the package"
            " gdb (apt install gdb, dnf install gdb)"
        )
    return found


def _script(target: _Target, words: Path, library: Path, entry: int) -> str:
    call, numbers, more = _WAITS[os.uname().machine]
    listed = " || ".join(f"$sw_call == {number}" for number in numbers)
    return _SCRIPT.format(
        call=call,
        waits=f"{listed} || ({more})",
        program=f"/proc/{target.pid}/exe",
        pid=target.pid,
        breaks="\n".join(f"  tbreak *{address}" for address in target.mallocs),
        at_break=" || ".join(f"(unsigned long) $pc == {address}" for address in target.mallocs),
        words=words,
        dlopen=target.dlopen,
        dlerror=target.dlerror,
        entry=entry,
        second=len(os.fsencode(library)) + 1,
    )


def _run_gdb(script: Path) -> str:
    """Run gdb; return its output. It is never killed, because that would end the program too."""
    gdb = _find_gdb()
    child = subprocess.Popen(
        [gdb, *_OPTIONS, "-x", str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "DEBUGINFOD_URLS": "", "LC_ALL": "C"},
        start_new_session=True,
    )
    for _ in range(3):
        try:
            return child.communicate(timeout=_GDB_SECONDS)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
    raise ProgramError(f"gdb (process {child.pid}) does not end; it may hold the program stopped")


def _check_answer(pid: int, answer: str) -> None:
    """Raise ProgramError unless the program has started the recorder."""
    status = re.search(r"^spanwise status (-?\d+)$", answer, re.MULTILINE)
    refused = re.search(r"^spanwise refused (.*)$", answer, re.MULTILINE)
    if status is not None and int(status[1]) == 0:
        return
    if status is not None and int(status[1]) == _BUSY:
        raise ProgramError(f"process {pid}: is being recorded already")
    if status is not None:
        raise ProgramError(f"process {pid}: the recorder refuses: {os.strerror(int(status[1]))}")
    if refused is not None:
        raise ProgramError(f"process {pid}: cannot load the recorder: {refused[1]}")
    if "spanwise busy" in answer:
        raise ProgramError(
            f"process {pid}: no thread waited for input or called malloc within {_GDB_SECONDS} s;"
            " try again"
        )
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    wrong = [line for line in lines if "ptrace" in line or "rror" in line] or lines[-1:]
    raise ProgramError(f"process {pid}: gdb cannot attach: {wrong[0] if wrong else 'no answer'}")


# --- the window -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Window:
    """A recording under way; the files by which it is controlled are in the folder of areas."""

    target: _Target
    folder: Path
    given: Mapping[str, str]
    library: Path

    def record(self, raw_folder: Path, heard: list[int], seconds: float | None) -> None:
        """Records until the time is over, a signal was heard, or the program ends."""
        entry = ElfFile(self.library).exports((_ENTRY,)).get(_ENTRY)
        if entry is None:
            raise errors.UnsupportedError(f"{self.library}: is of another version; reinstall it")
        options = "".join(f"{name}={value}\0" for name, value in self.given.items())
        (self.folder / "options").write_bytes(os.fsencode(options))
        words, script = self.folder / "words", self.folder / "script"
        words.write_bytes(os.fsencode(self.library) + b"\0" + os.fsencode(self.folder) + b"\0")
        script.write_text(_script(self.target, words, self.library, entry), "utf-8")
        os.mkfifo(self.folder / "control", 0o600)
        self._give(raw_folder)
        keeper = os.open(self.folder / "control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check_answer(self.target.pid, _run_gdb(script))
            self._wait_for_file("begun")
            writer = os.open(self.folder / "control", os.O_WRONLY | os.O_CLOEXEC)
        finally:
            os.close(keeper)
        why = (self.folder / "begun").read_text("utf-8", "replace")
        try:
            if not why:
                self._watch(writer, heard, seconds)
        finally:
            os.close(writer)
        if why:
            raise ProgramError(
                f"process {self.target.pid}: cannot create {self.given['SPANWISE_RECORD_FILE']}:"
                f" {why}"
            )
        if self.target.lives():
            self._wait_for_file("ended")

    def _give(self, raw_folder: Path) -> None:
        """Let a program of another user write into our folders."""
        if self.target.user == os.geteuid():
            return
        for path in {raw_folder, self.folder, *self.folder.iterdir()}:
            os.chown(path, self.target.user, self.target.group)

    def _watch(self, writer: int, heard: list[int], seconds: float | None) -> None:
        end = None if seconds is None else time.monotonic() + seconds
        importlib.import_module("spanwise.recordings.finish")
        importlib.import_module("spanwise.recordings.recording_set")
        poll = select.poll()
        poll.register(writer, 0)  # POLLERR: the program has closed its end
        while not heard and not (self.folder / "ended").exists() and self.target.lives():
            left = _LOOK_SECONDS if end is None else min(_LOOK_SECONDS, end - time.monotonic())
            if left <= 0 or poll.poll(left * 1000):
                return

    def _wait_for_file(self, name: str) -> None:
        """Wait for an answer of the recorder; the program may have ended, or called exec."""
        end = time.monotonic() + _ANSWER_SECONDS
        while not (self.folder / name).exists() and self.target.lives() and self._is_loaded():
            if time.monotonic() > end:
                raise ProgramError(
                    f"process {self.target.pid}: the recorder in it does not answer; it may be"
                    " stopped (kill -CONT)"
                )
            time.sleep(_LOOK_SECONDS / 10)

    def _is_loaded(self) -> bool:
        with suppress(OSError):
            return any(one.path == str(self.library) for one in _mappings(self.target.pid))
        return False
