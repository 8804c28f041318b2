# SPDX-License-Identifier: Apache-2.0
"""The cases of a benchmark (programs with inputs), the allocators that serve them, and one run."""

from __future__ import annotations

import array
import fcntl
import functools
import hashlib
import json
import os
import select
import signal
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spanwise import _lib, errors
from spanwise.measure.replays import PEERS, allocator_named
from spanwise.measure.running import find_preload
from spanwise.recordings.programs import PIPE_CLOSED, with_pipefail, words_of
from spanwise.results.files import is_text, reading
from spanwise.results.jobs import ctrl_c_heard, raise_what_came
from spanwise.results.rows import Result
from spanwise.sweeps.tasks import file_sha256

PLAIN, SPANWISE, GLIBC, FITTED = "plain", "spanwise", "glibc", "fitted"
"""PLAIN is the program as its users run it: nothing is preloaded, and CPython keeps pymalloc."""
ONE_ARENA = "one-arena"
"""The program as its users run it, but with one arena of glibc for all threads."""
GUARDED = ("hardened", "paranoid")
"""spanwise's malloc with these protections (SPANWISE_PROTECT)."""
PRELOADED = (SPANWISE, *PEERS)
EVERYBODY = (PLAIN, *PRELOADED)
"""The default allocators; FITTED is added if a table was built, the others if named."""

SEEDS = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
"""Variables that make programs allocate the same way each time."""

_KEYS = {"program", "input", "argv", "environment", "folder"}


@dataclass(frozen=True)
class BenchCase(Result):
    """A program with one of its inputs.

    Attributes:
        program: its name.
        input: name of the input.
        argv: program and arguments.
        environment: variables in addition to those of this process.
        folder: the working directory of its runs, absolute; default: the current directory. Files
            that a run writes there stay for the next run.
    """

    program: str
    input: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = field(default_factory=os.getcwd)

    def to_dict(self) -> dict[str, Any]:
        """Return the case as a dict, as case files store it."""
        return {
            "program": self.program,
            "input": self.input,
            "argv": list(self.argv),
            "environment": dict(self.environment),
            "folder": self.folder,
        }

    @property
    def hash(self) -> str:
        """Hash of command, environment and folder."""
        parts = [list(self.argv), sorted(self.environment.items()), self.folder]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Server:
    """An allocator that serves a case."""

    name: str  # of the allocator
    library: str  # its file, preloaded; "": nothing is
    sha256: str  # hash of that, or ""
    own: bool = False  # whether it is spanwise's malloc, which writes a ledger
    predicted_bytes: int | None = None  # the peak resident bytes of a simulated heap; None: unknown

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its runs, in addition to the case's."""
        if self.name in GUARDED:
            return {"SPANWISE_PROTECT": self.name}
        return {"MALLOC_ARENA_MAX": "1"} if self.name == ONE_ARENA else {}


def read_cases(path: str | os.PathLike[str]) -> list[BenchCase]:
    """Read a JSON list of cases: objects with program, input, argv, environment, folder."""
    with reading(f"{os.fspath(path)}: not JSON", error=errors.InvalidError):
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(value, list) or not value:
        raise errors.InvalidError(f"{os.fspath(path)}: must be a list of at least one case")
    return [_case(each, f"{os.fspath(path)}: case {i}") for i, each in enumerate(value, 1)]


def _case(value: Any, place: str) -> BenchCase:
    if not isinstance(value, dict) or "argv" not in value:
        raise errors.InvalidError(f"{place}: must be an object with argv")
    unknown = sorted(set(value) - _KEYS)
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise errors.InvalidError(f"{place}: unknown key {unknown[0][:40]!r}; the keys are {known}")
    argv, environment = value["argv"], value.get("environment", {})
    if not isinstance(argv, list) or not argv or not all(map(_is_word, argv)):
        raise errors.InvalidError(f"{place}: argv must be a list of words")
    if not isinstance(environment, dict) or not all(
        _is_word(name) and name and "=" not in name and _is_word(one)
        for name, one in environment.items()
    ):
        raise errors.InvalidError(f"{place}: environment must be an object of texts")
    names = value.get("program"), value.get("input")
    if not all(one is None or _is_word(one) for one in names):
        raise errors.InvalidError(f"{place}: program and input must be texts")
    folder = value.get("folder", ".")
    if not _is_word(folder):
        raise errors.InvalidError(f"{place}: folder must be a text")
    return case_of(argv, *names, environment, folder)


