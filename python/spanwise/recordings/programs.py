# SPDX-License-Identifier: Apache-2.0
"""Find a program, check that a library can be preloaded into it, start it, forward signals."""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from spanwise import errors
from spanwise.errors import ProgramError, ProgramNotFoundError
from spanwise.recordings.elf import ElfError, ElfFile
from spanwise.results.files import READING_ERRORS

_MACHINES = {3: "x86", 40: "Arm", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}
_PYTHON = re.compile(r"^python[0-9.]*[a-z]*$")
_LIBPYTHON = re.compile(r"^libpython3[0-9.]*[a-z]*\.so")
_FREE_THREADED = b" free-threading build"  # of sys.version
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh", "busybox")
_SCRIPT_DEPTH = 4


@dataclass(frozen=True)
class Elf:
    """The header of an ELF file."""

    bits: int  # 32 or 64
    machine: int  # its e_machine number
    interpreter: str  # path of the loader; "" for a statically linked program
    needed: tuple[str, ...]  # names of the needed libraries


@dataclass(frozen=True)
class Program:
    """A program that accepts a preloaded library.

    Attributes:
        may_be_python: it is a CPython whose objects can come from malloc, which those of a free-
            threaded one cannot; or a script that may start one.
    """

    path: str  # the file to start
    binary: str  # the file that runs: the program, or the interpreter of a script
    may_be_python: bool


class Use(NamedTuple):
    """Words for error messages, such as "recorded" and "the recorder"."""

    done: str
    library: str


RECORDING = Use("recorded", "the recorder")


def examine(name: str, search_path: str | None = None, use: Use = RECORDING) -> Program:
    """Finds a program and checks that a library can be preloaded into it."""
    path = _find(name, search_path)
    binary, words = path, [path]
    for _ in range(_SCRIPT_DEPTH):
        words = _interpreter_line(binary)
        if not words:
            break
        binary = _resolve_env(words, search_path, path)
    elf = read_elf(binary)
    if elf is None:
        raise ProgramError(f"{path}: cannot be {use.done}: neither an ELF program nor a script")
    _check_elf(path, elf, use)
    _check_privileges(path, binary, use)
    scripted = Path(binary).name in _SHELLS and binary != path
    python = _is_python(binary, elf) and not _is_free_threaded(binary, elf)
    return Program(path, binary, scripted or python)


def _find(name: str, search_path: str | None) -> str:
    if "\0" in name:
        raise ProgramNotFoundError(f"{name!r}: program not found; the name holds a NUL character")
    path = shutil.which(name, path=search_path)
    if path is not None:
        return path
    if os.sep in name and Path(name).is_dir():
        raise ProgramError(f"{name}: is a directory, not a program", "INVALID")
    if os.sep in name and Path(name).exists():
        raise ProgramError(f"{name}: is not executable; chmod +x it", "INVALID")
    where = "check the path" if os.sep in name else "give its path, or a name that is in PATH"
    raise ProgramNotFoundError(
        f"{name}: program not found; {where}", errno=errno.ENOENT, filename=name
    )


# --- scripts --------------------------------------------------------------------------------------


def _interpreter_line(path: str) -> list[str]:
    """Return the words after #! of a script; an empty list for other files."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(256)
    except OSError:
        return []  # executable but not readable: starting it will show whether it runs
    if not head.startswith(b"#!"):
        return []
    return os.fsdecode(head[2:].split(b"\n", 1)[0]).split()


def _resolve_env(words: list[str], search_path: str | None, script: str) -> str:
    """Return the interpreter of a #! line; that of `env NAME` is NAME."""
    if Path(words[0]).name == "env":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if names:
            found = shutil.which(names[0], path=search_path)
            if found is None:
                raise _no_interpreter(script, names[0])
            return found
    if not Path(words[0]).exists():
        raise _no_interpreter(script, words[0])
    return words[0]


def _no_interpreter(script: str, name: str) -> ProgramNotFoundError:
    message = f"{script}: its interpreter {name} was not found"
    return ProgramNotFoundError(message, errno=errno.ENOENT, filename=name)


# --- ELF ------------------------------------------------------------------------------------------


