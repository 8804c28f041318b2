# SPDX-License-Identifier: Apache-2.0
"""spanwise demo: record, account, optimize, build and measure programs on this machine.

It writes its results to ./out.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from spanwise import _format, plots
from spanwise.builds.build import BuildOptions, build_with
from spanwise.builds.steps import BuildError, Compiler
from spanwise.commands import _options
from spanwise.commands._common import SubParsers, add_description, new_command, print_json, show
from spanwise.commands._options import add_option
from spanwise.ledger.ledger import Comparison
from spanwise.ledger.parts import PARTS
from spanwise.measure.bench import BenchFit, bench
from spanwise.measure.bench_cases import SEEDS, case_of, variables_of
from spanwise.measure.bench_result import BenchResult
from spanwise.measure.running import PRELOAD_TABLE
from spanwise.optimizer.result import OptimizeResult
from spanwise.optimizer.search import optimize
from spanwise.recordings.recorder import RecordOptions, run_recorded
from spanwise.recordings.recording import Recording
from spanwise.report import page
from spanwise.results.files import made_folder
from spanwise.tables.table import SizeClassTable

TABLES = ("go", "c16")
ROUNDS = 5
"""Runs under each allocator; the median counts."""
PYTHON = ("python3", "JSON and sqlite")
"""The names of program and input in the benchmark."""
REPORT = "python.html"
BUILD = "best"
"""Directory of the build, inside the output directory."""

PYTHON_JOB = """\
import json, sqlite3

