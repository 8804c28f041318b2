# SPDX-License-Identifier: Apache-2.0
"""How far predicted resident bytes are from measured ones, and where resident bytes are.

Each program is recorded, simulated, and run under the preloaded malloc, plain and tracked; then
under the other allocators of this machine. The page that it writes says what each figure is.

    ./dev study resident [--only NAME] [--quick] [--repeat 5] [-o FILE.md]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import spanwise as sw
from real.launch import build_launcher, finish, start
from runner.contenders import PRELOADS
from runner.provenance import provenance
from spanwise import _format
from spanwise.ledger.parts import PARTS
from spanwise.recordings.recorder import run_recorded

_JSON = """
import json, sys
for _ in range(4):
    k = json.loads(json.dumps([{"a": i, "b": str(i) * 3} for i in range(int(sys.argv[1]))]))
"""
_DICT = """
import sys
x = {}
for i in range(int(sys.argv[1])):
    x[str(i * 7919 % 100003)] = (i, str(i))
"""
_TEXT = """
import re, sys
w = [("word%d " % (i * 31 % 977)) * (i % 9) for i in range(int(sys.argv[1]))]
c = [re.sub("[aeiou]", "_", t).split() for t in w]
"""
_HASH = "my %h; $h{$_ * 7919 % 100003} .= 'v' x ($_ % 40) for 1..$ARGV[0]; exit(0)"
_SORT = "my @a = map { $_ * 7919 % 1000003 . 'x' } 1..$ARGV[0]; @a = sort @a; exit(0)"
_SQL = (
    "create table t(a, b text); with recursive c(i) as (select 1 union all select i + 1 from c"
    " where i < {n}) insert into t select i, hex(i * 7919) from c; create index x on t(b);"
    " select count(*) from t where b like '%7%';"
)
_LUA = "local t = {} for i = 1, {n} do t[i] = {i, tostring(i), x = i * 7} end"
_AWK = "BEGIN { for (i = 0; i < n; i++) a[i * 7919 % 100003] = a[i % 977] i; print length(a) }"
_NODE = "const m = new Map(); for (let i = 0; i < +process.argv[1]; i++) m.set('k' + i, [i, i]);"
_JQ = 'split("\\n") | map(length) | add'


@dataclass(frozen=True)
class Program:
    """A program with its inputs: {n} and {file}, a text of n lines, stand for the input."""

    name: str
    argv: tuple[str, ...]
    inputs: tuple[int, int]


PROGRAMS = (
    Program("python-json", ("python3", "-c", _JSON, "{n}"), (6000, 40000)),
    Program("python-dict", ("python3", "-c", _DICT, "{n}"), (20000, 120000)),
    Program("python-text", ("python3", "-c", _TEXT, "{n}"), (6000, 40000)),
    Program("perl-hash", ("perl", "-e", _HASH, "{n}"), (30000, 200000)),
    Program("perl-sort", ("perl", "-e", _SORT, "{n}"), (30000, 200000)),
    Program("sqlite", ("sqlite3", ":memory:", _SQL), (10000, 60000)),
    Program("lua", ("lua5.4", "-e", _LUA), (20000, 150000)),
    Program("mawk", ("mawk", "-v", "n={n}", _AWK), (30000, 200000)),
    Program("jq", ("jq", "-R", "-s", _JQ, "{file}"), (5000, 60000)),
    Program("sort", ("sort", "--parallel=1", "-o", "{file}.sorted", "{file}"), (20000, 300000)),
    Program("xz", ("xz", "--keep", "--force", "-T1", "-2", "{file}"), (5000, 60000)),
    Program("node", ("node", "-e", _NODE, "{n}"), (5000, 100000)),
)
QUICK = ("perl-hash", "sort")


@dataclass
class Figures:
    """What was seen of a program at one input. Sizes are in bytes; errors are signed shares.

    Attributes:
        case: program and input.
        peak: the ledger predicted for the moment at which most is resident.
        at_end: resident bytes of the heap at the end, predicted; and measured, one a plain run.
        at_peak: the same when most is requested, measured in one tracked run.
        process: peak RSS of the whole process, predicted; and measured, one a plain run.
        outside: resident bytes outside of the heap at the end of each plain run.
        peers: peak RSS under other allocators; None: it did not end well.
    """

    case: str
    peak: sw.Ledger
    at_end: tuple[int, list[int]]
    at_peak: tuple[int, list[int]]
    process: tuple[int, list[int]]
    outside: list[int]
    peers: dict[str, int | None]


def error_of(pair: tuple[int, list[int]]) -> float:
    """Predicted against the median of what was measured."""
    measured = statistics.median(pair[1])
    return (pair[0] - measured) / measured


def argv_of(program: Program, size: int, folder: Path) -> list[str]:
    """The words of a run, with its input file written."""
    words = []
    for word in program.argv:
        if "{file}" in word:
            file = folder / f"{program.name}-{size}.txt"
            file.write_text("".join(f"{i * 7919 % 1000003} line {i % 97}\n" for i in range(size)))
            words.append(word.replace("{file}", str(file)))
        else:
            words.append(word.replace("{n}", str(size)))
    return words


@contextmanager
def quiet() -> Iterator[None]:
    """What programs print goes nowhere."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def look(program: Program, size: int, repeat: int, folder: Path, launcher: Path) -> Figures:
    """Records, simulates and measures one program at one input."""
    argv = argv_of(program, size, folder)
    env = {**os.environ, "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
    with quiet():
        told = run_recorded(argv, folder / f"{program.name}-{size}.swt", stacks=0, env=env)
        plain = [sw.run(argv, tracked=False, env=env).main for _ in range(repeat)]
        tracked = sw.run(argv, env=env)
    recording = told.recordings()[0]
    peak, end = recording.ledger("c16", "peak-resident"), recording.ledger("c16", "end")
    requested = recording.ledger("c16", "peak")
    runs = [run for run in plain if run is not None and run.ledger.resident_bytes is not None]
    if not runs or tracked.peak is None or tracked.peak.resident_bytes is None:
        raise sw.StateError(f"{program.name}: a run told no resident bytes")
    ends = [run.ledger.resident_bytes or 0 for run in runs]
    outside = [(run.ledger.rss_bytes or 0) - own for run, own in zip(runs, ends, strict=True)]
    predicted = int(statistics.median(outside)) + (peak.resident_bytes or 0)
    return Figures(
        f"{program.name}, {size:,}",
        peak,
        (end.resident_bytes or 0, ends),
        (requested.resident_bytes or 0, [tracked.peak.resident_bytes]),
        (predicted, [run.peak_rss_bytes for run in runs]),
        outside,
        peer_peaks(argv, folder, launcher),
    )


def peer_peaks(argv: list[str], folder: Path, launcher: Path) -> dict[str, int | None]:
    """Peak RSS under glibc and the libraries that Debian has of others."""
    found: dict[str, int | None] = {}
    added = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
    for name, library in [("glibc", ""), *((n, lib) for n, (lib, _) in PRELOADS.items())]:
        place = folder / "peer" / name
        place.mkdir(parents=True, exist_ok=True)
        usage = finish(start(launcher, library, argv, place, added), place)
        found[name] = None if usage.error else usage.peak_rss_bytes
    return found


# --- the page -------------------------------------------------------------------------------------


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _between(values: list[int]) -> str:
    low, high = _format.size(min(values)), _format.size(max(values))
    return low if low == high else f"{low} .. {high}"


def _spread(all_figures: list[Figures], name: str) -> str:
    errors = [abs(error_of(getattr(one, name))) for one in all_figures]
    return f"median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = f"|---|{'---:|' * (len(head) - 1)}"
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return [lines[0], rule, *lines[1:]]


def _pair_rows(all_figures: list[Figures], name: str) -> list[tuple[str, ...]]:
    pairs = [(one.case, getattr(one, name)) for one in all_figures]
    return [
        (case, _format.size(pair[0]), _between(pair[1]), _percent(error_of(pair)))
        for case, pair in pairs
    ]


def page(all_figures: list[Figures], missing: list[str], repeat: int) -> str:
    """The page of docs/measurements."""
    made = provenance(Path(__file__).resolve().parents[2], Path("build/bench"))
    machine, head = made["machine"], ("program, input", "predicted", "measured", "error")
    terms = {
        n: t for n, t in PARTS.items() if any(getattr(f.peak.resident, n) for f in all_figures)
    }
    lines = [
        "# Resident bytes, predicted and measured",
        "",
        f"Written by `./dev study resident --repeat {repeat}`, {time.strftime('%Y-%m-%d')}, commit"
        f" {made['commit']}, {machine['cpu']}, {machine['cpus']} processors, {machine['system']};"
        f" load {machine['load']:.1f} as it was written. Table c16. Sizes do not depend on the"
        " speed of the machine, but for pages that go back by the clock.",
        "",
        f"- the heap's own pages at the end, plain malloc: {_spread(all_figures, 'at_end')}",
        f"- the heap's own pages when most is requested, tracked malloc:"
        f" {_spread(all_figures, 'at_peak')}",
        f"- the whole process, peak RSS, plain malloc: {_spread(all_figures, 'process')}",
        "",
        "Errors are predicted less the median measured, of the latter. A range is that of the runs:"
        " a program that has one is not the same from run to run. What is predicted takes each"
        " program to write all that it asks for; one with large buffers does not"
        " (`large_touched_percent`).",
        "",
        "## The heap's own pages at the end",
        "",
        *_table(head, _pair_rows(all_figures, "at_end")),
        "",
        "## The heap's own pages when most is requested",
        "",
        *_table(head, _pair_rows(all_figures, "at_peak")),
        "",
        "## The whole process: peak RSS",
        "",
        "Predicted is what lies outside of the heap at the end (text, stacks, mappings of the"
        " program's own), and the heap's highest resident bytes.",
        "",
        *_table(
            (*head, "outside"),
            [
                (*row, _between(one.outside))
                for row, one in zip(_pair_rows(all_figures, "process"), all_figures, strict=True)
            ],
        ),
        "",
        "## Where it goes: the parts that are resident at the heap's highest, predicted",
        "",
        *_table(
            ("program, input", *terms.values()),
            [
                (one.case, *(_format.size(getattr(one.peak.resident, name)) for name in terms))
                for one in all_figures
            ],
        ),
        "",
        "## Beside others: peak RSS",
        "",
        *_table(
            ("program, input", "spanwise", "glibc", *PRELOADS),
            [
                (
                    one.case,
                    _format.size(statistics.median(one.process[1])),
                    *("-" if rss is None else _format.size(rss) for rss in one.peers.values()),
                )
                for one in all_figures
            ],
        ),
        "",
        *([f"Not here: {', '.join(missing)}.", ""] if missing else []),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study."""
    parser = argparse.ArgumentParser(
        prog="./dev study resident",
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="example: ./dev study resident --only sort -o resident.md",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="only this program")
    parser.add_argument("--quick", action="store_true", help="two programs, small inputs")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="plain runs of each (3)")
    parser.add_argument("-o", "--output", metavar="FILE.md", help="the page")
    options = parser.parse_args(arguments)
    names = options.only or (QUICK if options.quick else [one.name for one in PROGRAMS])
    chosen = [one for one in PROGRAMS if one.name in names]
    missing = [one.name for one in chosen if shutil.which(one.argv[0]) is None]
    if not chosen or len(chosen) == len(missing):
        print(f"no program to run: {', '.join(names)}", file=sys.stderr)
        return 2
    found = []
    with tempfile.TemporaryDirectory() as folder:
        launcher = build_launcher(Path(folder))
        for program in (one for one in chosen if one.name not in missing):
            for size in program.inputs[: 1 if options.quick else 2]:
                print(f"{program.name}, {size:,}", file=sys.stderr)
                found.append(look(program, size, options.repeat, Path(folder), launcher))
    text = page(found, missing, options.repeat)
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
    print(text, end="")
    return 0
