# SPDX-License-Identifier: Apache-2.0
"""spanwise ledger: where the bytes of a recording are, under a table."""

from __future__ import annotations

import argparse
from typing import Any

from spanwise import _format, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    each_of,
    new_command,
    print_json,
    simulation_of,
    warn_gaps,
)
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.live_sites import SHOWN_SITES
from spanwise.recordings.span_pinning import GROUPS, SHOWN, SpanPinning

_MEASURES = (
    ("internal_waste", "all rounding and tails, of requested"),
    ("unused_share", "free and cached, of held"),
    ("mean_occupancy", "slots in use, of all slots"),
    ("jw_mean", "held over requested, mean over the run"),
    ("jw_mean_steady", "  from half of the peak on"),
    ("jw_at_peak_requested", "  when most is requested"),
    ("jw_at_peak_held", "  when most is held"),
    ("jw_of_peaks", "  most held over most requested"),
)


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "ledger",
        "account every byte of a recording under a table",
        "spanwise ledger json.swt --table go --at peak",
        run,
    )
    _options.add_recording_options(parser)
    _options.add_table_option(parser)
    _options.add_classes_option(parser)
    parser.add_argument(
        "--sites", action="store_true", help="also the call sites whose live objects waste most"
    )
    parser.add_argument(
        "--span-pinning",
        choices=GROUPS,
        metavar="|".join(GROUPS),
        help="also who holds the partial spans, and what would come free without them",
    )
    _options.add_plot_option(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the ledger."""
    if options.plot:
        plots.check_place(options.plot)
    table, recordings, heap = simulation_of(options)
    sites = None
    if options.sites:
        sites = recordings.live_sites(table, options.at, options=heap)
        sites = sites.named(None if options.json else SHOWN_SITES)
    ledger = (
        sites.ledger if sites is not None else recordings.ledger(table, options.at, options=heap)
    )
    if options.plot:
        plots.save(ledger.plot(), options.plot)
    held = None
    if options.span_pinning:
        held = recordings.span_pinning(options.span_pinning, table, options.at, options=heap)
        held = held.named(None if options.json else SHOWN)
    if options.json:
        told = sites.to_dict() if sites is not None else ledger.to_dict()
        print_json(told if held is None else {**told, "span_pinning": _without_ledger(held)})
    else:
        print(describe(ledger, max(options.classes, 0)))
        for one in (sites, held):
            print("" if one is None else f"\n{one!r}\n", end="")
    return int(warn_gaps(each_of(recordings)))


def _without_ledger(held: SpanPinning) -> dict[str, Any]:
    """A dictionary without its ledger, because the JSON has the ledger once, elsewhere."""
    return {name: value for name, value in held.to_dict().items() if name != "ledger"}


def describe(ledger: Ledger, classes: int) -> str:
    """The ledger, its measures and its most wasteful classes."""
    parts = [str(ledger)]
    known = [(title, _shown(ledger.measures[name].value)) for name, title in _MEASURES]
    measures = [(title, text) for title, text in known if text]
    if measures:
        parts.append(_format.table(measures, indent="  "))
    if classes and (ledger.classes["spans"] > 0).any():
        parts.append(f"classes with the most waste, bytes\n{ledger.class_table(classes)}")
    if ledger.parts:
        rows = [(one.source, *_part_cells(one)) for one in ledger.parts]
        parts.append(
            _format.table(rows, ("process", "resident", "held", "requested", "waste", "events"))
        )
    return "\n\n".join(parts)


def _part_cells(ledger: Ledger) -> tuple[str, ...]:
    resident = ledger.resident_bytes
    return (
        "-" if resident is None else _format.size(resident),
        _format.size(ledger.held_bytes),
        _format.size(ledger.requested_bytes),
        _format.share(ledger.waste_bytes, ledger.held_bytes),
        _format.number(ledger.events),
    )


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
