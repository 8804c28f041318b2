# SPDX-License-Identifier: Apache-2.0
"""Commands that print ledgers of recordings: ledger, compare, check, diff, estimate."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from typing import Any

from spanwise import _format, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    add_description,
    each_of,
    new_command,
    open_recordings,
    print_json,
    show,
    simulation_of,
    warn_gaps,
)
from spanwise.commands._options import add_option
from spanwise.errors import InvalidError
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS, PEAK_RESIDENT
from spanwise.recordings.live_sites import LiveSite, LiveSites
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.recordings.sampled import GROUPS as ESTIMATE_GROUPS
from spanwise.recordings.sampled import SampledRecording
from spanwise.recordings.sites import ROOM_MIN, Site, callers
from spanwise.recordings.span_pinning import GROUPS, SpanPinning
from spanwise.report.own_heap import own_heap_of
from spanwise.tables.table import SizeClassTable

# --- ledger ---------------------------------------------------------------------------------------

_MEASURES = (
    ("internal_waste", "all rounding and tails, of requested"),
    ("unused_share", "free and cached, of held"),
    ("mean_occupancy", "slots in use, of all slots"),
    ("jw_mean", "held over requested, mean over the run"),
    ("jw_mean_steady", "  from half of the peak on"),
    ("jw_at_peak_requested", "  at the peak of requested bytes"),
    ("jw_at_peak_held", "  at the peak of held bytes"),
    ("jw_of_peaks", "  most held over most requested"),
)


def add_ledger(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands, "ledger", "spanwise ledger json.swt --table go --at end", run_ledger
    )
    _options.add_recording_options(parser)
    _options.add_table_option(parser)
    _options.add_classes_option(parser)
    add_option(parser, "--sites", "also print the call sites with the most waste in live objects")
    parser.add_argument(
        "--span-pinning",
        choices=GROUPS,
        metavar="|".join(GROUPS),
        help="also print what keeps partial spans from being empty, and the bytes that it pins",
    )
    _options.add_names_options(parser)
    _options.add_plot_option(parser)
    _options.add_force_option(parser)


def run_ledger(options: argparse.Namespace) -> int:
    """Prints the ledger."""
    if options.plot:
        plots.check_place(options.plot)
    names = _options.names_of(options)
    table, recordings, heap = simulation_of(options)
    sites = None
    if options.sites:
        sites = recordings.live_sites(table, options.at, options=heap).named(**names)
    ledger = (
        sites.ledger if sites is not None else recordings.ledger(table, options.at, options=heap)
    )
    if options.plot:
        plots.save(ledger.plot(), options.plot)
    held = None
    if options.span_pinning:
        held = recordings.span_pinning(options.span_pinning, table, options.at, options=heap)
        held = held.named(**names)
    after = None
    if options.at == PEAK_RESIDENT:
        after = recordings.after_peak(table, options=heap)
    if options.json:
        found = sites.to_dict() if sites is not None else ledger.to_dict()
        found["after_peak"] = None if after is None else after.to_dict()
        print_json(found if held is None else {**found, "span_pinning": _without_ledger(held)})
    else:
        said = [] if after is None or not after.sentences else ["", *after.sentences]
        text = f"simulated {describe(ledger, max(options.classes, 0))}"
        show("\n".join([*_own_heap(recordings, table, options.at), text, *said]))
        for one in (sites, held):
            if one is not None:
                show("", repr(one))
    return int(warn_gaps(each_of(recordings)))


def _own_heap(
    recordings: Recording | RecordingSet, table: SizeClassTable, at: str
) -> tuple[str, ...]:
    """Say what the program's own malloc wasted, if the ledger is of the peak; () if unknown."""
    if at != PEAK_RESIDENT or not isinstance(recordings, Recording):
        return ()
    own = own_heap_of(recordings, table)
    return () if own is None else (f"{own.title}:", f"  {own.sentence}", "")


def _without_ledger(held: SpanPinning) -> dict[str, Any]:
    """Return a dictionary without the ledger, which the JSON has elsewhere."""
    return {name: value for name, value in held.to_dict().items() if name != "ledger"}


