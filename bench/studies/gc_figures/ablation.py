# SPDX-License-Identifier: Apache-2.0
"""The gain of parts of marking: prefetch distance, order, page size of spans, huge pages.

Each variant differs in one thing from ours: object by object, 32 objects between prefetch and scan,
spans of pages of 8 KiB, no huge pages. The distance is compiled in: mark_objects.c with another
number takes the place of the library's. Ours runs once more before each run of a variant, and a
ratio is that of two runs side by side: a machine that is slow for some minutes slows both.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runner.drawing import OTHERS, OURS, pyplot, save
from runner.errors import BenchError
from runner.provenance import measured_here
from runner.stats import Interval, median, ratio

from studies.gc_figures.runs import ROOT, parser_of, run, write_page
from studies.pages import Table

DISTANCES = (1, 2, 4, 8, 16, 64, 128)
SOURCE = "gc/mark_objects.c"
AHEAD = "SW_GC_AHEAD = 32 }"
PAGE_KIB = (4, 16, 32, 64)
OURS_NAME = "ours"
ROWS = {"random graph": ("random", 2_000_000), "list": ("list", 2_000_000), "tree": ("tree", 20)}
QUICK_ROWS = {"random graph": ("random", 1000), "list": ("list", 1000), "tree": ("tree", 8)}
FLAGS = ("-std=gnu11", "-O3", "-DNDEBUG", "-DSW_CHECK=1", "-pthread")


def _run(words: Sequence[str], what: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{what}: {done.stderr[-500:]}")


def archive_rest(build: Path, folder: Path) -> Path:
    """Archives the objects of a build of the library, except that of mark_objects.c.

    Raises:
        BenchError: they are not there.
    """
    ours = list(build.glob(f"CMakeFiles/spanwise_objects.dir/src/{SOURCE}.o"))
    if not ours:
        raise BenchError(f"{build}: no object of src/{SOURCE}; build bench_collectors there")
    objects = sorted(set(ours[0].parents[1].rglob("*.o")) - {ours[0]})
    archive = folder / "rest.a"
    _run(["ar", "qcs", str(archive), *map(str, objects)], "the library's objects")
    return archive


def build_distance(rest: Path, folder: Path, distance: int) -> Path:
    """bench_collectors with another distance of prefetches.

    Raises:
        BenchError: the source has not that text once, or the compiler failed.
    """
    header = (ROOT / "src/gc/mark.h").read_text(encoding="utf-8")
    if header.count(AHEAD) != 1:
        raise BenchError(f"src/gc/mark.h: '{AHEAD}' must stand there once")
    place = folder / str(distance)
    (place / "gc").mkdir(parents=True)
    text = header.replace(AHEAD, f"SW_GC_AHEAD = {distance} }}")
    (place / "gc/mark.h").write_text(text, encoding="utf-8")
    program = place / "bench_collectors"
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    folders = (place, ROOT / "include", ROOT / "src")
    sources = (ROOT / "src" / SOURCE, ROOT / "bench/collectors/bench_collectors.c")
    words = [*compiler, *FLAGS, *(f"-I{path}" for path in folders), *map(str, sources)]
    _run([*words, str(rest), "-o", str(program)], f"prefetch distance {distance}")
    return program


def variants_of(
    build: Path, folder: Path, distances: Sequence[int]
) -> dict[str, tuple[Path, dict[str, str]]]:
    """Program and environment by name; the first one is ours."""
    program = build / "bench_collectors"
    found: dict[str, tuple[Path, dict[str, str]]] = {OURS_NAME: (program, {})}
    rest = archive_rest(build, folder)
    for distance in distances:
        found[f"prefetch distance {distance}"] = (build_distance(rest, folder, distance), {})
    found["span by span"] = (program, {"BENCH_GC_ORDER": "span"})
    for kib in PAGE_KIB:
        found[f"pages of {kib} KiB"] = (program, {"BENCH_PAGE_BYTES": str(kib << 10)})
    found["huge pages"] = (program, {"BENCH_HUGE_PAGES": "1"})
    both = {"BENCH_HUGE_PAGES": "1", "BENCH_GC_ORDER": "span"}
    found["huge pages, span by span"] = (program, both)
    return found


def draw(
    ratios: dict[str, dict[str, Interval]], rows: Sequence[str], path: Path, measured: str
) -> None:
    """Bars of each variant over ours with their intervals, a panel a row."""
    figure, axes = pyplot().subplots(
        1, len(rows), sharey=True, squeeze=False, figsize=(11, 5), layout="constrained"
    )
    names = list(ratios)
    for axis, row in zip(axes[0], rows, strict=True):
        found = [ratios[name][row] for name in names]
        middles = [one.median for one in found]
        ends = ([one.median - one.low for one in found], [one.high - one.median for one in found])
        colours = [OURS if name == OURS_NAME else OTHERS for name in names]
        axis.barh(range(len(names)), middles, xerr=ends, color=colours, ecolor="black", capsize=2)
        axis.axvline(1, color="black", lw=0.8)
        axis.set_yticks(range(len(names)), names)
        axis.set(xlabel="processor time over ours", title=row)
    axes[0][0].invert_yaxis()
    figure.suptitle("A collection with one thing different")
    save(figure, path, measured)


def measure(
    variants: dict[str, tuple[Path, dict[str, str]]], rows: dict[str, tuple[str, int]], rounds: int
) -> tuple[dict[tuple[str, str], list[float]], dict[tuple[str, str], list[float]]]:
    """Nanoseconds of each variant and row, and those of ours that ran just before."""
    found: dict[tuple[str, str], list[float]] = {}
    before: dict[tuple[str, str], list[float]] = {}
    ours, nothing = variants[OURS_NAME]
    for _ in range(rounds):
        for name, (program, environment) in variants.items():
            for row, (bench, size) in rows.items():
                first = run(ours, bench, size, **nothing).figures["cpu_ns"]
                second = first
                if name != OURS_NAME:
                    second = run(program, bench, size, **environment).figures["cpu_ns"]
                before.setdefault((name, row), []).append(first)
                found.setdefault((name, row), []).append(second)
    return found, before


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and tells the page."""
    options = parser_of("gc-ablation", __doc__, "-o parts.md --plot parts.png").parse_args(
        arguments
    )
    rows, distances = (QUICK_ROWS, DISTANCES[:1]) if options.quick else (ROWS, DISTANCES)
    if options.quick:
        options.rounds = 1
    with tempfile.TemporaryDirectory(prefix="spanwise-ablation-") as folder:
        variants = variants_of(options.build, Path(folder), distances)
        found, before = measure(variants, rows, options.rounds)
    ratios = {
        name: {row: ratio(found[name, row], before[name, row]) for row in rows} for name in variants
    }
    cells = []
    for name in variants:
        pairs = [(median(found[name, row]) / 1e6, ratios[name][row]) for row in rows]
        cells.append(
            [name, *(f"{ms:.4g} ({one.median:.2f} [{one.low:.2f}, {one.high:.2f}])"
                     for ms, one in pairs)]
        )  # fmt: skip
    if options.plot:
        draw(ratios, list(rows), Path(options.plot), measured_here(options.build))
    text = (
        "Milliseconds of processor time of a whole collection (the least of three in a process),"
        " medians of the rounds, and in brackets the ratio to ours, which ran just before, with"
        " the interval of its median: object by object, 32 objects between prefetch and scan,"
        " spans of pages of 8 KiB, the system's usual pages. Random graph and list have 2 million"
        " objects of 64 B, the tree 2 million of 32 B."
    )
    header = ["variant", *(f"{row}, ms" for row in rows)]
    tables = [Table("By variant", header, cells)]
    words = ["gc-ablation", *(sys.argv[2:] if arguments is None else arguments)]
    write_page("What parts of marking save", text, tables, options, words)
    return 0
