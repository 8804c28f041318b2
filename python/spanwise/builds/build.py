# SPDX-License-Identifier: Apache-2.0
"""Builds: the library and the preloaded malloc with a table of one's own as the default.

What a build consists of, and why old inline code cannot meet it: docs/design/replay.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanwise import _lib, errors
from spanwise.builds.folder import STAMP, Build
from spanwise.builds.objects import ObjectCache, cache_folder
from spanwise.builds.programs import BuildError, run_step
from spanwise.builds.steps import (
    COMMON_FLAGS,
    PRELOAD_FLAGS,
    PRELOAD_LINK_FLAGS,
    PRELOAD_ROOMS,
    SHARED_FLAGS,
    Compiler,
    Say,
    compile_all,
    core_rooms,
    generate,
    place_headers,
    source_root,
    sources,
    zstd_words,
)
from spanwise.builds.work import put_in_place, work_folder
from spanwise.results.jobs import Progress, Signals, progress_bar
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
    cache: bool = True,
    progress: Progress = None,
) -> Build:
    """Generates the C of a table, and builds library and preloaded malloc with it as their default.

    Everything is made and checked in a temporary folder beside `folder`, and moved into place at
    the end: a build that fails or is interrupted (Ctrl-C, SIGTERM, SIGHUP) leaves what was there
    before and no compiler behind, and one that is killed leaves a folder that the next build there
    clears away.

    Args:
        table: size classes, a table's name, or a table file.
        folder: where the build goes; an earlier build there is replaced.
        cc: C compiler, with options such as "gcc -DNAME=1"; None: $CC, else cc, gcc or clang.
        malloc: also the preloaded malloc.
        cutoff_bytes: largest size with a specialised path, 0 to 1024 bytes; None: 512.
        jobs: compilers at once; None: one a processor, at most 8.
        anyway: build a table that `optimize` found and that its own trial condemns.
        cache: use objects that earlier builds compiled of the same sources with the same compiler,
            and keep those of this one: in $SPANWISE_CACHE, or spanwise/ of the user's cache folder.
        progress: as of `Recording.ledger`; the steps are those of the build, some seconds each.

    Raises:
        InvalidError: the table is not possible, or (with malloc) has a class of 16 bytes or more
            that is no multiple of 16, or its own trial condemns it; or `folder` holds something
            else.
        BuildError: no compiler, or a step failed.
        OSError: the system refused to write.
    """
    with progress_bar(progress, _STEPS + malloc * _MALLOC_STEPS, "build", "steps") as tell:
        return build_telling(
            table,
            folder,
            lambda _line: tell(1),
            cc=cc,
            malloc=malloc,
            cutoff_bytes=cutoff_bytes,
            jobs=jobs,
            anyway=anyway,
            cache=cache,
        )


def build_telling(
    table: SizeClassTable | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    tell: Say,
    *,
    cc: str | None = None,
    malloc: bool = True,
    cutoff_bytes: int | None = None,
    jobs: int | None = None,
    anyway: bool = False,
    cache: bool = True,
) -> Build:
    """As `build`; `tell` is called with a line before each step."""
    made = as_table(os.fspath(table) if not isinstance(table, SizeClassTable) else table)
    if not anyway:
        check_not_condemned(table)
    if malloc:
        check_malloc_table(made)
    place = Path(folder)
    _check_place(place)
    compiler = Compiler.find(cc)
    root = source_root()
    limit = None
    if cutoff_bytes is not None:
        limit = _lib.as_index(cutoff_bytes, "cutoff_bytes", CUTOFF_MAX)
    parent = place.absolute().parent
    if not parent.is_dir():
        raise errors.InvalidError(f"{parent}: no such folder; make it first")
    with Signals() as signals, work_folder(place) as work:
        with signals.heard():
            kept = _kept_objects(compiler, root, work, cache)
            parts = _Parts(root, work, made, compiler, malloc, limit, _jobs(jobs), kept)
            stamp = _build_in(parts, tell)
        put_in_place(work / "out", place)
    return Build(place.absolute(), stamp)


def check_not_condemned(table: SizeClassTable | str | os.PathLike[str]) -> None:
    """Raises InvalidError for a table (or table file) that `optimize` noted as not worth using."""
    if isinstance(table, SizeClassTable):
        shown, file = f"table {table.name}", table.to_dict()
    elif os.fspath(table).endswith(".json"):
        shown, file = os.fspath(table), json.loads(Path(table).read_bytes())
    else:
        return
    against = (file.get("parameters") or {}).get(CONDEMNED)
    if against:
        raise errors.InvalidError(
            f"{shown}: its own trial condemns it ({str(against).rstrip('.')}); build it"
            " nevertheless with anyway=True (--anyway)"
        )


def check_malloc_table(table: SizeClassTable) -> None:
    """Raises InvalidError unless malloc may serve from the table: C promises 16-byte alignment."""
    for cls, size in enumerate(table.classes["size_bytes"].tolist(), 1):
        if size >= MALLOC_ALIGN and size % MALLOC_ALIGN:
            raise errors.InvalidError(
                f"table {table.name}: class {cls} ({size} bytes) is no multiple of {MALLOC_ALIGN},"
                " which malloc must give: make a table with 16-byte steps, or build the library"
                " alone with --no-malloc"
            )


# --- one build ------------------------------------------------------------------------------------


def _jobs(jobs: int | None) -> int:
    if jobs is None:
        return max(1, min(len(os.sched_getaffinity(0)), JOBS_MAX))
    return max(1, _lib.as_index(jobs, "jobs", 256))


def _kept_objects(compiler: Compiler, root: Path, work: Path, wanted: bool) -> ObjectCache:
    places = {"source": root, "build": work / "out"}
    folder = cache_folder() if wanted else None
    return ObjectCache(folder, compiler.words, compiler.version, places)


def _check_place(place: Path) -> None:
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise errors.InvalidError(f"{place}: is no folder; choose another")
    if place.is_dir() and any(place.iterdir()) and not (place / STAMP).is_file():
        raise errors.InvalidError(f"{place}: holds something else than a build; choose another")


@dataclass(frozen=True)
class _Parts:
    """What the steps of one build need. They write into `work`; work/out becomes the build."""

    root: Path
    work: Path
    table: SizeClassTable
    compiler: Compiler
    malloc: bool
    cutoff: int | None
    jobs: int
    cache: ObjectCache

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
        """The table's name in C, as the generator makes it."""
        (source,) = self.gen.glob("table_*.c")
        return source.stem.removeprefix("table_")

    def flags(self, extra: Sequence[str]) -> list[str]:
        """The flags of every file: the new headers first, no path of this machine in the objects.

        The sources find gen/default.h in `out` before that of src/, and so their default table.
        """
        return [
            *(f"-I{path}" for path in (self.out, self.out / "include", self.root / "src")),
            f"-ffile-prefix-map={self.root}=.",
            f"-ffile-prefix-map={self.out}=.",
            *extra,
        ]

    def objects(
        self, rooms: Sequence[str], extra: Sequence[str], name: str, *, paths: bool = True
    ) -> list[Path]:
        """Objects of rooms and of the generated files, in work/name.

        Args:
            rooms: of src/.
            extra: flags.
            name: of the folder.
            paths: with the specialised paths, which the preloaded malloc does without.
        """
        files = [*sources(self.root, rooms, self.identifier), *sorted(self.gen.glob("*.c"))]
        files = [file for file in files if paths or not file.name.startswith("paths_")]
        generated = sorted([*self.gen.glob("*.h"), *(self.out / "include").rglob("*.h")])
        own = f"paths_{self.identifier}.h"  # no other source includes a name with the table's
        generated = [path for path in generated if path.name != own]
        made = self.work / name
        kept: dict[str, Any] = {"cache": self.cache, "generated": generated}
        return compile_all(self.compiler, files, self.flags(extra), made, jobs=self.jobs, **kept)