def describe(ledger: Ledger, classes: int) -> str:
    """Return the ledger, its measures and its most wasteful classes as text."""
    parts = [str(ledger)]
    known = [(title, _shown(ledger.measures[name])) for name, title in _MEASURES]
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


def _shown(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


# --- compare --------------------------------------------------------------------------------------


def add_compare(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "compare",
        "spanwise compare json.swt --table go --table c16 --table mine.json",
        run_compare,
    )
    _options.add_recording_options(parser)
    _options.add_tables_option(parser, "{}; repeatable (default: go and c16)")
    _options.add_plot_option(parser)
    _options.add_force_option(parser)


def run_compare(options: argparse.Namespace) -> int:
    """Prints the comparison."""
    if options.plot:
        plots.check_place(options.plot)
    tables = [SizeClassTable.named(name) for name in options.table or ("go", "c16")]
    recordings = open_recordings(options)
    given = _options.heap_options_of(options)
    comparison = recordings.compare(tables, options.at, options=given)
    if options.plot:
        plots.save(comparison.plot(), options.plot)
    if options.json:
        print_json(comparison.to_dict())
    else:
        show(comparison)
    return int(warn_gaps(each_of(recordings)))


# --- check ----------------------------------------------------------------------------------------

_LIMITS = {"max_resident": "resident", "max_held": "held", "max_requested": "requested"}
"""Options in bytes, and the name of what they limit."""


def add_check(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands, "check", "spanwise check json.swt --max-waste 20% --max-resident 64M", run_check
    )
    add_description(
        parser,
        "Resident, held and requested bytes are each checked at their own peak, so no moment of"
        " the recording is above the limit; --max-waste is checked at the peak resident. With"
        " another --at, all are checked at that one moment.",
    )
    _options.add_recording_options(parser)
    _options.add_table_option(parser)
    add_option(parser, "--max-waste P%", "limit of waste, percent of held bytes", type=_percent)
    for name, what in _LIMITS.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=_options.size, metavar="N", help=f"limit of {what} bytes")
    add_option(
        parser,
        "--ignore-fixed",
        "leave out what a heap has at any size: metadata, and the spans that threads allocate"
        " from (cached)",
    )


