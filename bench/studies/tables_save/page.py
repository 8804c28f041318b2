# SPDX-License-Identifier: Apache-2.0
"""The page: what each program's table saves, of what, and whether size classes matter."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.provenance import provenance
from spanwise import _format
from spanwise.measure.field_cases import EVERYBODY, FITTED, SPANWISE
from spanwise.measure.field_result import Field
from spanwise.optimizer.trial import CAUSES
from spanwise.results.intervals import interval_of

from studies.policies.settings import POLICIES
from studies.resident.page import as_table
from studies.tables_save.answer import answer
from studies.tables_save.saved import Program, limit_share, saved_of, share, signed, split_share
from studies.tables_save.simulated import COUNTS


def measured_rows(found: Field, programs: Sequence[Program]) -> list[tuple[str, ...]]:
    """One row a program: its table on the fitted input and on the other."""
    rows = []
    for one in programs:
        stays = "not built" if one.fit.holds else "c16 stays"
        cells = [one.name, f"{len(one.fit.table)}" if one.fit.folder else stays]
        for number in (0, 1):
            middle, low, high = saved_of(found, one, number)
            cells.append(f"{middle:+.2f} % ({low:+.2f} .. {high:+.2f})")
        loss = max(0.0, -saved_of(found, one, 1)[1])
        rows.append((*cells, f"{loss:.2f} %"))
    return rows


def simulated_rows(programs: Sequence[Program], tables: Sequence[str]) -> list[tuple[str, ...]]:
    """What each table saves of the held-out input, simulated; the mean last."""
    rows = [
        (
            one.name,
            *(signed(share(one, 1, table)) for table in tables),
            signed(limit_share(one)),
        )
        for one in programs
    ]
    means = (statistics.mean(share(one, 1, table) for one in programs) for table in tables)
    last = statistics.mean(map(limit_share, programs))
    return [*rows, ("mean", *map(signed, means), signed(last))]


def policy_rows(programs: Sequence[Program]) -> list[tuple[str, ...]]:
    """What each policy saves of the held-out input under c16, simulated; the mean last."""

    def saved(one: Program, name: str) -> float:
        stock = one.simulated.resident["c16"][1]
        return 100 * (stock - one.simulated.policies[name][1]) / stock

    rows = [(one.name, *(signed(saved(one, name)) for name in POLICIES)) for one in programs]
    means = (statistics.mean(saved(one, name) for one in programs) for name in POLICIES)
    return [*rows, ("mean", *map(signed, means))]


def split_rows(programs: Sequence[Program]) -> list[tuple[str, ...]]:
    """What the table of 32 classes saves of the held-out input, by cause."""
    return [
        (one.name, *(signed(split_share(one, 1, cause)) for cause in CAUSES)) for one in programs
    ]


def field_rows(found: Field) -> list[tuple[str, ...]]:
    """Peak RSS, medians, by allocator."""
    names = [*EVERYBODY, FITTED]
    rows = []
    for program, input_ in found.cases:
        cells = []
        for name in names:
            values = found.values(program, input_, name, "rss_bytes").values()
            cells.append(_format.size(interval_of(values).median) if values else "-")
        rows.append((f"{program}, {input_}", *cells))
    return rows


def predicted_rows(found: Field) -> list[tuple[str, ...]]:
    """Predicted beside measured: what the fitted table saves of peak RSS."""
    rows = []
    every = {(r["program"], r["input"], r["allocator"]): r for r in found.array.to_dicts()}
    for program, input_ in found.cases:
        stock = every.get((program, input_, SPANWISE))
        fitted = every.get((program, input_, FITTED))
        if stock is None or fitted is None:
            continue
        pairs = [stock["rss_bytes"], fitted["rss_bytes"]]
        predicted = [stock["predicted_rss_bytes"], fitted["predicted_rss_bytes"]]
        cells = [_format.size(one) for one in (predicted[0], pairs[0], predicted[1], pairs[1])]
        shares = [signed(100 * (a - b) / a) for a, b in (predicted, pairs)]
        rows.append((f"{program}, {input_}", *cells, *shares))
    return rows


def make(
    found: Field,
    programs: Sequence[Program],
    skipped: Mapping[str, str],
    command: str,
    picture: str | None,
) -> str:
    """The page of docs/measurements."""
    made = provenance(Path(__file__).resolve().parents[3], Path("build/bench"))
    machine = made["machine"]
    rounds = 1 + max((row["round"] for row in found), default=0)
    tables = [name for name in programs[0].simulated.resident if name != "c16"]
    counts = ", ".join(map(str, COUNTS))
    return "\n".join(
        [
            "# What tables save",
            "",
            f"Written by `{command}`, {time.strftime('%Y-%m-%d')}, commit {made['commit']},"
            f" {machine['cpu']}, {machine['cpus']} processors, {machine['system']}; load"
            f" {machine['load']:.1f} as it was written.",
            "",
            "## Do size classes matter?",
            "",
            *answer(found, programs),
            "",
            *([f"![What tables save, by program]({picture})", ""] if picture else []),
            "## Measured: peak RSS under the found table",
            "",
            "Each program has two inputs. A table of at most 32 classes is fitted to the first one;"
            " the second is not seen before. Saved of the peak RSS under the installed malloc"
            " (table c16), in percent, round by round: median and interval of"
            f" {rounds} rounds, in which all allocators run in turns.",
            "",
            *as_table(
                ("program", "classes", "saved, fitted input", "saved, held out", "loss at most"),
                measured_rows(found, programs),
            ),
            "",
            "## Simulated: the heap's peak resident under other tables, held-out input",
            "",
            f"Saved of the peak resident under c16. The tables `best N` of at most {counts} classes"
            " are fitted to the first input; those of 16 and 24 may waste more than 25 % on a size"
            " that was not seen, since so few classes cannot keep that bound. Go's table has 67."
            " The last column is what perfect packing would save.",
            "",
            *as_table(("program", *tables, "limit"), simulated_rows(programs, tables)),
            "",
            "## What the saving is of, held-out input",
            "",
            *as_table(("program", *CAUSES), split_rows(programs)),
            "",
            "## Policies beside classes, simulated, held-out input",
            "",
            "Saved of the peak resident under c16 with the default policies: the partial span that"
            " was used last serves next, idle pages go back after 500 ms, no empty span is kept."
            " These knobs are `HeapOptions`, which simulated and real heaps and sweeps share.",
            "",
            *as_table(("program", *POLICIES), policy_rows(programs)),
            "",
            "## Predicted beside measured: peak RSS",
            "",
            "What is predicted takes a program to write all of its large objects; one that asks for"
            " buffers which it never fills, as sort does, has far less resident. What the table"
            " saves hardly depends on that.",
            "",
            *as_table(
                (
                    "program, input",
                    *("c16, predicted", "measured", "fitted, predicted", "measured"),
                    *("saved, predicted", "measured"),
                ),
                predicted_rows(found),
            ),
            "",
            "## Peak RSS under every allocator",
            "",
            *as_table(("program, input", *EVERYBODY, FITTED), field_rows(found)),
            "",
            *(f"- {name}: {why}" for name, why in skipped.items()),
            *([""] if skipped else []),
        ]
    )
