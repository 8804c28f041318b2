# SPDX-License-Identifier: Apache-2.0
"""spanwise diff: what grew from one recording to another, by part, class and call site."""

from __future__ import annotations

import argparse
from typing import Any

from spanwise import _format
from spanwise.commands import _options
from spanwise.commands._common import SubParsers, new_command, print_json, warn_gaps
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.recordings.live_sites import LiveSites
from spanwise.recordings.recording import Recording
from spanwise.tables.table import SizeClassTable

_FIELDS = (*PARTS, "resident_bytes", "held_bytes", "waste_bytes", "live_objects")
_CLASS_WASTE = ("roundup_bytes", "tail_bytes", "free_slot_bytes", "cached_bytes")


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "diff",
        "tell what grew from one recording to another, by part, class and call site",
        "spanwise diff before.swt after.swt",
        run,
    )
    parser.add_argument("before", metavar="A.swt", help="the first recording")
    parser.add_argument("after", metavar="B.swt", help="the second")
    _options.add_at_option(parser)
    _options.add_table_option(parser)
    _options.add_classes_option(parser)
    _options.add_valid_prefix_option(parser)
    _options.add_placement_options(parser.add_argument_group("placement"))


def run(options: argparse.Namespace) -> int:
    """Prints the differences, the greatest first."""
    table = SizeClassTable.named(options.table)
    heap = _options.heap_options_of(options)
    both = [Recording.open(path, options.valid_prefix) for path in (options.before, options.after)]
    before, after = (one.live_sites(table, options.at, options=heap) for one in both)
    told = {
        "before": both[0].name,
        "after": both[1].name,
        "ledger": ledger_rows(before.ledger, after.ledger),
        "classes": class_rows(before.ledger, after.ledger),
        "sites": site_rows(before, after),
    }
    if options.json:
        print_json(told)
    else:
        _print(told, before.ledger, max(options.classes, 0))
    return int(warn_gaps(both))


def ledger_rows(before: Ledger, after: Ledger) -> list[dict[str, Any]]:
    """The terms of the two ledgers; those that are 0 in both are left out."""
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in _FIELDS]
    return [_row({"term": name}, a, b) for name, a, b in pairs if a or b]


def class_rows(before: Ledger, after: Ledger) -> list[dict[str, Any]]:
    """What the classes hold and waste, the greatest change of held bytes first."""
    rows = []
    for a, b in zip(before.classes, after.classes, strict=True):
        wasted = [sum(int(one[name]) for name in _CLASS_WASTE) for one in (a, b)]
        if a["span_bytes"] or b["span_bytes"]:
            row = _row({"size_bytes": int(a["size_bytes"])}, a["span_bytes"], b["span_bytes"])
            rows.append({**row, "waste_change": wasted[1] - wasted[0]})
    return _greatest_first(rows)


def site_rows(before: LiveSites, after: LiveSites) -> list[dict[str, Any]]:
    """What is live by call site, the greatest change first; sites are the same by their frames."""
    found: dict[tuple[str, ...], list[int]] = {}
    for place, sites in enumerate((before, after)):
        for site in sites:
            counts = found.setdefault(site.frames, [0, 0, 0, 0])
            counts[place] += site.requested_bytes
            counts[2 + place] += site.waste_bytes
    rows = [
        {**_row({"frames": list(frames)}, *c[:2]), "waste_change": c[3] - c[2]}
        for frames, c in found.items()
    ]
    return _greatest_first(rows)


def _row(what: dict[str, Any], before: Any, after: Any) -> dict[str, Any]:
    first, second = int(before or 0), int(after or 0)
    return {**what, "before": first, "after": second, "change": second - first}


def _greatest_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    changed = [row for row in rows if row["change"] or row["waste_change"]]
    return sorted(changed, key=lambda row: -max(abs(row["change"]), abs(row["waste_change"])))


def _print(told: dict[str, Any], ledger: Ledger, shown: int) -> None:
    print(f"from {told['before']} to {told['after']}, at {ledger.at}, table {ledger.table}\n")
    head = ("", "before", "after", "change")
    names = {**PARTS, "held_bytes": "held", "waste_bytes": "waste", "resident_bytes": "resident"}
    rows = [
        (
            names.get(row["term"], "live objects"),
            *(f"{row[key]:,}" for key in head[1:3]),
            _signed(row),
        )
        for row in told["ledger"]
    ]
    print(_format.table(rows, head))
    for key, title in (("classes", "classes, bytes held"), ("sites", "call sites, live bytes")):
        if not told[key] or not shown:
            continue
        rows = [
            (
                f"{row['before']:,}",
                f"{row['after']:,}",
                _signed(row),
                _signed(row, "waste_change"),
                _name(row),
            )
            for row in told[key][:shown]
        ]
        print(f"\n{title}, greatest change first")
        print(_format.table(rows, ("before", "after", "change", "waste", ""), left=0))


def _name(row: dict[str, Any]) -> str:
    if "frames" in row:
        return _format.short_end(row["frames"][0] if row["frames"] else "unknown", 60)
    return f"{row['size_bytes']} B" if row["size_bytes"] else "large"


def _signed(row: dict[str, Any], key: str = "change") -> str:
    return f"{row[key]:+,}"