def _is_word(value: Any) -> bool:
    """Return whether the value is text without NUL, so that a program can take it."""
    return is_text(value) and "\0" not in value


def case_of(
    argv: Sequence[str | os.PathLike[str]],
    program: str | None = None,
    input: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] = ".",
) -> BenchCase:
    """Return a case; its default names are those of the program and its arguments."""
    words = words_of(argv)
    called = Path(words[0]).name if program is None else str(program)
    rest = " ".join(" ".join(words[1:]).split()) if input is None else str(input)
    short = rest if len(rest) <= 40 else f"{rest[:37]}..."
    name = short if input is None else rest
    return BenchCase(
        called, name, tuple(words), dict(environment or {}), str(Path(folder).absolute())
    )


def check_cases(cases: Sequence[BenchCase]) -> None:
    """Raise InvalidError if there is no case, or if two different cases have one name."""
    if not cases:
        raise errors.InvalidError("no case to run; give at least one")
    seen: dict[tuple[str, str], str] = {}
    for case in cases:
        key = (case.program, case.input)
        if seen.setdefault(key, case.hash) != case.hash:
            raise errors.InvalidError(
                f"two different cases are called {', '.join(filter(None, key))}; rename one"
            )


def variables_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment in which a case is recorded, as in its runs."""
    return {**os.environ, **SEEDS, **environment}


# --- allocators -----------------------------------------------------------------------------------


def find_servers(names: Iterable[str]) -> tuple[list[Server], dict[str, str]]:
    """Find allocators by name; for each missing one, say how to install it."""
    found: list[Server] = []
    missing: dict[str, str] = {}
    for name in dict.fromkeys(names):
        if name in (PLAIN, ONE_ARENA):
            found.append(Server(name, "", ""))
            continue
        if name == SPANWISE or name in GUARDED:
            found.append(server_of(name, find_preload(None, None), own=True))
            continue
        wanted = allocator_named(name)
        # The program may be linked with another malloc.
        path = loaded_library("libc.so.6" if name == GLIBC else wanted.preload)
        if path is None:
            missing[name] = wanted.missing
        else:
            found.append(server_of(wanted.label, path))
    return found, missing


def built_server(name: str, folder: Path, predicted_bytes: int | None = None) -> Server:
    """Return the `Server` of a build's preloaded malloc."""
    return server_of(name, find_preload(folder, None), own=True, predicted_bytes=predicted_bytes)


def server_of(name: str, library: Path, **known: Any) -> Server:
    """Return the `Server` of a shared library; keyword arguments go to `Server`."""
    return Server(name, str(library), file_sha256(str(library)), **known)


@functools.cache
def loaded_library(name: str) -> Path | None:
    """Return the file that the dynamic linker preloads for a name, or None.

    A check is needed because the linker only warns about a missing library.
    """
    script = 'LD_PRELOAD="$0" exec cat /proc/self/maps'
    done = subprocess.run(
        ["/bin/sh", "-c", script, name],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": ""},
    )
    stem = Path(name).name.partition(".so")[0]
    for line in done.stdout.splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.is_absolute() and path.name.partition(".so")[0] == stem:
            return path
    return None


# --- one run --------------------------------------------------------------------------------------

RUSAGE_WRAPPER = "spanwise-rusage"
CHUNK_BYTES = 1 << 20
"""Size of the pipe and of one read, so that the command rarely waits."""
POLL_S = 0.05
"""Interval of checks for the end of a command, since a remaining child may hold its stdout open."""

_SERVER = " (to compare a server, run a script that starts, loads and stops it)"


