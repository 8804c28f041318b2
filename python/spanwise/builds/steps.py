# SPDX-License-Identifier: Apache-2.0
"""The steps of a build: sources, generator, compiler, linker. Needs `cc`, but no CMake.

Flags and sources must equal those of cmake/SpanwiseLibrary.cmake and SpanwiseTargets.cmake.

Each program has its own process group, so that a compiler can be killed with its children. So
Ctrl-C and SIGTERM reach only the build, which ends all programs: a handler stores the signal
(results/jobs.py), and `run_steps` polls for it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spanwise.errors import SpanwiseError
from spanwise.results.jobs import raise_what_came

Report = Callable[[str], object]
"""A function that is called with a line of text before each step."""

COMMON_FLAGS = (
    *("-std=gnu11", "-O3", "-DNDEBUG", "-DSW_CHECK=1", "-fPIC", "-fvisibility=hidden"),
    *("-fno-semantic-interposition", "-pthread"),
)
PRELOAD_FLAGS = (
    *("-DSW_API=", "-ftls-model=initial-exec"),
    *("-fno-builtin-malloc", "-fno-builtin-calloc", "-fno-builtin-realloc", "-fno-builtin-free"),
    *(
        "-DSW_SPECIALISED=0",
        "-DSW_COLLECTABLE=0",
        "-DSW_GUARDABLE=0",
        "-DSW_TOUCH_MAPS=0",
        "-DSW_OTHER_TABLES=0",
        "-ffunction-sections",
        "-fdata-sections",
    ),
)
SHORT_FLAG = "-Os"
SHORT_SOURCES = (
    *("preload/report.c", "preload/options.c", "preload/info.c", "preload/account.c"),
    *("preload/slow.c", "guard/guard.c", "guard/sample.c", "guard/sampling.c", "guard/report.c"),
    *(
        "guard/heaps.c",
        "base/fail.c",
        "ds/meta.c",
        "sizeclass/table.c",
        "inspect/verify.c",
        "inspect/audit_lists.c",
    ),
    *("inspect/map.c", "inspect/ledger.c", "page/space.c", "page/purge.c", "heap/cache.c"),
    *("heap/registry.c", "heap/trim.c", "heap/heap.c", "heap/checks.c", "heap/thread.c"),
    *("ds/handle.c", "os/linux/fault.c", "os/linux/descriptors.c", "os/linux/memory.c"),
    *("page/windows.c", "os/linux/modules.c", "os/linux/copy.c"),
)
"""Code that runs at the start or end of processes and threads, or only in tracked heaps, is
compiled for size to reduce RSS."""
NO_TABLES_FLAG = "-fno-asynchronous-unwind-tables"
NO_TABLES_SOURCES = (
    *("preload/report.c", "preload/options.c", "preload/account.c", "inspect/verify.c"),
    *("inspect/audit_lists.c", "inspect/map.c", "sizeclass/table.c", "heap/checks.c"),
    *("heap/trim.c", "page/space.c", "page/purge.c", "ds/meta.c"),
)
"""No recorded call stack and no function of the program passes through these, so they have no
unwind tables."""
SHARED_FLAGS = (
    *("-shared", "-pthread", "-Wl,--exclude-libs,ALL", "-Wl,-z,now", "-Wl,-z,relro"),
    *("-Wl,-z,defs", "-Wl,-z,nodelete"),
)
PRELOAD_LINK_FLAGS = ("-static-libgcc", "-Wl,--gc-sections")
_FLOOR = ("base", "os/linux", "ds", "sizeclass", "gen", "page", "span", "heap", "inspect", "guard")
_NOT_CORE = ("os/none", "preload", "recorder", "replay", "rusage_wrapper")


# --- programs -------------------------------------------------------------------------------------

_STEP_SECONDS = 600
_GRACE_SECONDS = 2
_POLL_SECONDS = 0.02


class BuildError(SpanwiseError, RuntimeError):
    """A build failed; no output was written. The message names the step and the fix."""


@dataclass(frozen=True)
class Step:
    """A program to run."""

    words: Sequence[object]  # program and arguments
    what: str  # the step's name in messages
    env: dict[str, str] | None = None  # its environment; None: that of this process


def run_step(words: Sequence[object], what: str, env: dict[str, str] | None = None) -> str:
    """Run a program of a build; return its standard output."""
    return run_steps([Step(words, what, env)], 1)[0]


def run_steps(steps: Sequence[Step], jobs: int) -> list[str]:
    """Run programs, up to `jobs` in parallel; the first failure, or Ctrl-C, ends all."""
    waiting, running = deque(enumerate(steps)), dict[int, _Running]()
    outputs = [""] * len(steps)
    try:
        while waiting or running:
            raise_what_came()
            while waiting and len(running) < jobs:
                place, step = waiting.popleft()
                running[place] = _Running(step)
            ended = [place for place, one in running.items() if one.has_ended()]
            for place in ended:
                outputs[place] = running.pop(place).output()
            if not ended:
                time.sleep(_POLL_SECONDS)
    except BaseException:
        _end([one.child for one in running.values()])
        raise
    return outputs


class _Running:
    """A program in its own process group, so that its children end with it."""

    def __init__(self, step: Step) -> None:
        words = [str(word) for word in step.words]
        if shutil.which(words[0], path=(step.env or os.environ).get("PATH")) is None:
            raise BuildError(f"{step.what}: {words[0]}: there is no such program")
        self._what = step.what
        self._deadline = time.monotonic() + _STEP_SECONDS
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  stdout, stderr
        self.child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self._files[0],
            stderr=self._files[1],
            env=step.env,
            start_new_session=True,
        )

    def has_ended(self) -> bool:
        """Return whether it has ended; raise BuildError once it has taken too long."""
        if self.child.poll() is None and time.monotonic() > self._deadline:
            raise BuildError(f"{self._what}: did not end within {_STEP_SECONDS} s")
        return self.child.returncode is not None

    def output(self) -> str:
        """Return its standard output; raise BuildError if it failed."""
        texts = []
        for file in self._files:
            with file:
                file.seek(0)
                texts.append(file.read().decode("utf-8", "replace"))
        status = self.child.returncode
        if status != 0:
            raise BuildError(f"{self._what}: {_error_line(texts[1]) or f'exit {status}'}")
        return texts[0]


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """End programs and their children with SIGTERM, or with SIGKILL after two seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)
        deadline = time.monotonic() + _GRACE_SECONDS
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(deadline - time.monotonic(), 0))
        if all(child.returncode is not None for child in children):
            return


