# SPDX-License-Identifier: Apache-2.0
"""Builds of the library and the preloaded malloc with a given default table.

docs/design/replay.md describes the parts, and how a build excludes inline code of other tables.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanwise import _lib, errors
from spanwise.builds.steps import (
    COMMON_FLAGS,
    PRELOAD_FLAGS,
    PRELOAD_LINK_FLAGS,
    PRELOAD_ROOMS,
    SHARED_FLAGS,
    Compiler,
    Report,
    compile_all,
    core_rooms,
    generate,
    place_headers,
    run_step,
    source_root,
    sources,
    zstd_words,
)
from spanwise.results.files import READING_ERRORS, is_text
from spanwise.results.jobs import Progress, Signals, progress_bar
from spanwise.results.rows import Result
from spanwise.tables.table import CONDEMNED, SizeClassTable, as_table

MALLOC_ALIGN = 16
CUTOFF_MAX = 1024
JOBS_MAX = 8
_STEPS, _MALLOC_STEPS = 3, 2


def build(
    table: SizeClassTable | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    cc: str | None = None,
    malloc: bool = True,
    cutoff_bytes: int | None = None,
    jobs: int | None = None,
    anyway: bool = False,
    progress: Progress = None,
) -> Build:
    """Generate the C code of a table, and build the library and the preloaded malloc with it.

    The build is made and checked in a temporary folder next to `folder`, and renamed at the end. A
    build that fails or is interrupted (Ctrl-C, SIGTERM, SIGHUP) changes nothing and leaves no
    compiler running.

    Args:
        table: size classes, a table's name, or a table file.
        folder: where the build goes; an earlier build there is replaced.
        cc: C compiler, with options such as "gcc -DNAME=1"; None: $CC, else cc, gcc or clang.
        malloc: also build the preloaded malloc.
        cutoff_bytes: largest size with a specialised path, 0 to 1024 bytes; None: 512.
        jobs: parallel compilations; None: one per processor, at most 8.
        anyway: build even a table of `optimize` that its evaluation rejected.
        progress: as in `Recording.ledger`; each step takes a few seconds.

    Raises:
        InvalidError: the table is invalid, was rejected by its evaluation, or (with malloc) has a
            class of 16 bytes or more that is not a multiple of 16; or `folder` is not a build.
        BuildError: no compiler, or a step failed.
        OSError: the system refused to write.
    """
    options = BuildOptions(cc, malloc, cutoff_bytes, jobs, anyway)
    with progress_bar(progress, _STEPS + malloc * _MALLOC_STEPS, "build", "steps") as step:
        return build_with(table, folder, options, lambda _line: step(1))


@dataclass(frozen=True)
class BuildOptions:
    """The options of `build`."""

    cc: str | None = None
    malloc: bool = True
    cutoff_bytes: int | None = None
    jobs: int | None = None
    anyway: bool = False


def build_with(
    table: SizeClassTable | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    options: BuildOptions,
    report: Report,
) -> Build:
    """Do the same as `build`, calling `report` with a line before each step."""
    made = as_table(os.fspath(table) if not isinstance(table, SizeClassTable) else table)
    if not options.anyway:
        check_not_rejected(table)
    if options.malloc:
        check_malloc_table(made)
    place = Path(folder)
    _check_place(place)
    compiler = Compiler.find(options.cc)
    root = source_root()
    limit = None
    if options.cutoff_bytes is not None:
        limit = _lib.as_index(options.cutoff_bytes, "cutoff_bytes", CUTOFF_MAX)
    parent = place.absolute().parent
    if not parent.is_dir():
        raise errors.InvalidError(f"{parent}: no such folder; make it first")
    with Signals() as signals, work_folder(place) as work:
        with signals.heard():
            jobs = _jobs(options.jobs)
            parts = _Parts(root, work, made, compiler, options.malloc, limit, jobs)
            stamp = _build_in(parts, report)
        put_in_place(work / "out", place)
    return Build(place.absolute(), stamp)


def check_not_rejected(table: SizeClassTable | str | os.PathLike[str]) -> None:
    """Raise InvalidError for a table (or table file) that `optimize` rejected."""
    if isinstance(table, SizeClassTable):
        shown, file = f"table {table.name}", table.to_dict()
    elif os.fspath(table).endswith(".json"):
        shown, file = os.fspath(table), json.loads(Path(table).read_bytes())
    else:
        return
    against = (file.get("parameters") or {}).get(CONDEMNED)
    if against:
        raise errors.InvalidError(
            f"{shown}: rejected by its evaluation ({str(against).rstrip('.')}); build it"
            " anyway with anyway=True (--anyway)"
        )


def check_malloc_table(table: SizeClassTable) -> None:
    """Raise InvalidError unless malloc can use the table: C requires 16-byte alignment."""
    for cls, size in enumerate(table.classes["size_bytes"].tolist(), 1):
        if size >= MALLOC_ALIGN and size % MALLOC_ALIGN:
            raise errors.InvalidError(
                f"table {table.name}: class {cls} ({size} bytes) is not a multiple of"
                f" {MALLOC_ALIGN}, which malloc must give: make a table with 16-byte steps, or"
                " build the library alone with --no-malloc"
            )


# --- one build ------------------------------------------------------------------------------------


def _jobs(jobs: int | None) -> int:
    if jobs is None:
        return max(1, min(len(os.sched_getaffinity(0)), JOBS_MAX))
    return max(1, _lib.as_index(jobs, "jobs", 256))


def _check_place(place: Path) -> None:
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise errors.InvalidError(f"{place}: is not a folder; choose another")
    if place.is_dir() and any(place.iterdir()) and not (place / STAMP).is_file():
        raise errors.InvalidError(f"{place}: contains something other than a build; choose another")


@dataclass(frozen=True)
class _Parts:
    """The context of the steps, which write into `work`; work/out becomes the build."""

    root: Path
    work: Path
    table: SizeClassTable
    compiler: Compiler
    malloc: bool
    cutoff: int | None
    jobs: int

    @property
    def out(self) -> Path:
        return self.work / "out"

    @property
    def gen(self) -> Path:
        return self.out / "gen"

    @property
    def lib(self) -> Path:
        return self.out / "lib"

    @property
    def identifier(self) -> str:
        """The table's C identifier."""
        (source,) = self.gen.glob("table_*.c")
        return source.stem.removeprefix("table_")

    def flags(self, extra: Sequence[str]) -> list[str]:
        """Return the flags of every file; they keep absolute paths out of the objects."""
        return [
            *(f"-I{path}" for path in (self.out, self.out / "include", self.root / "src")),
            f"-ffile-prefix-map={self.root}=.",
            f"-ffile-prefix-map={self.out}=.",
            *extra,
        ]

    def objects(
        self, rooms: Sequence[str], extra: Sequence[str], name: str, *, paths: bool = True
    ) -> list[Path]:
        """Compile folders of src/ and the generated files into work/name."""
        files = [*sources(self.root, rooms, self.identifier), *sorted(self.gen.glob("*.c"))]
        files = [file for file in files if paths or not file.name.startswith("paths_")]
        return compile_all(self.compiler, files, self.flags(extra), self.work / name, self.jobs)


