# SPDX-License-Identifier: Apache-2.0
"""Find a program, check that a library can be preloaded into it, and whether it is CPython."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

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
    """The header of an ELF file.

    Attributes:
        bits: 32 or 64.
        machine: its e_machine number.
        interpreter: path of the loader; "" for a statically linked program.
        needed: names of the needed libraries.
    """

    bits: int
    machine: int
    interpreter: str
    needed: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A program that accepts a preloaded library.

    Attributes:
        path: the file to start.
        binary: the file that runs: the program, or the interpreter of a script.
        may_be_python: it is a CPython whose objects can come from malloc, which those of a
            free-threaded one cannot; or a script that may start one.
    """

    path: str
    binary: str
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
    "PHP": "record it with USE_ZEND_ALLOC=0, and PHP uses malloc",
    "Ruby": "ObjectSpace.memsize_of_all shows the objects in its pages",
    "Erlang": "start it with +Mea min, and Erlang uses malloc",
    "Go": "convert its heap profile: spanwise convert heap.pb.gz",
    "CPython": "record it with PYTHONMALLOC=malloc",
}
"""Advice about the heap of a runtime."""
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
    """The allocator that a program brings itself, in words; "": it uses the C library's malloc.

    A program that cannot be found or examined is taken to use malloc.
    """
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
        raise ProgramError(
            f"{path}: cannot be {use.done}: statically linked, the loader never sees"
            f" LD_PRELOAD{way}"
        )
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
