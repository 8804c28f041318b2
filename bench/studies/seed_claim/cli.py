# SPDX-License-Identifier: Apache-2.0
"""./dev study seed-claim: each size class, specialised beside generic, and Go's own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from runner.command import check_options, run_command
from runner.contenders import find_field
from runner.patterns import choose
from runner.provenance import provenance
from runner.say import say_missing, say_origins, say_run
from runner.session import BENCH, add_run_options, measure, origins_of
from scoreboard.show import figures_json

from studies.pages import check_page
from studies.seed_claim import claim, plot
from studies.seed_claim.jobs import class_jobs

EXAMPLE = """examples:
  ./dev study seed-claim --quick --rows 'seed/*'
  ./dev study seed-claim --plot seed-claim.png
  ./dev study seed-claim --write docs/measurements/2026-11-22-seed-claim.md"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev study seed-claim",
        description="What specialised allocation paths save: each size class, specialised beside "
        "generic, and Go's own when there is a toolchain.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_options(made)
    made.add_argument(
        "--write", type=Path, metavar="PAGE.md", help="also puts tables between a page's markers"
    )
    return made


def execute(options: argparse.Namespace) -> int:
    """Runs the classes that the options choose; returns the exit status."""
    field = find_field(options.build, BENCH, options.peer, options.linked, with_go=True)
    jobs = class_jobs(options.build, field)
    chosen = choose([job.bench for job in jobs], options.rows)
    if not options.json:
        say_missing(field)
    about = provenance(BENCH.parent, options.build)
    made = origins_of(field, options)
    about["origins"] = [each.as_json() for each in made]
    run, path = measure(options, field, [job for job in jobs if job.bench in chosen], about)
    if options.json:
        print(json.dumps(figures_json(run, {}), indent=1))
    else:
        print("\n\n".join(table.as_text() for table in claim.tables(run)))
        say_origins(run, field, made)
        say_run(run, about, path)
    if options.write is not None:
        claim.write_page(options.write, run, about)
    if options.plot is not None:
        plot.plot(run, claim.provenance(run, about), options.plot)
    return 130 if run.interrupted else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 when the output was cut off, 2 for bad input, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)

    def work() -> int:
        check_options(options.repetitions, options.plot)
        if options.write is not None:
            check_page(options.write)
        return execute(options)

    return run_command("seed-claim", work)
