# SPDX-License-Identifier: Apache-2.0
"""spanwise demo: the whole way on programs of this machine, results into ./out."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spanwise import _format, plots
from spanwise._parts import PARTS
from spanwise.commands._common import new_command, print_json
from spanwise.comparison import Comparison
from spanwise.recorder import run_recorded
from spanwise.sizeclass import SizeClassTable
from spanwise.trace import Recording

if TYPE_CHECKING:
    from spanwise.commands._common import SubParsers

TABLES = ("go", "c16")

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
class Shown:
    """One recorded program and its ledgers."""

    label: str
    recording: Recording
    comparison: Comparison

    def sentence(self) -> str:
        """What was wasted, where, and which table wastes less."""
        ranked = sorted(self.comparison.ledgers, key=lambda one: one.waste_bytes)
        best, worst = ranked[0], ranked[-1]
        parts = {name: getattr(worst, name) for name in PARTS if name != "requested_bytes"}
        most = max(parts, key=lambda name: parts[name])
        share = _format.share(worst.waste_bytes, worst.held_bytes)
        saved = worst.waste_bytes - best.waste_bytes
        end = (
            f"{best.table} wastes {_format.size(saved)} less"
            if saved
            else f"{best.table} wastes as much"
        )
        return (
            f"{self.label} wasted {_format.size(worst.waste_bytes)} ({share}) of what it held at"
            f" its peak under {worst.table}, most of it in {PARTS[most]}"
            f" ({_format.size(parts[most])}), and {end}"
        )


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "demo",
        "record python3 and a C compilation, print their ledgers, draw pictures",
        "spanwise demo -o out",
        run,
    )
    parser.add_argument("-o", "--output", default="out", metavar="DIR", help="default: out")


def run(options: argparse.Namespace) -> int:
    """Records, accounts, draws; the last line says what was found."""
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    quiet = bool(options.json)
    shown = [_show(_record_python(folder), "python3", "python", folder, quiet)]
    compiled = _record_compiler(folder)
    if compiled is not None:
        shown.append(_show(compiled, "the C compiler", "compiler", folder, quiet))
    _draw_tables(folder)
    if options.json:
        print_json({one.label: one.comparison.to_dict() for one in shown})
        return 0
    files = sorted(path.name for path in folder.iterdir() if path.suffix in (".swt", ".png"))
    print(f"in {folder}/: {', '.join(files)}\n")
    print("; ".join(one.sentence() for one in shown) + ".")
    return 0


# --- recording ------------------------------------------------------------------------------------


def _say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


def _record_python(folder: Path) -> Recording:
    _say("recording python3 (JSON and sqlite, PYTHONMALLOC=malloc)")
    output = folder / "python.swt"
    outcome = run_recorded([sys.executable, "-c", PYTHON_JOB], output, stdout=sys.stderr)
    _say(outcome.lines()[-1])
    return Recording.open(output)


def _record_compiler(folder: Path) -> Recording | None:
    """The compiler proper: of the processes that the driver starts, the one that needs most."""
    compiler = next(filter(shutil.which, ("gcc", "cc", "clang")), None)
    if compiler is None:
        _say("no C compiler on this machine: the second program is left out")
        return None
    _say(f"recording {compiler} -O2 -c of 5,000 lines, with its children")
    for old in folder.glob("compiler.*.swt"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="spanwise-demo-") as scratch:
        source = Path(scratch) / "demo.c"
        source.write_text(c_source(5000), encoding="ascii")
        outcome = run_recorded(
            [compiler, "-O2", "-c", str(source), "-o", str(source.with_suffix(".o"))],
            folder / "compiler.swt",
            children=True,
            stdout=sys.stderr,
        )
    _say(outcome.lines()[-1])
    return outcome.recordings().largest()


def c_source(lines: int) -> str:
    """A C file of that many lines: functions with loops, tables and switches."""
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


def _show(recording: Recording, label: str, stem: str, folder: Path, quiet: bool) -> Shown:
    name = Path(recording.program).name
    recording.name = f"{name} ({recording.name})"
    comparison = recording.compare(TABLES)
    plots.save(comparison.plot(), folder / f"{stem}-ledger.png")
    plots.save(recording.plot_live("go"), folder / f"{stem}-live.png")
    plots.save(recording.plot_histogram(), folder / f"{stem}-sizes.png")
    if not quiet:
        print(f"== {label} ({name}: {_format.plural(len(recording), 'event')})\n")
        print(comparison, end="\n\n")
        for ledger in comparison.ledgers:
            print(f"classes with the most waste under {ledger.table}, bytes")
            print(ledger.class_table(5), end="\n\n", flush=True)
    return Shown(label, recording, comparison)


def _draw_tables(folder: Path) -> None:
    tables = [SizeClassTable.named(name) for name in TABLES]
    plots.save(plots.waste(tables), folder / "tables-waste.png")
