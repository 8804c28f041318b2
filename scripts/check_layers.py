# SPDX-License-Identifier: Apache-2.0
"""Checks that the C sources keep the layer order of src/LAYERS.md.

Every quoted #include of a file in src/ names a file of its own layer or of one that it may use.
Every undefined symbol of an object file is defined in such a layer, or outside the project. The
files of a folder have no call cycle. Exit status: 0 clean, 1 violations (one line each), 2 bad
usage or input.

Example:
    python3 scripts/check_layers.py --objects build/release
"""

from __future__ import annotations

import ctypes
import graphlib
import itertools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from checking import InputError, command_line, run

INCLUDE_LINE = re.compile(r'^\s*#\s*include\s+(?:"(?P<quoted>[^"]+)"|<(?P<angled>[^>]+)>)')
LAYER_LINE = re.compile(r"^\d+\. `(?P<name>[a-z_-]+)`: (?P<patterns>`[^(]+`)(?P<note>.*)$")
PUBLIC = "include"


@dataclass
class Layer:
    """A line of src/LAYERS.md: its name, its paths (a folder ends with /), and what it may use."""

    name: str
    patterns: list[str]
    allowed: set[str]

    def owns(self, path: str) -> bool:
        """Return whether the path, with slashes, is in the layer."""
        return any(
            path.startswith(pattern) if pattern.endswith("/") else fnmatch(path, pattern)
            for pattern in self.patterns
        )


def read_layers(text: str) -> list[Layer]:
    """Parse the numbered list of src/LAYERS.md: a layer may use itself and those above it.

    Raises:
        InputError: nothing is listed, a name is listed twice, or "uses only" names no layer above.
    """
    layers: list[Layer] = []
    for match in filter(None, map(LAYER_LINE.match, text.splitlines())):
        name = match["name"]
        known = {layer.name for layer in layers}
        if name in known:
            raise InputError(f"LAYERS.md: layer '{name}' is listed twice")
        allowed = known
        if "uses only" in match["note"]:
            allowed = set(re.findall(r"`([a-z_-]+)`", match["note"]))
            if unknown := ", ".join(sorted(allowed - known)):
                raise InputError(f"LAYERS.md: '{name}' uses '{unknown}', not a layer above it")
        layers.append(Layer(name, re.findall(r"`([^`]+)`", match["patterns"]), allowed | {name}))
    if not layers:
        raise InputError("LAYERS.md: no line of the form '1. `name`: `folder/`'")
    return layers


def layer_of(layers: Iterable[Layer], path: str) -> Layer | None:
    """Return the layer that owns a path, or None."""
    return next((layer for layer in layers if layer.owns(path)), None)


def check_includes(root: Path, layers: list[Layer]) -> Iterator[str]:
    """Yield one line for each include that breaks the order."""
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
    """An object file: its source, and the symbols that it defines or needs."""

    target: str
    source: str
    layer: Layer
    defined: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)


def read_objects(root: Path, build: Path, layers: list[Layer], nm: str) -> list[Object]:
    """Read every object of CMake's object folders below `build` with nm.

    Objects of sources that were moved or removed, which CMake does not delete, are ignored.

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
    """Yield object, name and kind of each external symbol, from one run of nm.

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
    """Return whether the C library defines the name, so that a preloaded library may replace it."""
    return hasattr(ctypes.CDLL(None), name)


def check_symbols(objects: list[Object]) -> Iterator[str]:
    """Yield one line for each reference to a symbol that only forbidden layers define."""
    for item in objects:
        # Each target is linked separately, so objects see only the definitions of their own target.
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


def calls_in_folders(objects: Iterable[Object]) -> dict[str, dict[tuple[str, str], set[str]]]:
    """Return folder -> (user, owner) -> symbols between sources of the folder, over all targets."""
    by_folder: dict[tuple[str, str], list[Object]] = {}
    for item in objects:
        folder = Path(item.source).parent.as_posix()
        by_folder.setdefault((item.target, folder), []).append(item)
    found: dict[str, dict[tuple[str, str], set[str]]] = {}
    for (_, folder), items in by_folder.items():
        calls = found.setdefault(folder, {})
        for user, owner in itertools.permutations(items, 2):
            if symbols := user.undefined & owner.defined:
                calls.setdefault((user.source, owner.source), set()).update(symbols)
    return found


def check_cycles(objects: Iterable[Object]) -> Iterator[str]:
    """Yield one line per folder with a call cycle: its files, and the symbols that link them."""
    for folder, calls in sorted(calls_in_folders(objects).items()):
        sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
        for user, owner in calls:
            sorter.add(user, owner)
        try:
            sorter.prepare()
        except graphlib.CycleError as error:
            cycle = error.args[1][::-1]
            steps = [
                f"{Path(user).name} -> {Path(owner).name} ({', '.join(sorted(calls[user, owner]))})"
                for user, owner in itertools.pairwise(cycle)
            ]
            yield f"{folder}: call cycle: {'; '.join(steps)}"


def main(arguments: list[str] | None = None) -> int:
    """Run the checks and return the exit status."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--objects",
        type=Path,
        metavar="BUILD",
        action="append",
        default=[],
        help="a CMake build folder; its objects are checked too (repeatable)",
    )
    parser.add_argument("--nm", default="nm", help="the nm program (default: nm)")
    options = parser.parse_args(arguments)

    def work() -> tuple[list[str], str]:
        page = (options.root / "src/LAYERS.md").read_text(encoding="utf-8")
        layers = read_layers(page)
        violations = list(check_includes(options.root, layers))
        count = 0
        for build in options.objects:
            objects = read_objects(options.root, build, layers, options.nm)
            count += len(objects)
            violations += check_symbols(objects)
            violations += check_cycles(objects)
        return violations, f"{len(layers)} layers, {count} objects"

    return run("check_layers", work, "violations")


if __name__ == "__main__":
    sys.exit(main())