def _error_line(complaint: str) -> str:
    """Return the line of a compiler's output that has the error."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    errors = (line for line in lines if re.search(r"\b(error|undefined|No space)\b", line))
    return next(errors, lines[-1] if lines else "")


# --- the compiler ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiler:
    """A C compiler."""

    words: tuple[str, ...]  # program and leading options
    version: str  # the first line of its --version

    @classmethod
    def find(cls, name: str | None) -> Compiler:
        """Return the named compiler, or else $CC, cc, gcc or clang."""
        wanted = [name] if name else [os.environ.get("CC") or "cc", "gcc", "clang"]
        for one in wanted:
            words = shlex.split(one)
            found = shutil.which(words[0]) if words else None
            if found is None:
                continue
            words = [found, *words[1:]]
            if "__STDC__" not in _output([*words, "-E", "-dM", "-x", "c", os.devnull]):
                raise BuildError(
                    f"{one}: is not a C compiler; install gcc or clang, or name one with --cc"
                )
            return cls(tuple(words), (_output([*words, "--version"]).splitlines() or [""])[0])
        what = f"{name}: no such C compiler" if name else "no C compiler was found"
        raise BuildError(f"{what}; install gcc or clang, or name one with --cc")

    def tool(self, name: str) -> str:
        """Return the path of a program that belongs to the compiler, such as ar."""
        path = run_step([*self.words, f"-print-prog-name={name}"], name).strip()
        found = shutil.which(path or name)
        if found is None:
            raise BuildError(f"{name}: not found; install binutils")
        return found


def _output(words: Sequence[str]) -> str:
    """Return the output of a program; "" if it fails."""
    try:
        return run_step(words, words[0])
    except BuildError:
        return ""


def source_root() -> Path:
    """Return the root of the C sources: in the installed package, or the checkout."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_source", package.parents[1]):
        if (root / "src/heap/heap.h").is_file() and (root / "scripts/sizeclasses.py").is_file():
            return root
    raise BuildError(f"{package / '_source'}: sources not found; reinstall the wheel")