def read_elf(path: str) -> Elf | None:
    """Return the header of an ELF file; None for another file, or if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            ident = file.read(64)
        if ident[:4] != b"\x7fELF":
            return None
        bits = {1: 32, 2: 64}.get(ident[4], 0)
        machine = struct.unpack_from("<H" if ident[5] == 1 else ">H", ident, 18)[0]
        if bits != 64 or ident[5] != 1:
            return Elf(bits, machine, "?", ())
        elf = ElfFile(path, sections=False)
        return Elf(bits, machine, elf.interpreter, tuple(elf.needed()))
    except (OSError, ElfError, *READING_ERRORS):
        return None


_RUNTIMES = (
    (re.compile(r"libjvm\.so"), "the Java virtual machine"),
    (re.compile(r"libcoreclr\.so"), ".NET"),
    (re.compile(r"libmonosgen-2\.0\.so"), "Mono"),
    (re.compile(r"node$|nodejs$|libnode\.so"), "Node.js"),
    (re.compile(r"php[0-9.]*$|php-cgi|php-fpm|libphp[0-9.]*\.so"), "PHP"),
    (re.compile(r"ruby[0-9.]*$|libruby[-0-9.]*\.so"), "Ruby"),
    (re.compile(r"beam(\.smp)?$"), "Erlang"),
)
ADVICE = {
    "the Java virtual machine": "use -XX:NativeMemoryTracking=summary with jcmd",
    "Node.js": "node --heap-prof shows the JavaScript heap",
    "PHP": "the extension memprof shows which PHP code holds it; with USE_ZEND_ALLOC=0 PHP uses"
    " malloc, whose C callers are recorded",
    "Ruby": "ObjectSpace.memsize_of_all shows the objects in its pages",
    "Erlang": "start it with +Mea min, and Erlang uses malloc",
    "Go": "convert its heap profile: spanwise convert heap.pb.gz",
    "CPython": "record it without --keep-pymalloc, and CPython uses malloc",
}
"""Advice about the heap of a runtime."""
MALLOC_SWITCHES = {"PHP": "USE_ZEND_ALLOC=0"}
"""What makes a runtime allocate with malloc."""
_ALLOCATORS = (
    (re.compile(r"libjemalloc"), "jemalloc"),
    (re.compile(r"libtcmalloc"), "tcmalloc"),
    (re.compile(r"libmimalloc"), "mimalloc"),
    (re.compile(r"libsnmalloc"), "snmalloc"),
    (re.compile(r"librpmalloc"), "rpmalloc"),
    (re.compile(r"libspanwise-malloc"), "spanwise"),
)
_GO_SECTION = ".go.buildinfo"
_GO_WAY = (
    "; of a Go program, convert a heap profile (net/http/pprof: /debug/pprof/heap), or an execution"
    " trace made with GODEBUG=traceallocfree=1: spanwise convert FILE -o FILE.swt"
)


def runtime_of(path: str) -> str:
    """Return the runtime in a program or library that has its own heap; "": none is known.

    Go writes its build information into a section of all binaries, even stripped ones. A
    free-threaded CPython, which always uses mimalloc, has it in its version string. Other
    runtimes are recognized by their libraries.
    """
    name = Path(path).name
    if _PYTHON.match(name) or _LIBPYTHON.match(name):
        return "free-threaded CPython" if _holds(path, _FREE_THREADED) else ""
    for pattern, runtime in _RUNTIMES:
        if pattern.match(name):
            return runtime
    try:
        return "Go" if ElfFile(path).has(_GO_SECTION) else ""
    except (OSError, ElfError):
        return ""


def allocator_of(modules: Iterable[str]) -> str:
    """The allocator that serves malloc in a process with these modules; else the C library's."""
    names = [Path(path).name for path in modules]
    for pattern, allocator in _ALLOCATORS:
        if any(map(pattern.match, names)):
            return allocator
    return "glibc"


def own_allocator(program: str, search_path: str | None = None) -> str:
    """The allocator that a program brings itself, in words; "": it uses the C library's malloc."""
    try:
        binary = examine(program, search_path).binary
    except ProgramError:
        return ""
    binary = str(Path(binary).resolve())
    runtime = runtime_of(binary)
    if runtime == "PHP" and os.environ.get("USE_ZEND_ALLOC") == "0":
        return ""
    if runtime:
        crash = "; some other preloaded mallocs crash in it" if runtime == "PHP" else ""
        return f"{runtime}'s own heap, which a preloaded malloc does not replace{crash}"
    if is_python_file(binary):
        return "CPython's pymalloc; the other runs get PYTHONMALLOC=malloc"
    elf = read_elf(binary)
    linked = allocator_of(elf.needed if elf is not None else ())
    return f"{linked}, which it is linked with" if linked != "glibc" else ""


def is_python_file(path: str) -> bool:
    """Return whether the file's name is that of CPython or of its library."""
    name = Path(path).name
    return _PYTHON.match(name) is not None or _LIBPYTHON.match(name) is not None