people = [
    {"id": i, "name": f"name {i}", "tags": [f"t{i % 7}", f"u{i % 11}"], "score": i * 0.5}
    for i in range(12000)
]
again = json.loads(json.dumps(people))
base = sqlite3.connect(":memory:")
base.execute("create table people (id integer primary key, name text, score real)")
base.executemany("insert into people values (:id, :name, :score)", again)
base.execute("create index by_name on people (name)")
rows = base.execute("select name, score from people order by score desc").fetchall()
assert len(rows) == 12000
"""


@dataclass(frozen=True)
class RecordedProgram:
    """A recorded program and its ledgers."""

    label: str
    recording: Recording
    comparison: Comparison

    def sentence(self) -> str:
        """Return a sentence about the better table, and the waste under the other one."""
        best = self.comparison.best()
        worst = next(one for one in self.comparison.ledgers if one is not best)
        parts = {name: getattr(worst, name) for name in PARTS if name != "requested_bytes"}
        most = max(parts, key=lambda name: parts[name])
        share = _format.share(worst.waste_bytes, worst.held_bytes)
        return (
            f"{self.label}: {self.comparison.verdict().rstrip('.')}; under {worst.table}"
            f" {_format.size(worst.waste_bytes)} ({share}) of the bytes held at its peak was waste,"
            f" most of it {PARTS[most]} ({_format.size(parts[most])})"
        )


def add_demo(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "demo", "spanwise demo -o out", run_demo)
    add_description(
        parser,
        "Tables are compared by the peak resident bytes of a simulated run. The row 'limit' is"
        " what perfect packing would need: the highest requested bytes. python3 is"
        " recorded with PYTHONMALLOC=malloc, so that its objects reach malloc; the last line"
        " compares with plain python3, as its users run it.",
    )
    add_option(parser, "-o --output DIR", "default: out", default="out")
    _options.add_force_option(parser)


def run_demo(options: argparse.Namespace) -> int:
    """Records, accounts, plots, fits, builds and measures; the last lines are result and files."""
    folder = Path(options.output)
    with made_folder(folder):
        return _run_in(folder, options)


def _run_in(folder: Path, options: argparse.Namespace) -> int:
    quiet = bool(options.json)
    python = _show(_record_python(folder), "python3", "python", folder, quiet)
    shown = [python]
    compiled = _record_compiler(folder)
    if compiled is not None:
        shown.append(_show(compiled, "the C compiler", "compiler", folder, quiet))
    found, runs = _fit_and_run(python.recording, folder)
    _draw_tables(folder)
    _draw_round_up(python.recording, found.table, folder)
    if runs is not None:
        plots.save(runs.plot(), folder / "python-bench.png")
    _say("a report of python3")
    report = folder / REPORT
    stock = SizeClassTable.named(TABLES[-1])
    page.write(python.recording, report, stock, (), None, progress=None, advice=found)
    if options.json:
        ledgers = {one.label: one.comparison.to_dict() for one in shown}
        measured = None if runs is None else runs.to_dict()
        fitted = found.to_dict()
        print_json({**ledgers, "optimum": fitted, "bench": measured, "report": str(report)})
        return 0
    show(found, "")
    if runs is not None:
        show(runs, "")
    kept = (".swt", ".png", ".json", ".html")
    files = sorted(path.name for path in folder.iterdir() if path.suffix in kept)
    files += [f"{BUILD}/"] if runs is not None else []
    print(f"in {folder}/: {', '.join(files)}\n")
    for one in shown[1:]:
        show(one.sentence() + ".")
    print(f"All of python3 on one page, for any browser: {report.absolute()}")
    show(f"python3: {found.verdict()}")
    if runs is not None:
        show(runs.verdict())
    return 0


# --- a table for python3 --------------------------------------------------------------------------


def _fit_and_run(recording: Recording, folder: Path) -> tuple[OptimizeResult, BenchResult | None]:
    """Fits a table to python3, builds it and runs python3 under it and under all allocators."""
    _say("a table for python3")
    found = optimize(recording)
    _say(found.verdict())
    found.table.to_json(folder / "best.json")
    try:
        Compiler.find(None)
    except BuildError as error:
        _say(f"not built: {error}")
        return found, None
    made = build_with(found.table, folder / BUILD, BuildOptions(anyway=True), _say)
    _say(f"python3, {ROUNDS} times under each allocator of this machine")
    return found, _run_bench(found, made.folder)


def _run_bench(found: OptimizeResult, build: Path) -> BenchResult:
    case = case_of(_python_argv(), *PYTHON, SEEDS)
    resident = found.evaluation.resident_bytes
    pair = resident[PRELOAD_TABLE], resident[found.table.name]
    fit = BenchFit(
        case.program, found.table, found.holds, found.verdict(), build, "", {case.hash: pair}
    )
    return bench([case], fits={case.program: fit}, rounds=ROUNDS)


# --- recording ------------------------------------------------------------------------------------


def _say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


def _python_argv() -> list[str]:
    return [sys.executable, "-c", PYTHON_JOB]


def _record_python(folder: Path) -> Recording:
    _say("recording python3 (JSON and sqlite, PYTHONMALLOC=malloc)")
    output = folder / "python.swt"
    options = RecordOptions(env=variables_of({}), stdout=sys.stderr)
    outcome = run_recorded(_python_argv(), output, options)
    _say(outcome.lines()[-1])
    return Recording.open(output)


def _record_compiler(folder: Path) -> Recording | None:
    """Records gcc; keeps the process with the most memory, which is the compiler proper."""
    compiler = next(filter(shutil.which, ("gcc", "cc", "clang")), None)
    if compiler is None:
        _say("no C compiler on this machine: the second program is skipped")
        return None
    _say(f"recording {compiler} -O2 -c of 5,000 lines, with its children")
    with tempfile.TemporaryDirectory(prefix="spanwise-demo-") as scratch:
        source = Path(scratch) / "demo.c"
        source.write_text(c_source(5000), encoding="ascii")
        outcome = run_recorded(
            [compiler, "-O2", "-c", str(source), "-o", str(source.with_suffix(".o"))],
            folder / "compiler.swt",
            RecordOptions(children=True, stdout=sys.stderr, force=True),
        )
    _say(outcome.lines()[-1])
    return outcome.recordings().highest()


def c_source(lines: int) -> str:
    """Return a C file of that many lines: functions with loops, tables and switches."""
    text = ["#include <stddef.h>", "typedef struct point { double x, y; int kind; } point;"]
    number = 0
    while len(text) + 10 <= lines:
        text += [
            f"static const int table_{number}[] = {{{number}, {number * 7 % 31}, {number % 5}}};",
            f"double work_{number}(const point *p, size_t n) {{",
            f"    double sum = {number}.0;",
            "    for (size_t i = 0; i < n; i++) {",
            f"        switch ((p[i].kind + {number}) % 3) {{",
            f"        case 0: sum += p[i].x * table_{number}[i % 3]; break;",
            f"        case 1: sum -= p[i].y / ({number % 9} + 1.5); break;",
            "        default: sum *= 1.0 + p[i].x * p[i].y; break; }",
            "    }",
            f"    return sum + table_{number}[n % 3]; }}",
        ]
        number += 1
    return "\n".join(text + ["/* end */"] * (lines - len(text))) + "\n"


# --- showing --------------------------------------------------------------------------------------


def _show(
    recording: Recording, label: str, stem: str, folder: Path, quiet: bool
) -> RecordedProgram:
    name = Path(recording.program).name
    recording.name = f"{name} ({recording.name})"
    comparison = recording.compare(TABLES)
    plots.save(comparison.plot(), folder / f"{stem}-ledger.png")
    plots.save(recording.plot_timeline("go"), folder / f"{stem}-live.png")
    plots.save(recording.plot_histogram(), folder / f"{stem}-sizes.png")
    if not quiet:
        print(f"== {label} ({name}: {_format.plural(recording.events, 'event')})\n")
        show(comparison, "")
        for ledger in comparison.ledgers:
            print(f"classes with the most waste under {ledger.table}, bytes")
            print(ledger.class_table(5), end="\n\n", flush=True)
    return RecordedProgram(label, recording, comparison)


def _draw_round_up(recording: Recording, fitted: SizeClassTable, folder: Path) -> None:
    """Draw the round-up by size when most is requested, under the stock and the fitted table."""
    tables = [SizeClassTable.named(TABLES[-1]), fitted]
    title = f"{recording.name} at the peak:\nround-up by size, before and after"
    picture = plots.boundaries(recording.live_histogram(), tables, title=title, of="live objects")
    plots.save(picture, folder / "python-tables.png")


def _draw_tables(folder: Path) -> None:
    tables = [SizeClassTable.named(name) for name in TABLES]
    plots.save(plots.waste(tables), folder / "tables-waste.png")