# --- what is compiled -----------------------------------------------------------------------------


def generate(root: Path, table_file: Path, cutoff: int | None, out: Path) -> list[str]:
    """Run the generator with all its proofs; return the lines of the proofs."""
    script = root / "scripts/sizeclasses.py"
    command = [sys.executable, "-B", script, "--table", table_file, "-o", out]
    command += [] if cutoff is None else ["--cutoff", str(cutoff)]
    run_step(command, "generator")
    source = next(out.glob("table_*.c")).read_text(encoding="utf-8")
    head = source.split("*/", 2)[1]
    text = re.sub(r"\n \*\s{6,}", " ", head)
    return re.findall(r"Proved:\s+(.*)", text)


def place_headers(root: Path, gen: Path, include: Path) -> None:
    """Copy the public headers, with the inline code of the new table."""
    shutil.copytree(root / "include", include)
    shutil.copy(gen / "fast.h", include / "spanwise/gen/fast.h")


def sources(root: Path, rooms: Sequence[str], identifier: str) -> list[Path]:
    """Return the C files of folders of src/, except generated files that the new table replaces."""
    found = [path for room in rooms for path in sorted((root / "src" / room).glob("*.c"))]
    replaced = {f"table_{identifier}.c", f"paths_{identifier}.c"}
    return [path for path in found if path.parent.name != "gen" or path.name not in replaced]


def core_rooms(root: Path, recordings: bool) -> tuple[str, ...]:
    """Return the library's folders; without recordings only those of the heap."""
    if not recordings:
        return _FLOOR
    source = root / "src"
    rooms = {path.parent.relative_to(source).as_posix() for path in source.glob("**/*.c")}
    return tuple(sorted(rooms.difference(_NOT_CORE)))


PRELOAD_ROOMS = (*_FLOOR, "preload")


def zstd_words(compiler: Compiler, scratch: Path) -> list[str] | None:
    """Return the flags that link zstd, statically if possible; None without its headers."""
    probe = scratch / "probe.c"
    probe.write_text("#include <zstd.h>\nint main(void) { return ZSTD_versionNumber() == 0; }\n")
    for words in (["-l:libzstd.a"], ["-lzstd"]):
        try:
            run_step([*compiler.words, probe, "-o", scratch / "probe", *words], "zstd")
        except BuildError:
            continue
        return words
    return None


# --- compiling ------------------------------------------------------------------------------------


def compile_all(
    compiler: Compiler, files: Sequence[Path], flags: Sequence[str], out: Path, jobs: int
) -> list[Path]:
    """Compile files into the new folder `out`, up to `jobs` at once; return the objects."""
    out.mkdir()
    made = [out / f"{path.parent.name}-{path.stem}.o" for path in files]
    steps = []
    for path, to in zip(files, made, strict=True):
        name = f"{path.parent.name}/{path.name}"
        own = [SHORT_FLAG] if name in SHORT_SOURCES else []
        own += [NO_TABLES_FLAG] if name in NO_TABLES_SOURCES else []
        words = [*compiler.words, *COMMON_FLAGS, *flags, *own, "-c", path, "-o", to]
        steps.append(Step(words, f"compiling {name}"))
    run_steps(steps, jobs)
    return made
