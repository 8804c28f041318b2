# SPDX-License-Identifier: Apache-2.0
"""The page of the study: what each cause costs each program, and the totals beside others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from runner.provenance import provenance
from spanwise import _format

from studies.causes.look import LIBRARY, OUTSIDE, PEERS, Seen
from studies.causes.split import CAUSES, REQUESTED
from studies.resident.page import as_table

SAID = {
    **CAUSES,
    LIBRARY: "resident pages of the preloaded malloc's own file",
    OUTSIDE: "text, other libraries, stacks, mappings of the program's own: the rest of peak RSS",
}
USELESS = [name for name in SAID if name not in (REQUESTED, OUTSIDE)]
"""Causes whose bytes are of no use to the program."""


def sums(found: Sequence[Seen]) -> dict[str, float]:
    """Useless bytes by cause, of all programs, the most first."""
    added = {name: sum(one.causes[name] for one in found) for name in USELESS}
    return dict(sorted(added.items(), key=lambda item: -item[1]))


def mean_shares(found: Sequence[Seen]) -> dict[str, float]:
    """By cause the mean of its share of each program's peak RSS, the most first."""
    shares = {
        name: sum(one.causes[name] / one.spanwise for one in found) / len(found) for name in USELESS
    }
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _kib(value: float) -> str:
    return f"{value / 1024:,.0f}"


def _rows(found: Sequence[Seen]) -> list[tuple[str, ...]]:
    return [(one.name, *(_kib(one.causes[name]) for name in SAID)) for one in found]


def _peer_rows(found: Sequence[Seen]) -> list[tuple[str, ...]]:
    rows = []
    for one in found:
        peers = ("-" if rss is None else _kib(rss) for rss in one.peers.values())
        useless = sum(one.causes[name] for name in USELESS)
        own = (_kib(useless), f"{one.large_share:.4g} %") if one.is_told else ("-", "-")
        row = (one.name, _kib(one.spanwise), *peers, *own)
        rows.append(row)
    return rows


def _cause_rows(found: Sequence[Seen]) -> list[tuple[str, ...]]:
    added, shares = sums(found), mean_shares(found)
    return [(name, SAID[name], _kib(added[name]), f"{100 * shares[name]:.1f} %") for name in shares]


def _untold(found: Sequence[Seen]) -> list[str]:
    """A sentence for each program whose causes are not known."""
    lines = []
    for one in found:
        if not one.is_told:
            heap = sum(one.causes.values()) - one.causes[LIBRARY]
            lines += [
                f"Of {one.name} causes are not known: {_kib(heap)} KiB of its heap are predicted,"
                f" and its whole process has {_kib(one.spanwise)}. It writes a part of its objects"
                " in slots only, and a recording does not tell which.",
                "",
            ]
    return lines


def make(found: Sequence[Seen], skipped: dict[str, str], command: str, picture: str | None) -> str:
    """The page of docs/measurements."""
    made = provenance(Path(__file__).resolve().parents[3], Path("build/bench"))
    told = [one for one in found if one.is_told]
    machine, first = made["machine"], list(mean_shares(told))[:3]
    missing = [f"{name} ({why})" for name, why in skipped.items()]
    lines = [
        "# Where resident bytes go",
        "",
        f"Written by `{command}`, {time.strftime('%Y-%m-%d')}, commit {made['commit']},"
        f" {machine['cpu']}, {machine['cpus']} processors, {machine['system']}; load"
        f" {machine['load']:.1f} as it was written.",
        "",
        f"In the mean of {len(told)} programs most is lost to {first[0]}, {first[1]} and"
        f" {first[2]}: shares are of each program's peak RSS, so that small programs count like"
        " large ones. In this order they are cut next.",
        "",
        *(
            [f"![Peak RSS of each program by cause, beside other allocators]({picture})", ""]
            if picture
            else []
        ),
        "## By cause",
        "",
        *as_table(("cause", "what it is", "all programs, KiB", "mean share"), _cause_rows(told)),
        "",
        "## By program, KiB",
        "",
        *as_table(("program", *SAID), _rows(told)),
        "",
        *_untold(found),
        "## Peak RSS beside others, KiB",
        "",
        *as_table(
            ("program", "spanwise", *PEERS, "useless in ours", "written of large objects"),
            _peer_rows(found),
        ),
        "",
        "## How it was found",
        "",
        "Of a program of several processes it is the one with the largest heap, and peak RSS is"
        " that of its largest process. What is inside of the heap is simulated from a recording,"
        " table c16, at the moment at which most is resident; of large objects the share is written"
        " with which a tracked run's resident bytes at the end are predicted best. The rest of the"
        f" measured peak is `{OUTSIDE}`; so is what the simulation misses.",
        "",
        "The age of a span is counted in operations (allocations, frees and resizes of the program)"
        " since it was first seen as it is then. It is looked at fourteen times in the last tenth"
        " of the operations; what changed and changed back between two looks is not seen. What is"
        " resident of free slots is exact for each class, and among its spans shared by an estimate"
        " that takes live slots to be resident wholly.",
        "",
        *([f"Not here: {', '.join(missing)}.", ""] if missing else []),
    ]
    return "\n".join(lines)


def summary(one: Seen) -> str:
    """A line for the terminal."""
    useless = sum(one.causes[name] for name in USELESS)
    return f"{one.name}: {_format.size(one.spanwise)}, useless {_format.size(round(useless))}"
