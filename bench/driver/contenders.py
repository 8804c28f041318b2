# SPDX-License-Identifier: Apache-2.0
"""Maps a source such as "linked pair/16" to the programs that measure it.

A source is a way and its words:

    inline, bare, exported, generic ROW   our library, linked (bench_spanwise; bare: no checks)
    preload ROW                           malloc of libspanwise-malloc.so
    linked ROW                            every linked peer that was built (bench_peer_*)
    allocators ROW                        malloc of glibc and of each preloaded peer
    go ROW                                the same case in Go, generic and specialized malloc
    arenas, ranges, buffers NAME          a row of that program, by its full name
    collectors, boehm, go-collectors ROW SIZE   figures of one collector
    go-arenas KEY                         Go's arenas, heap and sync.Pool
    pattern NAME, pattern-allocators NAME an allocation pattern, preloaded: ours; all others
    loop NAME                             optimizer, simulator and sweep (bench/loop.py)
    counted PATH                          instructions per operation, by callgrind
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driver.tools import BenchError, NoPeerError, captured, last_line

BENCH = Path(__file__).resolve().parents[1]
OURS = "spanwise"
# Sonames and Debian packages of the allocators to preload.
PRELOADS = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc2"),
    "mimalloc": ("libmimalloc.so.2", "libmimalloc2.0"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
}
OWN = {"inline": "bench_spanwise", "exported": "bench_spanwise", "generic": "bench_spanwise"}
OWN["bare"] = "bench_spanwise_bare"
GO_BUILDS = {"go": "", "go-special": "sizespecializedmalloc"}
GO_ROUNDS = "5"


@dataclass(frozen=True)
class Contender:
    """One way to measure one allocator.

    Attributes:
        name: name of the allocator.
        words: command line; "{min_time}" is replaced by the minimum seconds of a row.
        reader: format of the output: google, json, lines, or counted.
        key: with reader json: the figure to return as "ns"; "": all figures.
        preload: library for LD_PRELOAD; None: none.
        version: as the allocator reports it; "" if it does not.
        variables: additions to the environment.
        small_pages: disable transparent huge pages.
    """

    name: str
    words: tuple[str, ...]
    reader: str = "google"
    key: str = ""
    preload: Path | None = None
    version: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    small_pages: bool = False

    def environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        kept = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        kept |= {"LC_ALL": "C", **dict(self.variables)}
        if self.preload is not None:
            kept["LD_PRELOAD"] = str(self.preload)
        return kept

    def meets(self, need: str) -> bool:
        """Return whether this is the allocator of "NAME VERSION", in at least that version."""
        name, _, version = need.partition(" ")
        if name not in (self.name, re.sub(r"\d+$", "", self.name)):
            return False
        return _numbers(self.version) >= _numbers(version) if version else True


def _numbers(text: str) -> tuple[int, ...]:
    """Return the first version number in a text: "go1.26.8" -> (1, 26, 8)."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def parse_peer(text: str) -> tuple[str, Path]:
    """Read --peer NAME=PATH.

    Raises:
        BenchError: the form is wrong, or there is no such file.
    """
    match = re.fullmatch(r"([a-z][a-z0-9-]*)=(.+)", text)
    if match is None:
        raise BenchError(f"--peer '{text}' is not NAME=PATH with NAME in lower case")
    path = Path(match[2]).absolute()
    if not path.is_file():
        raise BenchError(f"--peer {match[1]}: there is no file '{match[2]}'")
    return match[1], path


def find_library(soname: str) -> Path | None:
    """Find a shared library through the dynamic linker, by preloading it."""
    done = captured(["/bin/sh", "-c", 'LD_PRELOAD="$0" exec cat /proc/self/maps', soname])
    stem = soname.split(".so", maxsplit=1)[0]
    for line in done.stdout.splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.startswith("/") and Path(path).name.startswith(stem + ".so"):
            return Path(path)
    return None


