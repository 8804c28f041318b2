# SPDX-License-Identifier: Apache-2.0
"""The cases of a benchmark (programs with inputs), and the allocators that serve them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanwise import errors
from spanwise.measure.replayer import PEERS, allocator_named
from spanwise.measure.running import find_preload
from spanwise.recordings.launch import words_of
from spanwise.results.files import is_text, reading
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
    """An allocator that serves a case.

    Attributes:
        name: of the allocator.
        library: its file, preloaded; "": nothing is.
        sha256: hash of that, or "".
        own: whether it is spanwise's malloc, which writes a ledger.
        predicted_bytes: the peak resident bytes of a simulated heap; None: unknown.
    """

    name: str
    library: str
    sha256: str
    own: bool = False
    predicted_bytes: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its runs, in addition to the case's."""
        if self.name in GUARDED:
            return {"SPANWISE_PROTECT": self.name}
        return {"MALLOC_ARENA_MAX": "1"} if self.name == ONE_ARENA else {}


def read_cases(path: str | os.PathLike[str]) -> list[BenchCase]:
    """Read a JSON list of cases: objects with program, input, argv, environment, folder.

    Only argv is required. A relative folder is relative to the current directory.
    """
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