def _percent(word: str) -> float:
    """Parse a percentage with or without its sign, for `type=`."""
    try:
        value = float(word.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{word!r} is not a percentage; give 0% to 100%")
    return value


def run_check(options: argparse.Namespace) -> int:
    """Prints each limit with its value; returns 1 if a value is above its limit."""
    if options.max_waste is None and all(getattr(options, name) is None for name in _LIMITS):
        raise InvalidError("nothing to check: give --max-waste, --max-resident or another limit")
    table, recordings, heap = simulation_of(options)
    ledger = recordings.ledger(table, options.at, options=heap)
    counted = _without_fixed(ledger) if options.ignore_fixed else ledger
    checks = _checks(counted, options, options.at == PEAK_RESIDENT)
    failed = [text for text, kept in checks if not kept]
    if options.json:
        found = [{"check": text, "kept": kept} for text, kept in checks]
        print_json({"kept": not failed, "checks": found, "ledger": ledger.to_dict()})
    else:
        for text, kept in checks:
            show(f"{'ok' if kept else 'TOO MUCH'}: {text}")
    return int(warn_gaps(each_of(recordings)) or bool(failed))


def _without_fixed(ledger: Ledger) -> Ledger:
    """Return the ledger without metadata and cached bytes; its peaks have as much less."""
    held = ledger.held_bytes - _fixed_bytes(ledger)
    resident, stats = ledger.resident, ledger.stats
    if stats is not None and resident is not None:
        stats = replace(
            stats,
            peak_held_bytes=stats.peak_held_bytes - _fixed_bytes(ledger),
            peak_resident_bytes=(stats.peak_resident_bytes or 0) - _fixed_bytes(resident),
        )
    return replace(
        ledger,
        metadata_bytes=0,
        cached_bytes=0,
        held_bytes=held,
        resident=None if resident is None else _without_fixed(resident),
        stats=stats,
        parts=tuple(map(_without_fixed, ledger.parts)),
    )


def _fixed_bytes(ledger: Ledger) -> int:
    return ledger.metadata_bytes + ledger.cached_bytes


def _checks(ledger: Ledger, options: argparse.Namespace, whole: bool) -> list[tuple[str, bool]]:
    """Return a line per limit, and whether the value is within it."""
    where = f"{ledger.source} at {ledger.at}, table {ledger.table}"
    found = []
    if options.max_waste is not None:
        percent = 100 * ledger.waste_bytes / ledger.held_bytes if ledger.held_bytes else 0.0
        text = f"waste {percent:.2f} % of held, at most {options.max_waste:g} % ({where})"
        found.append((text, percent <= options.max_waste))
    if whole:
        where = f"{ledger.source}, whole run, table {ledger.table}"
    for name, what in _LIMITS.items():
        limit = getattr(options, name)
        if limit is None:
            continue
        value = int(getattr(ledger, f"{what}_bytes") or 0)
        if whole:
            value = max(value, int(getattr(ledger, f"peak_{what}_bytes") or 0))
        sizes = f"{_format.size(value)} ({value:,} bytes)"
        text = f"{'peak ' if whole else ''}{what} {sizes}, at most {_format.size(limit)} ({where})"
        found.append((text, value <= limit))
    return found


# --- diff -----------------------------------------------------------------------------------------

_FIELDS = (*PARTS, "resident_bytes", "held_bytes", "waste_bytes", "live_objects")
_CLASS_WASTE = ("roundup_bytes", "tail_bytes", "free_slot_bytes", "cached_bytes")


def add_diff(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "diff", "spanwise diff before.swt after.swt", run_diff)
    parser.add_argument("before", metavar="A.swt", help="the first recording")
    parser.add_argument("after", metavar="B.swt", help="the second")
    _options.add_at_option(parser)
    _options.add_table_option(parser)
    _options.add_classes_option(parser)
    _options.add_names_options(parser)
    _options.add_valid_prefix_option(parser)
    _options.add_placement_options(parser.add_argument_group("placement"))


def run_diff(options: argparse.Namespace) -> int:
    """Prints the differences, largest first."""
    names = _options.names_of(options)
    table = SizeClassTable.named(options.table)
    heap = _options.heap_options_of(options)
    both = [Recording.open(path, options.valid_prefix) for path in (options.before, options.after)]
    before, after = (one.live_sites(table, options.at, options=heap).named(**names) for one in both)
    found = {
        "before": both[0].name,
        "after": both[1].name,
        "ledger": ledger_rows(before.ledger, after.ledger),
        "classes": class_rows(before.ledger, after.ledger),
        "sites": site_rows(before, after),
    }
    if options.json:
        print_json(found)
    else:
        _print(found, before.ledger, max(options.classes, 0))
    return int(warn_gaps(both))


def ledger_rows(before: Ledger, after: Ledger) -> list[dict[str, Any]]:
    """Return the terms of two ledgers, without those that are 0 in both."""
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in _FIELDS]
    return [_row({"term": name}, a, b) for name, a, b in pairs if a or b]


def class_rows(before: Ledger, after: Ledger) -> list[dict[str, Any]]:
    """Return held bytes per class and the change of waste, largest change first."""
    rows = []
    for a, b in zip(before.classes, after.classes, strict=True):
        wasted = [sum(int(one[name]) for name in _CLASS_WASTE) for one in (a, b)]
        if a["span_bytes"] or b["span_bytes"]:
            row = _row({"size_bytes": int(a["size_bytes"])}, a["span_bytes"], b["span_bytes"])
            rows.append({**row, "waste_change": wasted[1] - wasted[0]})
    return _greatest_first(rows)