@dataclass
class Machine:
    """The programs and allocators of this machine.

    Attributes:
        build: directory of the bench programs.
        peers: NAME=PATH of further allocators to preload.
        quick: small sizes, to check that everything runs.
        missing: name of each allocator that was not found -> how to install it.
    """

    build: Path
    peers: Sequence[str] = ()
    quick: bool = False
    missing: dict[str, str] = field(default_factory=dict)

    def contenders(self, source: str) -> list[Contender]:
        """Return the programs of a source.

        Raises:
            NoPeerError: a program of a peer is missing; the message says how to install it.
            BenchError: the way is unknown, or a program of ours was not built.
        """
        way, _, words = source.partition(" ")
        ways: dict[str, Callable[[str], Iterator[Contender]]] = {
            "preload": self._preload,
            "linked": self._linked,
            "allocators": self._allocators,
            "go": self._go,
            "collectors": self._collectors,
            "boehm": self._boehm,
            "go-collectors": self._go_collectors,
            "go-arenas": self._go_arenas,
            "pattern": self._pattern,
            "pattern-allocators": self._pattern_allocators,
            "loop": self._loop,
            "counted": self._counted,
        }
        if way in OWN:
            return [self._google(OURS, OWN[way], f"{way}/{words}")]
        if way in ("arenas", "ranges", "buffers"):
            return [self._google(OURS, f"bench_{way}", words, label=words.split("/")[0])]
        if way not in ways:
            raise BenchError(f"'{source}': the way '{way}' is unknown; see driver/contenders.py")
        return list(ways[way](words))

    def _program(self, name: str) -> Path:
        path = self.build / name
        if not path.is_file():
            raise BenchError(f"{path} was not built; run ./dev bench")
        return path

    def _google(self, name: str, program: str, row: str, label: str = "") -> Contender:
        return Contender(label or name, google_words(self._program(program), row))

    def _size(self, row: str) -> list[str]:
        """Split "ROW SIZE"; reduce the size in a quick run."""
        name, _, size = row.partition(" ")
        if self.quick and size:
            size = str(min(int(size), 10_000 if int(size) > 1000 else 10))
        return [name, size or "0"]

    # --- allocators -------------------------------------------------------------------------------

    def _own_preload(self) -> Path:
        return self._program("libspanwise-malloc.so")

    @functools.cached_property
    def preloads(self) -> list[tuple[str, Path | None, str]]:
        """Name, library and version of each allocator that serves malloc; glibc has no library."""
        found: dict[str, Path | None] = {"glibc": None, **dict(map(parse_peer, self.peers))}
        for name, (soname, package) in PRELOADS.items():
            if name in found:
                continue
            library = find_library(soname)
            if library is None:
                self.missing[name] = f"apt-get install {package}"
            else:
                found[name] = library
        return [(name, library, self._version(name, library)) for name, library in found.items()]

    def _version(self, name: str, library: Path | None) -> str:
        """Return the version that a preloaded allocator reports; check that it serves malloc."""
        program = self._program("bench_malloc")
        asked = Contender(name, (str(program), "--version"), preload=library)
        done = captured(asked.words, asked.environment())
        version, serves = [*done.stdout.splitlines(), "", ""][:2]
        if done.returncode != 0:
            raise BenchError(f"{name}: {program.name} --version ended with {done.returncode}")
        if library is not None and Path(serves.strip()).resolve() != library.resolve():
            raise BenchError(f"{name}: {library} does not define malloc; '{serves}' served it")
        return version.strip()

    def _preload(self, row: str) -> Iterator[Contender]:
        words = google_words(self._program("bench_malloc"), f"malloc/{row}")
        yield Contender(OURS, words, preload=self._own_preload())

    def _allocators(self, row: str) -> Iterator[Contender]:
        words = google_words(self._program("bench_malloc"), f"malloc/{row}")
        for name, library, version in self.preloads:
            yield Contender(name, words, preload=library, version=version)

    def _linked(self, row: str) -> Iterator[Contender]:
        programs = sorted(self.build.glob("bench_peer_*"))
        if not programs:
            raise NoPeerError("no bench_peer_* was built: give SPANWISE_PEER_<NAME>_DIR to cmake")
        for program in filter(lambda path: os.access(path, os.X_OK), programs):
            version = (captured([program, "--version"]).stdout.splitlines() or [""])[0]
            name = program.name.removeprefix("bench_peer_")
            yield Contender(name, google_words(program, f"linked/{row}"), version=version)

    # --- Go and Boehm -----------------------------------------------------------------------------

    def _go(self, row: str) -> Iterator[Contender]:
        for name, experiment in GO_BUILDS.items():
            program = go_program("micro/go", experiment)
            words = (str(program), row.rpartition("/")[2], GO_ROUNDS)
            yield Contender(name, words, version=go_version())

    def _collectors(self, row: str) -> Iterator[Contender]:
        words = (str(self._program("bench_collectors")), *self._size(row))
        yield Contender(OURS, words, reader="json", small_pages=True)

    def _boehm(self, row: str) -> Iterator[Contender]:
        program = self.build / "bench_collectors_boehm"
        if not program.is_file():
            raise NoPeerError("bench_collectors_boehm was not built: apt-get install libgc-dev")
        words = (str(program), *self._size(row))
        for markers in ("1", "2"):
            variables = (("GC_MARKERS", markers),)
            name = f"boehm-{markers}-markers"
            yield Contender(name, words, "json", variables=variables, small_pages=True)

    def _go_collectors(self, row: str) -> Iterator[Contender]:
        words = (str(go_program("collectors/go", "greenteagc")), *self._size(row))
        yield Contender("go", words, "json", version=go_version(), small_pages=True)

    def _go_arenas(self, key: str) -> Iterator[Contender]:
        words = (str(go_program("arenas/go", "arenas")), *(["quick"] if self.quick else []))
        yield Contender("go", words, "json", key=key, version=go_version())

    # --- patterns, the loop, instructions ---------------------------------------------------------

    def _pattern_words(self, name: str, library: Path | None) -> tuple[str, ...]:
        own = self.build / f"bench_patterns_{name}"
        words = [str(own)] if own.is_file() else [str(self._program("bench_patterns")), name]
        percent = "1" if self.quick else "100"
        wrapper = str(self._program("spanwise-rusage"))
        return (wrapper, "{report}", str(library or ""), *words, percent)

    def _pattern(self, name: str) -> Iterator[Contender]:
        yield Contender(OURS, self._pattern_words(name, self._own_preload()), "lines")

    def _pattern_allocators(self, name: str) -> Iterator[Contender]:
        for allocator, library, version in self.preloads:
            words = self._pattern_words(name, library)
            yield Contender(allocator, words, "lines", version=version)

    def _loop(self, name: str) -> Iterator[Contender]:
        words = (sys.executable, str(BENCH / "loop.py"), name, *(["--quick"] if self.quick else []))
        yield Contender(OURS, words, "json")

    def _counted(self, path: str) -> Iterator[Contender]:
        yield Contender(OURS, (str(self._program("bench_paths")), path), "counted")


