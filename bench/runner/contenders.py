# SPDX-License-Identifier: Apache-2.0
"""The contenders: our programs, Debian's allocators, Go, and those that the user adds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from runner.errors import BenchError

# Debian's names of what can be preloaded, and the package that has each.
PRELOADS = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc2"),
    "mimalloc": ("libmimalloc.so.2", "libmimalloc2.0"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
}
OWN_PROGRAMS = {
    "inline": "bench_spanwise",
    "bare": "bench_spanwise_bare",
    "exported": "bench_spanwise",
    "special": "bench_spanwise",
    "generic": "bench_spanwise",
}
SPANWISE = "spanwise"
GO_BUILDS = {"go": "", "go-special": "sizespecializedmalloc"}


@dataclass(frozen=True)
class Contender:
    """One way to call one allocator.

    Attributes:
        name: of the allocator.
        basis: how it is called: inline, bare, exported, special (built-in table, explicit cache),
            generic, preload, linked, go.
        program: what is run.
        policy: prefix of the program's row names.
        preload: library for LD_PRELOAD, or None.
        version: as the allocator or the user tells it, "" if nobody does.
        variables: added to the environment of its process (Target.environment).
        library: what serves malloc, as the program says; None if it does not.
    """

    name: str
    basis: str
    program: Path
    policy: str
    preload: Path | None = None
    version: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    library: Path | None = None

    @property
    def options(self) -> str:
        """Its variables as a shell has them: `SPANWISE_THP=advise`, "" without any."""
        return " ".join(f"{name}={value}" for name, value in self.variables)

    @property
    def label(self) -> str:
        """What tables call it: `inline` ... for ours, the name for peers."""
        if self.name == SPANWISE:
            return f"{self.basis} {self.options}".rstrip()
        return self.name + (" (linked)" if self.basis == "linked" else "")

    def environment(self) -> dict[str, str]:
        """The environment of its process: ours without preloads, and its own variables."""
        kept = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        kept |= dict(self.variables)
        if self.preload is not None:
            kept["LD_PRELOAD"] = str(self.preload)
        return kept


@dataclass(frozen=True)
class Field:
    """Everyone who takes part, and what is missing (name: how to get it)."""

    contenders: list[Contender]
    missing: dict[str, str]

    def ours(self, basis: str) -> Contender | None:
        """Our contender of a basis."""
        return next((c for c in self.contenders if c.name == SPANWISE and c.basis == basis), None)

    def peers(self, basis: str) -> list[Contender]:
        """All other contenders of a basis."""
        return [c for c in self.contenders if c.name != SPANWISE and c.basis == basis]


def parse_peer(text: str) -> tuple[str, Path, str]:
    """Reads NAME=PATH or NAME=PATH@VERSION.

    Raises:
        BenchError: another form, or no such file.
    """
    match = re.match(r"^([a-z][a-z0-9-]*)=(.+?)(?:@(\d[0-9.]*))?$", text)
    if match is None:
        raise BenchError(f"peer '{text}' is not NAME=PATH or NAME=PATH@VERSION, NAME in lower case")
    path = Path(match[2]).absolute()
    if not path.is_file():
        raise BenchError(
            f"peer {match[1]}: no file '{match[2]}'; give the built library or program"
        )
    return match[1], path, match[3] or ""


def _ask_version(contender: Contender) -> tuple[str, str]:
    """The version and the malloc library that a program tells.

    Raises:
        BenchError: the program does not run.
    """
    done = subprocess.run(
        [contender.program, "--version"],
        env=contender.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        program = contender.program.name
        raise BenchError(f"{contender.name}: {program} --version: {done.returncode}: {said}")
    lines = [*done.stdout.splitlines(), "", ""]
    return lines[0].strip(), lines[1].strip()


def identify(contender: Contender) -> Contender:
    """Adds the version; proves that a preload serves malloc.

    Raises:
        BenchError: the program does not run, or malloc comes from elsewhere.
    """
    version, library = _ask_version(contender)
    if contender.preload is not None and Path(library).resolve() != contender.preload.resolve():
        raise BenchError(
            f"{contender.name}: {contender.preload} does not define malloc "
            f"(it came from '{library}'); give a library made for LD_PRELOAD"
        )
    return replace(
        contender,
        version=contender.version or version,
        library=Path(library) if library else None,
    )


def find_library(soname: str) -> Path | None:
    """A shared library as the dynamic linker finds it, by preloading it into `true`."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'LD_PRELOAD="$0" exec cat /proc/self/maps', soname],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": ""},
    )
    stem = soname.split(".so", maxsplit=1)[0]
    for line in done.stdout.splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.startswith("/") and Path(path).name.startswith(stem + ".so"):
            return Path(path)
    return None


