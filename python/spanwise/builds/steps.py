# SPDX-License-Identifier: Apache-2.0
"""The steps of a build: sources, generator, compiler, linker. Needs `cc`, but no CMake.

Flags and sources must equal those of cmake/SpanwiseLibrary.cmake and SpanwiseTargets.cmake.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spanwise.builds.objects import ObjectCache
from spanwise.builds.programs import BuildError, Step, run_step, run_steps

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
        "-DSW_TOUCH_MAPS=0",
        "-DSW_OTHER_TABLES=0",
        "-ffunction-sections",
        "-fdata-sections",
    ),
)
SHORT_FLAG = "-Os"
SHORT_SOURCES = (
    *(
        "preload/start.c",
        "preload/report.c",
        "preload/json.c",
        "preload/options.c",
        "preload/info.c",
    ),
    *("preload/account.c", "preload/slow.c", "heap/options.c", "sizeclass/table.c", "heap/fork.c"),
    *("inspect/verify.c", "inspect/touched.c", "inspect/audit_lists.c", "inspect/audit_span.c"),
    *("inspect/map.c", "inspect/ledger.c", "inspect/walk.c", "heap/misuse.c", "heap/heap.c"),
    *("heap/checks.c", "heap/trim.c", "page/checks.c", "page/purge.c", "page/give_back.c"),
    *("page/space.c", "base/fail.c", "os/linux/thread_state.c"),
)
"""Code that runs once, or only in tracked heaps, is compiled for size to reduce RSS."""
SHARED_FLAGS = (
    *("-shared", "-pthread", "-Wl,--exclude-libs,ALL", "-Wl,-z,now", "-Wl,-z,relro"),
    *("-Wl,-z,defs", "-Wl,-z,nodelete"),
)
PRELOAD_LINK_FLAGS = ("-static-libgcc", "-Wl,--gc-sections")
_FLOOR = ("base", "os/linux", "ds", "sizeclass", "gen", "page", "span", "heap", "inspect")
_NOT_CORE = ("os/none", "preload", "recorder", "replay", "rusage_wrapper")


@dataclass(frozen=True)
class Compiler:
    """A C compiler.

    Attributes:
        words: program and leading options.
        version: the first line of its --version.
    """

    words: tuple[str, ...]
    version: str

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


def _named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _own_flags(path: Path) -> list[str]:
    return [SHORT_FLAG] if _named(path) in SHORT_SOURCES else []


def compile_all(
    compiler: Compiler,
    files: Sequence[Path],
    flags: Sequence[str],
    out: Path,
    *,
    jobs: int,
    cache: ObjectCache,
    generated: Sequence[Path],
) -> list[Path]:
    """Copy an object of every file from the cache, or compile it, into `out`."""
    out.mkdir()
    made = [out / f"{path.parent.name}-{path.stem}.o" for path in files]
    steps, missed = [], []
    for path, to in zip(files, made, strict=True):
        words = [*COMMON_FLAGS, *flags, *_own_flags(path)]
        key = cache.key(path, words, generated)
        if cache.fetch(key, to):
            continue
        rule = to.with_suffix(".d")
        # -MD also lists system headers, which the object depends on.
        words += ["-MD", "-MT", "object", "-MF", str(rule)]
        steps.append(
            Step([*compiler.words, *words, "-c", path, "-o", to], f"compiling {_named(path)}")
        )
        missed.append((key, to, rule))
    run_steps(steps, jobs)
    for key, to, rule in missed:
        cache.keep(key, to, rule)
    cache.shrink()
    return made