def google_words(program: Path, row: str) -> tuple[str, ...]:
    """Return the command line of one google-benchmark row, whose patterns do not escape '-'."""
    escaped = re.escape(row).replace(r"\-", "-")
    return (
        str(program),
        f"--benchmark_filter=^{escaped}(/iterations:1)?(/manual_time)?$",
        "--benchmark_format=json",
        "--benchmark_min_time={min_time}",
    )


@functools.cache
def go_version() -> str:
    """Return the version of the Go toolchain, such as "1.26.8"."""
    return captured(["go", "env", "GOVERSION"]).stdout.strip().removeprefix("go")


@functools.cache
def go_program(source: str, experiment: str) -> Path:
    """Build a Go program of bench/ with a GOEXPERIMENT.

    Raises:
        NoPeerError: there is no Go toolchain, or the build failed.
    """
    go = shutil.which("go")
    if go is None:
        raise NoPeerError("there is no Go toolchain in PATH")
    out = Path(tempfile.mkdtemp(prefix="spanwise-go-")) / "program"
    env = {**os.environ, "GOEXPERIMENT": experiment, "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    done = captured([go, "build", "-o", str(out), "."], env, BENCH / source)
    if done.returncode != 0:
        raise NoPeerError(f"go build of {source} failed: {last_line(done.stderr)}")
    return out