def _own(build: Path) -> list[Contender]:
    for program in (*OWN_PROGRAMS.values(), "bench_malloc"):
        if not (build / program).is_file():
            raise BenchError(
                f"{build / program} is missing: build with cmake --preset release -B {build} "
                f"-DSPANWISE_BENCH=ON && cmake --build {build}, or run ./dev bench"
            )
    return [
        Contender(SPANWISE, basis, build / program, basis)
        for basis, program in OWN_PROGRAMS.items()
    ]


def _preloads(build: Path, peers: list[str]) -> tuple[list[Contender], dict[str, str]]:
    program = build / "bench_malloc"
    found = [Contender("glibc", "preload", program, "malloc")]
    missing: dict[str, str] = {}
    face = build / "libspanwise-malloc.so"
    if face.is_file():
        found.insert(0, Contender(SPANWISE, "preload", program, "malloc", face))
    named = [parse_peer(text) for text in peers]
    for name, (soname, package) in PRELOADS.items():
        if any(name == other for other, _, _ in named):
            continue
        library = find_library(soname)
        if library is None:
            missing[name] = f"apt-get install {package}"
        else:
            found.append(Contender(name, "preload", program, "malloc", library))
    for name, path, version in named:
        found.append(Contender(name, "preload", program, "malloc", path, version))
    return found, missing


def _linked(build: Path, programs: list[str]) -> tuple[list[Contender], dict[str, str]]:
    named = {name: (path, version) for name, path, version in map(parse_peer, programs)}
    for path in sorted(build.glob("bench_peer_*")):
        name = path.name.removeprefix("bench_peer_")
        if path.is_file() and os.access(path, os.X_OK):
            named.setdefault(name, (path, ""))
    found = [
        Contender(name, "linked", path, "linked", None, version)
        for name, (path, version) in named.items()
    ]
    missing = {
        f"{name} (linked)": f"-DSPANWISE_PEER_{name.upper()}_DIR=DIR of its headers and library"
        for name in ("snmalloc", "mimalloc3", "rpmalloc")
        if name not in named
    }
    return found, missing


def _go(build: Path, source: Path) -> tuple[list[Contender], dict[str, str]]:
    go = shutil.which("go")
    if go is None:
        return [], {"go": "install the Go toolchain (go.dev/dl) and put it in PATH"}
    found: list[Contender] = []
    missing: dict[str, str] = {}
    for name, experiment in GO_BUILDS.items():
        program = (build / name.replace("-", "_")).resolve()
        done = subprocess.run(
            [go, "build", "-o", program, "."],
            cwd=source,
            env={**os.environ, "GOEXPERIMENT": experiment, "GOFLAGS": "", "GOWORK": "off"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            found.append(Contender(name, "go", program, "go"))
        else:
            missing[name] = (done.stderr.strip().splitlines() or ["go build failed"])[-1]
    return found, missing


def find_field(
    build: Path, bench: Path, peers: list[str], linked: list[str], *, with_go: bool
) -> Field:
    """Finds everyone.

    Args:
        build: directory of the bench programs.
        bench: the directory bench/ of the sources.
        peers: NAME=PATH[@VERSION] of libraries to preload.
        linked: NAME=PROGRAM[@VERSION] of peers built elsewhere from bench/peers.
        with_go: builds and adds Go's cases.

    Raises:
        BenchError: a program of ours is missing, or a named peer cannot take part.
    """
    contenders = _own(build)
    missing: dict[str, str] = {}
    parts = [_preloads(build, peers), _linked(build, linked)]
    if with_go:
        parts.append(_go(build, bench / "peers/go"))
    for found, lacking in parts:
        contenders += found
        missing |= lacking
    return Field([identify(contender) for contender in contenders], missing)