def site_rows(before: LiveSites, after: LiveSites) -> list[dict[str, Any]]:
    """Return live bytes per call site, largest change first; equal names are one site."""
    found: dict[tuple[str, ...], tuple[LiveSite, list[int]]] = {}
    for place, sites in enumerate((before, after)):
        for site in sites:
            _, counts = found.setdefault(site.names or site.frames, (site, [0, 0, 0, 0]))
            counts[place] += site.requested_bytes
            counts[2 + place] += site.waste_bytes
    rows = []
    for site, counts in found.values():
        lists = ("frames", "names", "full_names")
        fields: dict[str, Any] = {name: list(getattr(site, name)) for name in lists}
        fields["through"] = site.through
        rows.append({**_row(fields, *counts[:2]), "waste_change": counts[3] - counts[2]})
    return _greatest_first(rows)


def _row(what: dict[str, Any], before: Any, after: Any) -> dict[str, Any]:
    first, second = int(before or 0), int(after or 0)
    return {**what, "before": first, "after": second, "change": second - first}


def _greatest_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    changed = [row for row in rows if row["change"] or row["waste_change"]]
    return sorted(changed, key=lambda row: -max(abs(row["change"]), abs(row["waste_change"])))


def _print(found: dict[str, Any], ledger: Ledger, shown: int) -> None:
    title = f"from {found['before']} to {found['after']}, at {ledger.at}, table {ledger.table}"
    head = ("", "before", "after", "change")
    names = {**PARTS, "held_bytes": "held", "waste_bytes": "waste", "resident_bytes": "resident"}
    rows = [
        (
            names.get(row["term"], "live objects"),
            *(f"{row[key]:,}" for key in head[1:3]),
            _signed(row),
        )
        for row in found["ledger"]
    ]
    show(title, "", _format.table(rows, head))
    for key, title in (("classes", "classes, bytes held"), ("sites", "call sites, live bytes")):
        if found[key] and shown:
            show("", f"{title}, greatest change first\n{_changes(found[key][:shown])}")


def _changes(changed: list[dict[str, Any]]) -> str:
    """A table of rows of classes or call sites."""
    head = ("before", "after", "change", "waste", "")
    rows = [
        (f"{row['before']:,}", f"{row['after']:,}", _signed(row), _signed(row, "waste_change"))
        for row in changed
    ]
    used = sum(2 + max(map(len, column)) for column in zip(head, *rows, strict=False))
    names = _names(changed, max(_format.terminal_width() - used, ROOM_MIN))
    cells = [(*row, name) for row, name in zip(rows, names, strict=True)]
    return _format.table(cells, head, left=0, names_last=True)


def _names(rows: list[dict[str, Any]], most: int) -> list[str]:
    if "frames" not in rows[0]:
        return [f"{row['size_bytes']} B" if row["size_bytes"] else "large" for row in rows]
    sites = [
        Site(
            *(0, 0, 0, tuple(row["frames"]), tuple(row["names"])),
            full_names=tuple(row["full_names"]),
            through=row["through"],
        )
        for row in rows
    ]
    return callers(sites, most)


def _signed(row: dict[str, Any], key: str = "change") -> str:
    return f"{row[key]:+,}"


# --- estimate -------------------------------------------------------------------------------------


def add_estimate(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "estimate", "spanwise estimate app.swt --by class", run_estimate)
    add_description(
        parser,
        "Each figure is followed by its 95 % interval. Partial spans and fragmentation depend on"
        " all objects, so they are not estimated.",
    )
    parser.add_argument("file", metavar="FILE.swt", help="made by spanwise record --sample")
    add_option(
        parser,
        "--by",
        "how objects are grouped (default site)",
        choices=ESTIMATE_GROUPS,
        default="site",
    )
    add_option(
        parser,
        "--at WHEN",
        "peak (of requested bytes, the default), end, or a time (such as 1.5s)",
        default="peak",
    )
    _options.add_table_option(parser)
    _options.add_valid_prefix_option(parser)


def run_estimate(options: argparse.Namespace) -> int:
    """Prints the estimates; returns 1 if the recording has gaps."""
    recording = SampledRecording.open(options.file, options.valid_prefix)
    found = recording.estimate(options.by, options.at, options.table)
    if options.json:
        print_json(found.to_dict())
    else:
        show(found)
    for gap in recording.gaps:
        print(f"spanwise: {recording.name}: {gap}", file=sys.stderr)
    return int(bool(recording.gaps))
