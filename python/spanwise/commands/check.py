# SPDX-License-Identifier: Apache-2.0
"""spanwise check: whether recordings keep within limits, for continuous integration."""

from __future__ import annotations

import argparse
import math

from spanwise import _format
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    each_of,
    new_command,
    print_json,
    simulation_of,
    warn_gaps,
)
from spanwise.errors import InvalidError
from spanwise.ledger.ledger import Ledger

_LIMITS = {
    "max_resident": ("resident", "resident_bytes"),
    "max_held": ("held", "held_bytes"),
    "max_requested": ("requested", "requested_bytes"),
}
"""Options that are bytes: what they limit, and the field of the ledger."""


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "check",
        "fail when a recording wastes or holds more than it may",
        "spanwise check json.swt --max-waste 20% --max-resident 64M",
        run,
    )
    _options.add_recording_options(parser)
    _options.add_table_option(parser)
    parser.add_argument(
        "--max-waste", type=_percent, metavar="P%", help="held minus requested, in percent of held"
    )
    for name, (what, _) in _LIMITS.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=_options.size, metavar="N", help=f"most {what} bytes")


def _percent(word: str) -> float:
    """For `type=`: a percentage, with or without its sign."""
    try:
        value = float(word.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{word!r} is no percentage; give 0% to 100%")
    return value


def run(options: argparse.Namespace) -> int:
    """Prints what was compared; 1 when something is above its limit."""
    if options.max_waste is None and all(getattr(options, name) is None for name in _LIMITS):
        raise InvalidError("nothing to check: give --max-waste, --max-resident or another limit")
    table, recordings, heap = simulation_of(options)
    ledger = recordings.ledger(table, options.at, options=heap)
    checks = _checks(ledger, options)
    failed = [text for text, kept in checks if not kept]
    if options.json:
        told = [{"check": text, "kept": kept} for text, kept in checks]
        print_json({"kept": not failed, "checks": told, "ledger": ledger.to_dict()})
    else:
        for text, kept in checks:
            print(f"{'ok' if kept else 'TOO MUCH'}: {text}")
    return int(warn_gaps(each_of(recordings)) or bool(failed))


def _checks(ledger: Ledger, options: argparse.Namespace) -> list[tuple[str, bool]]:
    """What was compared in words, and whether it keeps within its limit."""
    where = f"{ledger.source} at {ledger.at}, table {ledger.table}"
    found = []
    if options.max_waste is not None:
        percent = 100 * ledger.waste_bytes / ledger.held_bytes if ledger.held_bytes else 0.0
        text = f"waste {percent:.2f} % of held, at most {options.max_waste:g} % ({where})"
        found.append((text, percent <= options.max_waste))
    for name, (what, field) in _LIMITS.items():
        limit, value = getattr(options, name), getattr(ledger, field)
        if limit is None:
            continue
        if value is None:
            raise InvalidError(f"{what} bytes of {ledger.source} are not known")
        sizes = f"{_format.size(value)} ({value:,} bytes)"
        text = f"{what} {sizes}, at most {_format.size(limit)} ({where})"
        found.append((text, value <= limit))
    return found
