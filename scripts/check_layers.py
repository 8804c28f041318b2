# SPDX-License-Identifier: Apache-2.0
"""Proves that the C sources keep the layer order of src/LAYERS.md.

Three proofs: every quoted #include of a file in src/ names a file of its own layer or of a layer
that its own may use; every undefined symbol of an object file is defined in such a layer (or
outside the project); and the files of one folder call each other in no ring, so that each can be
read after those it calls. Exit status: 0 clean, 1 violations (one line each), 2 bad usage or input.

Example:
    python3 scripts/check_layers.py --objects build/release
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from checking import InputError, Room, command_line, read_rooms, run

INCLUDE_LINE = re.compile(r'^\s*#\s*include\s+(?:"(?P<quoted>[^"]+)"|<(?P<angled>[^>]+)>)')
PUBLIC = "include"


def layer_of(layers: Iterable[Room], path: str) -> Room | None:
    """The layer that owns a path, or None."""
    return next((layer for layer in layers if layer.owns(path)), None)


def check_includes(root: Path, layers: list[Room]) -> Iterator[str]:
    """Yields one line for each include that breaks the order."""
    sources = sorted([*root.glob("src/**/*.[ch]"), *root.glob("include/**/*.h")])
    if not sources:
        raise InputError(f"{root}: no C source below src/ or include/")
    for source in sources:
        path = source.relative_to(root).as_posix()
        own = layer_of(layers, path)
        public = path.startswith(f"{PUBLIC}/")
        if own is None and not public:
            yield f"{path}:1: in no layer of src/LAYERS.md; add its folder there"
            continue
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE_LINE.match(line)
            if match is None:
                continue
            name = match["quoted"] or match["angled"]
            inside = (root / "src" / name).is_file()
            if name.startswith("spanwise/") or (match["angled"] is not None and not inside):
                continue
            if public:
                yield f'{path}:{number}: public header includes "{name}", which is not public'
                continue
            target = layer_of(layers, f"src/{name}")
            if target is None or not inside:
                yield f'{path}:{number}: "{name}" is no file of a layer; include by path from src/'
            elif own is not None and target.name not in own.allowed:
                yield f'{path}:{number}: layer {own.name} may not include {target.name} ("{name}")'


@dataclass
class Object:
    """An object file: which source it comes from and the symbols that cross its border."""

    target: str
    source: str
    layer: Room
    defined: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)


def read_objects(root: Path, build: Path, layers: list[Room], nm: str) -> list[Object]:
    """Reads every object of CMake's object folders below `build` with nm.

    CMake leaves the object of a source that was moved or removed; such an object says nothing.

    Raises:
        InputError: no object found, or nm fails.
    """
    objects: dict[str, Object] = {}
    for path in sorted(build.glob("CMakeFiles/*.dir/src/**/*.o")):
        inside = path.relative_to(build / "CMakeFiles")
        source = Path(*inside.parts[1:]).with_suffix("").as_posix()
        if not (root / source).is_file():
            continue
        layer = layer_of(layers, source)
        if layer is None:
            raise InputError(f"{path}: {source} is in no layer of src/LAYERS.md")
        objects[str(path)] = Object(inside.parts[0], source, layer)
    if not objects:
        raise InputError(f"{build}: no object files; build it first (cmake --build {build})")
    for file, name, kind in symbols_of(list(objects), nm):
        item = objects[file]
        (item.undefined if kind in "Uw" else item.defined).add(name)
    return list(objects.values())


def symbols_of(paths: list[str], nm: str) -> Iterator[tuple[str, str, str]]:
    """Yields object, name and kind of each symbol that other objects see; nm runs once for all.

    Raises:
        InputError: nm fails.
    """
    result = subprocess.run(
        [nm, "--print-file-name", "--format=posix", "--extern-only", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise InputError(f"{nm}: {result.stderr.strip()}")
    for line in result.stdout.splitlines():
        path, _, symbol = line.partition(".o: ")
        name, kind = symbol.split()[:2]
        yield f"{path}.o", name, kind


def in_c_library(name: str) -> bool:
    """Whether the C library defines the name, so that a preloaded library may replace it."""
    return hasattr(ctypes.CDLL(None), name)


def check_symbols(objects: list[Object]) -> Iterator[str]:
    """Yields one line for each reference to a symbol that only forbidden layers define."""
    for item in objects:
        # A library is one link: its objects see only the definitions of their own target.
        definers: dict[str, list[Object]] = {}
        for other in objects:
            if other.target == item.target:
                for name in other.defined & item.undefined:
                    definers.setdefault(name, []).append(other)
        for name, others in sorted(definers.items()):
            if any(other.layer.name in item.layer.allowed for other in others):
                continue
            if in_c_library(name):
                continue
            yield (
                f"{item.source}: layer {item.layer.name} may not use {name} of layer "
                f"{others[0].layer.name} ({others[0].source})"
            )


Calls = dict[str, dict[str, set[str]]]
"""Source -> other source of its folder that it refers to -> the symbols."""


def calls_in_folders(objects: Iterable[Object]) -> dict[str, Calls]:
    """Who refers to whose symbols among the files of a folder; by folder, over all targets."""
    by_room: dict[tuple[str, str], list[Object]] = {}
    for item in objects:
        folder = Path(item.source).parent.as_posix()
        by_room.setdefault((item.target, folder), []).append(item)
    folders: dict[str, Calls] = {}
    for (_, folder), items in by_room.items():
        calls = folders.setdefault(folder, {})
        for user, owner in itertools.permutations(items, 2):
            if symbols := user.undefined & owner.defined:
                calls.setdefault(user.source, {}).setdefault(owner.source, set()).update(symbols)
    return folders


def rings_of(calls: Calls) -> list[list[str]]:
    """The sets of sources that reach each other (strongly connected components of several)."""

    def reached_from(source: str) -> set[str]:
        reached: set[str] = set()
        waiting = [source]
        while waiting:
            fresh = calls.get(waiting.pop(), {}).keys() - reached
            reached |= fresh
            waiting += fresh
        return reached

    reach = {source: reached_from(source) for source in calls}
    rings = {
        tuple(sorted(other for other in reach[source] if source in reach.get(other, set())))
        for source in calls
        if source in reach[source]
    }
    return [list(ring) for ring in sorted(rings)]


def check_rings(objects: Iterable[Object]) -> Iterator[str]:
    """Yields one line for each ring: its files, and the symbols by which each calls the next."""
    for folder, calls in sorted(calls_in_folders(objects).items()):
        for ring in rings_of(calls):
            steps = [
                f"{Path(user).name} -> {Path(owner).name} ({', '.join(sorted(symbols))})"
                for user in ring
                for owner, symbols in sorted(calls[user].items())
                if owner in ring
            ]
            yield f"{folder}: {len(ring)} files call each other in a ring: {'; '.join(steps)}"


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--objects",
        type=Path,
        metavar="BUILD",
        action="append",
        default=[],
        help="a CMake build folder whose objects are checked too (repeatable)",
    )
    parser.add_argument("--nm", default="nm", help="the nm program (default: nm)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Runs the proofs and returns the exit status."""
    options = parse_arguments(arguments)

    def prove() -> tuple[list[str], str]:
        page = (options.root / "src/LAYERS.md").read_text(encoding="utf-8")
        layers = read_rooms(page, "LAYERS.md", "layer")
        violations = list(check_includes(options.root, layers))
        count = 0
        for build in options.objects:
            objects = read_objects(options.root, build, layers, options.nm)
            count += len(objects)
            violations += check_symbols(objects)
            violations += check_rings(objects)
        return violations, f"{len(layers)} layers, {count} objects"

    return run("check_layers", prove, "violations")


if __name__ == "__main__":
    sys.exit(main())