def _build_in(parts: _Parts, report: Report) -> dict[str, Any]:
    """Build in work/out; return the stamp."""
    parts.lib.mkdir(parents=True)
    parts.table.to_json(parts.out / "table.json")
    proofs = generate(parts.root, parts.out / "table.json", parts.cutoff, parts.gen)
    report(f"table {parts.table.name}: {len(parts.table)} classes, {len(proofs)} proofs hold")
    place_headers(parts.root, parts.gen, parts.out / "include")
    zstd = zstd_words(parts.compiler, parts.work)
    if zstd is None:
        report("no zstd development files: building without recordings (sw_trace_, runner)")
    link = [*(["-lzstd"] if zstd else []), "-pthread"]
    _build_library(parts, zstd, report)
    _check_library(parts, link, report)
    if parts.malloc:
        _build_preload(parts, report)
        _check_preload(parts, report)
    stamp = _stamp(parts, link, proofs)
    (parts.out / STAMP).write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")
    return stamp


def _build_library(parts: _Parts, zstd: list[str] | None, report: Report) -> None:
    report(f"library: compiling with {parts.compiler.version}")
    objects = parts.objects(core_rooms(parts.root, zstd is not None), (), "core")
    lib = parts.lib
    soname = "libspanwise.so." + ".".join(_lib.version().split(".")[:2])
    run_step(
        [
            *(*parts.compiler.words, *SHARED_FLAGS, f"-Wl,-soname,{soname}"),
            *("-o", lib / soname, *objects, *(zstd or [])),
        ],
        "linking libspanwise.so",
    )
    (lib / "libspanwise.so").symlink_to(soname)
    # One object with local hidden names: an archive of many would expose them to programs.
    one = parts.work / "libspanwise.o"
    words = [*parts.compiler.words, "-r", "-nostdlib", "-o", one, *objects]
    run_step(words, "joining the objects of libspanwise.a")
    run_step([parts.compiler.tool("objcopy"), "--localize-hidden", one], "objcopy")
    run_step([parts.compiler.tool("ar"), "rcs", lib / "libspanwise.a", one], "ar")


def _build_preload(parts: _Parts, report: Report) -> None:
    report("preloaded malloc: compiling")
    objects = parts.objects(PRELOAD_ROOMS, PRELOAD_FLAGS, "preload", paths=False)
    preload = parts.lib / "libspanwise-malloc.so"
    run_step(
        [
            *(*parts.compiler.words, *SHARED_FLAGS, *PRELOAD_LINK_FLAGS),
            *("-Wl,-soname,libspanwise-malloc.so", "-o", preload, *objects, "-ldl"),
        ],
        "linking libspanwise-malloc.so",
    )


def _check_library(parts: _Parts, link: Sequence[str], report: Report) -> None:
    """Check every size with a program that uses the inline code."""
    report("library: checking every size")
    program = parts.work / "check-library"
    lib = parts.lib
    words = [*parts.compiler.words, "-std=gnu11", "-O2", f"-I{parts.out / 'include'}"]
    source = parts.root / "scripts/build_check.c"
    run_step(
        [*words, source, "-o", program, lib / "libspanwise.a", *link], "compiling the library check"
    )
    run_step([program], "library check", _without_preload())


