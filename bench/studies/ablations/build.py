# SPDX-License-Identifier: Apache-2.0
"""Builds ablation.c with the library's sources, once for each variant, and keeps the result.

A program is named after hashes of all that it is made of: the sources, then compiler, flags and
switches. So an old one is never taken for a new one, and those of other sources are thrown away.
Flags are those of cmake/SpanwiseTargets.cmake, release.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner import children
from runner.errors import BenchError

from studies.ablations.patches import patched
from studies.ablations.plan import Variant

_ROOMS = ("base", "os/linux", "ds", "size", "gen", "page", "span", "heap")
_PROGRAM = "bench/studies/ablations/ablation.c"
_FLAGS = (
    *("-std=gnu11", "-O3", "-DNDEBUG", "-DSW_CHECK=1", "-fPIC", "-fvisibility=hidden"),
    *("-fno-semantic-interposition", "-pthread"),
)
Recipe = tuple[str, int | None]
"""The patch and the cut-off of a program; variants that differ only in run-time options share
it."""


@dataclass(frozen=True)
class Built:
    """A program.

    Attributes:
        file: where it is.
        code_bytes: its machine code (section .text).
    """

    file: Path
    code_bytes: int


@dataclass(frozen=True)
class Site:
    """The folders and the compiler with which programs are built.

    Attributes:
        root: of the checkout.
        folder: where programs are kept.
        compiler: words of its command.
        version: first line of what it says of itself.
        sources: hash of every source.
    """

    root: Path
    folder: Path
    compiler: tuple[str, ...]
    version: str
    sources: str


def recipe_of(variant: Variant) -> Recipe:
    """What has to be compiled for a variant."""
    return variant.patch, variant.cutoff


def _telling_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = (line for line in lines if "error" in line or "undefined" in line)
    return next(telling, lines[-1] if lines else "no message")


def _run(words: list[str], what: str) -> str:
    done = children.run(words)
    if done.returncode != 0:
        why = _telling_line(done.stderr)
        raise BenchError(f"{what}: {words[0]} ended with {done.returncode}: {why}")
    return done.stdout


def compiler() -> tuple[str, ...]:
    """The words of $CC, or cc."""
    return tuple(shlex.split(os.environ.get("CC", ""))) or ("cc",)


def _version() -> str:
    words = compiler()
    try:
        said = children.run([*words, "--version"])
    except BenchError as error:
        raise BenchError(f"{error}; install it or set CC") from error
    if said.returncode != 0 or not said.stdout:
        raise BenchError(f"{words[0]} --version ended with {said.returncode}; set CC to a compiler")
    return said.stdout.splitlines()[0]


def _hash_of_sources(root: Path) -> str:
    digest = hashlib.sha256()
    tracked = [*root.glob("src/**/*.[ch]"), *root.glob("include/spanwise/**/*.h")]
    tracked += [root / _PROGRAM, *root.glob("bench/rows/*.h"), root / "scripts/sizeclasses.py"]
    tracked += root.glob("python/spanwise_sizeclasses/*.py")
    tracked.append(root / "bench/studies/ablations/patches.py")
    for path in sorted(tracked):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def survey(root: Path, folder: Path) -> Site:
    """Asks the compiler for its version, and hashes the sources.

    Args:
        root: of the checkout.
        folder: where programs are kept; made if it is not there.

    Raises:
        BenchError: there is no compiler, or the folder cannot be made.
    """
    version = _version()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"{folder}: {error.strerror}; give another --build") from error
    return Site(root, folder, compiler(), version, _hash_of_sources(root))


def parse_text_bytes(listing: str) -> int:
    """The length of .text in the output of `size -A`.

    Raises:
        BenchError: it is not there.
    """
    for line in listing.splitlines():
        cells = line.split()
        if len(cells) == 3 and cells[0] == ".text":
            return int(cells[1])
    raise BenchError("size -A: no section .text in its output")


def _file_of(site: Site, recipe: Recipe) -> Path:
    made_by = repr((recipe, _FLAGS, site.compiler, site.version))
    return site.folder / f"{site.sources}-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}"


def _remove_old(site: Site) -> None:
    for path in site.folder.glob("?" * 12 + "-" + "?" * 12):
        if not path.name.startswith(site.sources):
            with contextlib.suppress(OSError):
                path.unlink()


def _generate(root: Path, folder: str, cutoff: int) -> Path:
    """The specialised paths of c16 up to a cut-off."""
    words = [sys.executable, str(root / "scripts/sizeclasses.py"), "--table", "c16"]
    _run([*words, "--cutoff", str(cutoff), "-o", folder], f"cut-off {cutoff}")
    return Path(folder) / "paths_c16.c"


def _compile(site: Site, recipe: Recipe, target: Path) -> None:
    """Leaves a whole program at `target` or nothing."""
    (patch, cutoff), root = recipe, site.root
    with tempfile.TemporaryDirectory(prefix=".part-", dir=site.folder) as folder:
        where = patched(root, Path(folder) / "source", patch) if patch else root
        sources = [file for room in _ROOMS for file in sorted((where / "src" / room).glob("*.c"))]
        if cutoff is not None:
            stock = where / "src/gen/paths_c16.c"
            sources = [file for file in sources if file != stock]
            sources.append(_generate(root, folder, cutoff))
        included = (where / "include", where / "src", root / "bench/rows")
        words = [*site.compiler, *_FLAGS, *(f"-I{path}" for path in included)]
        words.append(str(root / _PROGRAM))
        part = Path(folder) / "program"
        what = "ours" if cutoff is None else f"cut-off {cutoff}"
        _run([*words, *map(str, sources), "-o", str(part)], f"{what} {patch}".rstrip())
        part.replace(target)


def build_one(site: Site, recipe: Recipe) -> Built:
    """The program of one recipe, compiled if it is not there yet.

    Raises:
        BenchError: compiler or generator failed; the message has the line that says why.
    """
    target = _file_of(site, recipe)
    if not target.is_file():
        _compile(site, recipe, target)
    return Built(target, parse_text_bytes(_run(["size", "-A", str(target)], "size")))


def build_all(site: Site, variants: Iterable[Variant]) -> Mapping[Recipe, Built]:
    """The programs of all variants, two at a time; those of other sources are removed.

    Args:
        site: where and by what.
        variants: any number, equal ones too.
    """
    _remove_old(site)
    recipes = list(dict.fromkeys(map(recipe_of, variants)))
    workers = min(2, os.cpu_count() or 1)
    found = children.each(lambda recipe: build_one(site, recipe), recipes, workers)
    return dict(zip(recipes, found, strict=True))