def _build_in(parts: _Parts, tell: Say) -> dict[str, Any]:
    """Builds in work/out; returns the stamp."""
    parts.lib.mkdir(parents=True)
    parts.table.to_json(parts.out / "table.json")
    proofs = generate(parts.root, parts.out / "table.json", parts.cutoff, parts.gen)
    tell(f"table {parts.table.name}: {len(parts.table)} classes, {len(proofs)} proofs hold")
    place_headers(parts.root, parts.gen, parts.out / "include")
    zstd = zstd_words(parts.compiler, parts.work)
    if zstd is None:
        tell("no zstd development files: the library goes without recordings (sw_trace_, runner)")
    link = [*(["-lzstd"] if zstd else []), "-pthread"]
    _build_library(parts, zstd, tell)
    _check_library(parts, link, tell)
    if parts.malloc:
        _build_preload(parts, tell)
        _check_preload(parts, tell)
    stamp = _stamp(parts, link, proofs)
    (parts.out / STAMP).write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")
    return stamp


def _build_library(parts: _Parts, zstd: list[str] | None, tell: Say) -> None:
    tell(f"library: compiling with {parts.compiler.version}")
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
    # One object, in which hidden names are local: an archive of many would show them to programs.
    one = parts.work / "libspanwise.o"
    words = [*parts.compiler.words, "-r", "-nostdlib", "-o", one, *objects]
    run_step(words, "joining the objects of libspanwise.a")
    run_step([parts.compiler.tool("objcopy"), "--localize-hidden", one], "objcopy")
    run_step([parts.compiler.tool("ar"), "rcs", lib / "libspanwise.a", one], "ar")


def _build_preload(parts: _Parts, tell: Say) -> None:
    tell("preloaded malloc: compiling")
    objects = parts.objects(PRELOAD_ROOMS, PRELOAD_FLAGS, "preload", paths=False)
    preload = parts.lib / "libspanwise-malloc.so"
    run_step(
        [
            *(*parts.compiler.words, *SHARED_FLAGS, *PRELOAD_LINK_FLAGS),
            *("-Wl,-soname,libspanwise-malloc.so", "-o", preload, *objects, "-ldl"),
        ],
        "linking libspanwise-malloc.so",
    )


def _check_library(parts: _Parts, link: Sequence[str], tell: Say) -> None:
    """Checks every size of the new library by a program that uses its inline code."""
    tell("library: checking every size")
    program = parts.work / "check-library"
    lib = parts.lib
    words = [*parts.compiler.words, "-std=gnu11", "-O2", f"-I{parts.out / 'include'}"]
    source = parts.root / "scripts/build_check.c"
    run_step(
        [*words, source, "-o", program, lib / "libspanwise.a", *link], "compiling the library check"
    )
    run_step([program], "library check", _without_preload())


def _check_preload(parts: _Parts, tell: Say) -> None:
    tell("preloaded malloc: checking every size")
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
        "objects": {"compiled": parts.cache.compiled, "reused": parts.cache.reused},
        "recordings": "-lzstd" in link,
        "link": list(link),
        "proofs": list(proofs),
    }


__all__ = ["Build", "BuildError", "build", "build_telling", "check_malloc_table"]