def _check_preload(parts: _Parts, report: Report) -> None:
    report("preloaded malloc: checking every size")
    program = parts.work / "check-malloc"
    words = [*parts.compiler.words, "-std=gnu11", "-O1", "-fno-builtin", "-DCHECK_MALLOC"]
    words.append(f"-DCHECK_LARGEST={parts.table.largest_bytes}")
    source = parts.root / "scripts/build_check.c"
    run_step([*words, source, "-o", program], "compiling the malloc check")
    preload = str(parts.lib / "libspanwise-malloc.so")
    run_step([program], "malloc check", {**_without_preload(), "LD_PRELOAD": preload})


def _without_preload() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}


def _stamp(parts: _Parts, link: Sequence[str], proofs: Sequence[str]) -> dict[str, Any]:
    table, compiler = parts.table, parts.compiler
    return {
        "spanwise": _lib.version(),
        "table": {
            "name": table.name,
            "hash": f"{table.hash:016x}",
            "classes": len(table),
            "page_bytes": table.page_bytes,
        },
        "cutoff": parts.cutoff,
        "compiler": {"command": list(compiler.words), "version": compiler.version},
        "flags": list(COMMON_FLAGS),
        "malloc_flags": list(PRELOAD_FLAGS) if parts.malloc else None,
        "malloc": parts.malloc,
        "recordings": "-lzstd" in link,
        "link": list(link),
        "proofs": list(proofs),
    }


# --- the folder of a build ------------------------------------------------------------------------


STAMP = "build.json"


@dataclass(frozen=True, eq=False)
class Build(Result):
    """A folder that `build` made.

    Attributes:
        folder: lib/ (libspanwise.a, libspanwise.so, libspanwise-malloc.so), include/, gen/ (the
            generated C), table.json and build.json.
        stamp: content of build.json: table, compiler, flags, versions, proofs.
    """

    folder: Path
    stamp: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Build:
        """Open an existing build.

        Raises:
            InvalidError: the folder is not a build.
        """
        place = Path(folder)
        try:
            stamp = json.loads((place / STAMP).read_text(encoding="utf-8"))
            named = [stamp["table"][key] for key in ("name", "hash")]
        except (OSError, *READING_ERRORS):
            named = [None]
        if not all(map(is_text, named)):
            raise errors.InvalidError(f"{place}: was not created by `spanwise build`")
        return cls(place.absolute(), stamp)

    @property
    def table(self) -> SizeClassTable:
        """The default table of the build."""
        return SizeClassTable.from_json(self.folder / "table.json")

    @property
    def library(self) -> Path:
        """libspanwise.so."""
        return self.folder / "lib/libspanwise.so"

    @property
    def archive(self) -> Path:
        """libspanwise.a; link with stamp["link"]."""
        return self.folder / "lib/libspanwise.a"

    @property
    def include(self) -> Path:
        """The folder for -I."""
        return self.folder / "include"

    @property
    def malloc_library(self) -> Path:
        """libspanwise-malloc.so, for LD_PRELOAD.

        Raises:
            UnsupportedError: the build has no preloaded malloc.
        """
        path = self.folder / "lib/libspanwise-malloc.so"
        if not path.is_file():
            raise errors.UnsupportedError(f"{self.folder}: was built without the preloaded malloc")
        return path

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run a program with the preloaded malloc.

        Args:
            argv: program and arguments.
            env: its environment; None: that of this process.
            options: as in `subprocess.run`.

        Raises:
            UnsupportedError, OSError: there is no preloaded malloc; the program does not start.
        """
        base = dict(os.environ if env is None else env)
        preload = ":".join(filter(None, (str(self.malloc_library), base.get("LD_PRELOAD"))))
        return subprocess.run(
            list(argv), env={**base, "LD_PRELOAD": preload}, check=False, **options
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the folder and the stamp, for JSON."""
        return {"folder": str(self.folder), **self.stamp}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Build) and (self.folder, self.stamp) == (other.folder, other.stamp)

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        table = self.stamp["table"]
        return f"<Build {self.folder}: table {table['name']}, hash {table['hash']}>"


# --- the temporary folder -------------------------------------------------------------------------


@contextmanager
def work_folder(place: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `place`. Only a killed build does not remove it."""
    parent = place.absolute().parent
    try:
        work = Path(tempfile.mkdtemp(prefix=f".spanwise-build-{os.getpid()}-", dir=parent))
    except OSError as error:
        raise OSError(error.errno, f"cannot be made: {error.strerror}", str(place)) from None
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def put_in_place(made: Path, place: Path) -> None:
    """Rename work/out; the previous folder is kept until that succeeds."""
    old = made.with_name("old")
    if place.is_dir():
        place.rename(old)
    try:
        made.rename(place)
    except OSError:
        if old.is_dir():
            with suppress(OSError):
                old.rename(place)
        raise
