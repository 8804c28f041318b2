# SPDX-License-Identifier: Apache-2.0
"""Builds bench/ablation.c with the library's sources, once for each variant, and keeps the result.

A program is named after a hash of all that it is made of (compiler, flags, every source), so an old
one is never taken for a new one. Flags are those of cmake/SpanwiseTargets.cmake, release.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench_lib.ablation_plan import Variant
from bench_lib.errors import BenchError

_ROOMS = ("base", "os/linux", "ds", "size", "gen", "page", "span", "heap")
_FLAGS = (
    *("-std=gnu11", "-O3", "-DNDEBUG", "-DSW_CHECK=1", "-fPIC", "-fvisibility=hidden"),
    *("-fno-semantic-interposition", "-pthread"),
)
Recipe = tuple[tuple[str, ...], int | None]
"""Defines and cut-off of a program. Variants that only run otherwise share one."""


@dataclass(frozen=True)
class Built:
    """A program.

    Attributes:
        file: where it is.
        code_bytes: its machine code (section .text).
    """

    file: Path
    code_bytes: int


def recipe_of(variant: Variant) -> Recipe:
    """What has to be compiled for a variant."""
    return variant.defines, variant.cutoff


def _run(words: list[str], what: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(f"{words[0]}: {error.strerror}; install it or set CC") from error
    if done.returncode != 0:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise BenchError(f"{what}: {words[0]} ended with {done.returncode}: {first}")
    return done.stdout


def compiler() -> list[str]:
    """The words of $CC, or cc."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


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


def _key(root: Path, recipe: Recipe, version: str) -> str:
    digest = hashlib.sha256(repr((recipe, _FLAGS, compiler(), version)).encode())
    tracked = [*root.glob("src/**/*.[ch]"), *root.glob("include/spanwise/**/*.h")]
    tracked += [root / "bench/ablation.c", *root.glob("scripts/sizeclasses_lib/*.py")]
    for path in sorted(tracked):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _generate(root: Path, folder: str, cutoff: int) -> Path:
    """The specialised paths of c16 up to a cut-off."""
    words = [sys.executable, str(root / "scripts/sizeclasses.py"), "--table", "c16"]
    _run([*words, "--cutoff", str(cutoff), "-o", folder], f"cut-off {cutoff}")
    return Path(folder) / "paths_c16.c"


def _compile(root: Path, recipe: Recipe, target: Path) -> None:
    """Leaves a whole program at `target` or nothing."""
    defines, cutoff = recipe
    sources = [file for room in _ROOMS for file in sorted((root / "src" / room).glob("*.c"))]
    with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as folder:
        if cutoff is not None:
            stock = root / "src/gen/paths_c16.c"
            sources = [file for file in sources if file != stock]
            sources.append(_generate(root, folder, cutoff))
        words = [*compiler(), *_FLAGS, *(f"-D{name}" for name in defines)]
        words += [f"-I{root / 'include'}", f"-I{root / 'src'}", str(root / "bench/ablation.c")]
        part = Path(folder) / "program"
        _run([*words, *map(str, sources), "-o", str(part)], f"{defines or 'ours'}, {cutoff}")
        part.replace(target)


def build_one(root: Path, folder: Path, recipe: Recipe) -> Built:
    """The program of one recipe, compiled if it is not there yet.

    Raises:
        BenchError: compiler or generator failed; the message has its first line.
    """
    version = _run([*compiler(), "--version"], "compiler")
    target = folder / f"ablation-{_key(root, recipe, version)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"{folder}: {error.strerror}; give another --build") from error
    if not target.is_file():
        _compile(root, recipe, target)
    return Built(target, parse_text_bytes(_run(["size", "-A", str(target)], "size")))


def build_all(root: Path, folder: Path, variants: Iterable[Variant]) -> Mapping[Recipe, Built]:
    """The programs of all variants, two at a time.

    Args:
        root: of the checkout.
        folder: where programs are kept.
        variants: any number, equal ones too.
    """
    recipes = list(dict.fromkeys(map(recipe_of, variants)))
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        found = list(pool.map(lambda recipe: build_one(root, folder, recipe), recipes))
    return dict(zip(recipes, found, strict=True))