def _check_elf(path: str, elf: Elf, use: Use) -> None:
    own = read_elf("/proc/self/exe")
    if own is not None and (elf.bits, elf.machine) != (own.bits, own.machine):
        theirs = f"{elf.bits}-bit {_MACHINES.get(elf.machine, f'machine {elf.machine}')}"
        ours = f"{own.bits}-bit {_MACHINES.get(own.machine, f'machine {own.machine}')}"
        raise ProgramError(f"{path}: cannot be {use.done}: it is {theirs}, {use.library} is {ours}")
    if not elf.interpreter:
        way = _GO_WAY if use == RECORDING and runtime_of(path) == "Go" else ""
        why = "has no loader" if path.startswith("process ") else "the loader never sees LD_PRELOAD"
        raise ProgramError(f"{path}: cannot be {use.done}: statically linked, {why}{way}")
    if Path(elf.interpreter).name.startswith("ld-musl"):
        raise ProgramError(
            f"{path}: cannot be {use.done}: linked against musl, {use.library} needs glibc"
        )


def _check_privileges(path: str, binary: str, use: Use) -> None:
    """Check that exec does not change user or group, since the loader then ignores LD_PRELOAD."""
    for file in {path, binary}:
        status = Path(file).stat()
        user = status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid()
        group = status.st_mode & stat.S_ISGID and status.st_gid != os.getegid()
        if user or group:
            kind = "set-user-ID" if user else "set-group-ID"
            raise ProgramError(
                f"{file}: cannot be {use.done}: {kind} program, the loader ignores LD_PRELOAD"
            )


def _is_python(binary: str, elf: Elf) -> bool:
    names = (Path(binary).name, Path(binary).resolve().name)
    libraries = any(name.startswith("libpython3") for name in elf.needed)
    return libraries or any(_PYTHON.match(name) for name in names)


def _is_free_threaded(binary: str, elf: Elf) -> bool:
    """Return whether a CPython is free-threaded: its objects always come from mimalloc."""
    library = any(re.match(r"libpython3\.[0-9]+t", name) for name in elf.needed)
    return library or _holds(binary, _FREE_THREADED)


def _holds(path: str, words: bytes) -> bool:
    """Return whether a file contains these bytes; False if it cannot be read."""
    try:
        with Path(path).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as raw:
            return raw.find(words) >= 0
    except (OSError, ValueError):
        return False


# --- running processes ----------------------------------------------------------------------------

_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_CAP_SYS_PTRACE = 19
_YAMA_WAY = "as root, or after: sudo sysctl kernel.yama.ptrace_scope=0"