@dataclass(frozen=True)
class Usage:
    """The resource usage of a command."""

    elapsed_ns: int  # from its start to its end
    cpu_ns: int  # user and system time of the command and its children
    rss_bytes: int  # peak RSS of its largest process
    anonymous_bytes: int  # its anonymous part in the largest sample
    page_faults: int  # of the same processes as cpu_ns
    error: str = ""  # "" for exit status 0, else how it ended
    output_sha256: str = ""  # SHA-256 of its stdout; "" if the wrapper did not report


def launch(
    argv: Sequence[str],
    preload: str,
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str],
    timeout_s: float,
) -> Usage:
    """Run a command to its end; hash and drop its stdout."""
    program = _lib.native_library(RUSAGE_WRAPPER)
    words = with_pipefail(argv, env.get("PATH"), cwd)
    kept = {name: value for name, value in env.items() if name != "LD_PRELOAD"}
    with (
        tempfile.NamedTemporaryFile(prefix="spanwise-usage-") as report,
        tempfile.TemporaryFile() as complaint,
        ctrl_c_heard(),  # not between the start of the program and `try`
    ):
        child = subprocess.Popen(
            [program, report.name, preload, *words],
            cwd=cwd,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            bufsize=0,
            stderr=complaint,
            start_new_session=True,
        )
        try:
            output_sha256 = _hash_output(child, timeout_s)
        except subprocess.TimeoutExpired:
            return Usage(0, 0, 0, 0, 0, f"did not end within {timeout_s:g} s{_SERVER}")
        finally:
            _end(child)
        complaint.seek(0)
        lines = complaint.read().decode("utf-8", "replace").strip().splitlines()
        allowed = (0, PIPE_CLOSED) if words != list(argv) else (0,)
        usage = _read(Path(report.name), lines[-1] if lines else "", allowed)
        return replace(usage, output_sha256=output_sha256)


@contextmanager
def dropped_output() -> Iterator[int]:
    """Yield a descriptor for stdout whose output is read and dropped.

    Programs such as grep and tar do less work if stdout is /dev/null.
    """
    end, descriptor = os.pipe()

    def drain() -> None:
        with open(end, "rb", buffering=0) as pipe:  # noqa: PTH123  a descriptor
            while pipe.read(CHUNK_BYTES):
                pass

    threading.Thread(target=drain, name="spanwise-drain", daemon=True).start()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _hash_output(child: subprocess.Popen[bytes], timeout_s: float) -> str:
    """Read stdout until the child has ended; return its SHA-256."""
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    with suppress(OSError):  # the system may refuse a larger pipe
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
    found = hashlib.sha256()
    deadline = time.monotonic() + timeout_s
    readable = select.poll()
    readable.register(pipe, select.POLLIN)
    while child.poll() is None:
        raise_what_came()
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise subprocess.TimeoutExpired(child.args, timeout_s)
        if readable.poll(1000 * min(left_s, POLL_S)):
            chunk = os.read(pipe, CHUNK_BYTES)
            found.update(chunk)
            if not chunk:  # closed: the wrapper is about to end
                with suppress(subprocess.TimeoutExpired):
                    child.wait(min(left_s, POLL_S))
    # The pipe has the rest. Later output of a remaining process is not the command's.
    left = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, left)
    found.update(os.read(pipe, left[0]))
    return found.hexdigest()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the session if it still runs, and close the pipe."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _read(report: Path, complaint: str, allowed: tuple[int, ...]) -> Usage:
    """Read the wrapper's report."""
    try:
        kind, *words = report.read_text(encoding="ascii").split()
        number, wall_ns, user_us, system_us, peak_kb, anonymous_kb, faults = map(int, words)
    except ValueError:
        return Usage(0, 0, 0, 0, 0, complaint or "the wrapper reported nothing")
    error = ""
    if kind == "signal":
        error = f"signal {number} ended it"
    elif number not in allowed:
        error = f"ended with {number}"
    if error and complaint:
        error = f"{error}: {complaint[:200]}"
    cpu_ns = 1000 * (user_us + system_us)
    return Usage(wall_ns, cpu_ns, peak_kb << 10, anonymous_kb << 10, faults, error)