def check_running(pid: int) -> os.stat_result:
    """Check that a debugger may attach to a process, and that it can load the recorder.

    Returns:
        The status of its folder in /proc: user and group.
    """
    who, folder = f"process {pid}", Path(f"/proc/{pid}")
    try:
        status = folder.stat()
        fields = _fields_of(folder)
    except OSError:
        raise ProgramNotFoundError(f"{who}: no such process", errno=errno.ESRCH) from None
    own = _fields_of(Path("/proc/self"))
    if fields.get("Tgid") == own.get("Tgid"):
        raise ProgramError(f"{who}: is this command itself", "INVALID")
    may_trace = int(own.get("CapEff", "0"), 16) >> _CAP_SYS_PTRACE & 1
    if not may_trace and status.st_uid != os.geteuid():
        raise ProgramError(f"{who}: belongs to another user: run spanwise as that user, or as root")
    if fields.get("TracerPid", "0") != "0":
        raise ProgramError(
            f"{who}: process {fields['TracerPid']} traces it already (a debugger, or strace)"
        )
    _check_yama(who, bool(may_trace))
    if int(fields.get("Seccomp_filters", "0")) > int(own.get("Seccomp_filters", "0")):
        raise ProgramError(
            f"{who}: has a filter of system calls (seccomp), which may end it for those of the"
            " recorder"
        )
    try:
        contained = (folder / "ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
        contained = contained or (folder / "root").readlink() != Path("/")
        (folder / "exe").readlink()
    except OSError as error:
        why = "it is a thread of the kernel, has ended, or hides its memory"
        raise ProgramError(f"{who}: cannot be read: {error.strerror}; {why}") from None
    if contained:
        raise ProgramError(
            f"{who}: runs in a container, with other paths: run spanwise in the container"
        )
    elf = read_elf(f"/proc/{pid}/exe")
    if elf is None:
        raise ProgramError(f"{who}: its program cannot be read")
    _check_elf(who, elf, RECORDING)
    return status


def _fields_of(folder: Path) -> dict[str, str]:
    lines = (folder / "status").read_text("utf-8", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _check_yama(who: str, may_trace: bool) -> None:
    try:
        scope = int(_YAMA.read_text("ascii"))
    except (OSError, ValueError):
        return
    if scope >= 3:
        raise ProgramError(f"{who}: kernel.yama.ptrace_scope is 3: nobody may attach to a process")
    if scope > 0 and not may_trace:
        raise ProgramError(f"{who}: kernel.yama.ptrace_scope is {scope}: run spanwise {_YAMA_WAY}")


# --- running --------------------------------------------------------------------------------------


def words_of(argv: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return program and arguments as text."""
    if isinstance(argv, str | bytes) or not argv:
        raise errors.InvalidError("argv must be a list: the program, then its arguments")
    return [os.fspath(word) for word in argv]


def seen_from(name: str, cwd: str | os.PathLike[str] | None) -> str:
    """Resolve a relative path with a slash against the program's working directory."""
    return str(Path(cwd, name)) if cwd is not None and os.sep in name else name


def python_variables(program: Program, keep_pymalloc: bool) -> dict[str, str]:
    """Return the variables that make a CPython program allocate all objects with malloc."""
    return {"PYTHONMALLOC": "malloc"} if program.may_be_python and not keep_pymalloc else {}


def preload_of(library: Path, env: Mapping[str, str]) -> str:
    """Return LD_PRELOAD with our library before those of an environment."""
    return ":".join(filter(None, (str(library), env.get("LD_PRELOAD"))))


def wait_for(child: subprocess.Popen[bytes], meanwhile: Callable[[], object] = lambda: None) -> int:
    """Calls `meanwhile`, then waits for a program and returns its exit status."""
    try:
        meanwhile()
        return child.wait()
    except BaseException:
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise


@contextmanager
def passing_on(
    children: list[subprocess.Popen[bytes]], second: signal.Signals = signal.SIGTERM
) -> Iterator[list[int]]:
    """Handles Ctrl-C, SIGTERM and SIGHUP while programs run, which start with default handlers.

    A terminal sends Ctrl-C to the program as well, which may handle it. So the first one does
    nothing here, the second ends the program, the third kills it. SIGTERM and SIGHUP may come to us
    alone and are forwarded. A signal that was ignored before (nohup) stays ignored. Once all
    programs have ended, the second Ctrl-C raises KeyboardInterrupt, to cancel work on their output.
    """
    heard: list[int] = []
    late = 0

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal late
        heard.append(number)
        if children and all(child.poll() is not None for child in children):
            late += 1
            if late > 1:
                raise KeyboardInterrupt
        elif heard.count(number) > 1:
            _send(children, second if heard.count(number) == 2 else signal.SIGKILL)

    def terminated(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        _send(children, number)

    handlers = {signal.SIGINT: interrupted, signal.SIGTERM: terminated, signal.SIGHUP: terminated}
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield heard
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _send(children: list[subprocess.Popen[bytes]], number: int) -> None:
    for child in children:
        child.send_signal(number)


# --- shells ---------------------------------------------------------------------------------------
#
# The exit status of `a | b` is that of b alone, so a run would seem good although `a` crashed.

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_PIPEFAIL = ("-o", "pipefail")
_LINE_BYTES = 256
"""Bytes of a script to read for its #! line."""


PIPE_CLOSED = 128 + signal.SIGPIPE
"""Status of a pipeline whose reader ended first (`job | head`), which is not a failure."""


def with_pipefail(
    argv: Sequence[str], search_path: str | None, folder: str | os.PathLike[str]
) -> list[str]:
    """Return the command with `pipefail` set if it is a shell or shell script with a pipeline."""
    words = _with_interpreter(list(argv), search_path, folder)
    if Path(words[0]).name not in SHELLS or not _has_pipeline(words, folder):
        return list(argv)
    if _knows_pipefail(words[0], search_path):
        return [words[0], *_PIPEFAIL, *words[1:]]
    if _knows_pipefail("bash", search_path):
        return ["bash", "--posix", *_PIPEFAIL, *words[1:]]
    return list(argv)


def _with_interpreter(
    words: list[str], search_path: str | None, folder: str | os.PathLike[str]
) -> list[str]:
    """Return the words that the kernel runs for a script; other commands are unchanged."""
    relative = os.sep in words[0]
    path = words[0] if relative else shutil.which(words[0], path=search_path) or words[0]
    try:
        with Path(folder, path).open("rb") as file:
            head = file.read(_LINE_BYTES)
    except OSError:
        return words
    if not head.startswith(b"#!"):
        return words
    line = os.fsdecode(head[2:].split(b"\n", 1)[0]).split(maxsplit=1)
    if line and Path(line[0]).name == "env" and len(line) > 1 and " " not in line[1].strip():
        line = [line[1].strip()]
    return [*line, path, *words[1:]] if line else words


def _has_pipeline(words: list[str], folder: str | os.PathLike[str]) -> bool:
    """Return whether "|" is in the words or in the script that they name, perhaps in a string."""
    if any("|" in word for word in words):
        return True
    for word in words[1:]:
        with suppress(OSError, ValueError):
            if b"|" in Path(folder, word).read_bytes():
                return True
            break  # the script; its arguments follow
    return False


@functools.cache
def _knows_pipefail(shell: str, search_path: str | None) -> bool:
    found = shutil.which(shell, path=search_path)
    if found is None:
        return False
    words = [found, *_PIPEFAIL, "-c", ":"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
