# SPDX-License-Identifier: Apache-2.0
"""Rules of advice for programs of runtimes: Node.js and CPython."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from spanwise import _format
from spanwise.report.advice_facts import PEAK, Advice, AdviceFacts
from spanwise.report.python_heap import PLAIN

# --- Buffers of Node.js ---------------------------------------------------------------------------


def buffers(facts: AdviceFacts) -> Iterator[Advice]:
    """Blocks of which a program may keep small parts only."""
    count, held = facts.buffers
    if count:
        yield Advice(
            "buffers",
            held,
            PEAK,
            "estimated",
            f"{_format.plural(count, 'Buffer')} of 8 or 16 KiB are live. Results of zlib, and"
            " slices, keep a whole block, however small they are.",
            "Copy those that live long: Buffer.from(part).",
        )


# --- arenas of CPython ----------------------------------------------------------------------------


def arenas(facts: AdviceFacts) -> Iterator[Advice]:
    """Call sites whose small blocks keep arenas of plain python3."""
    heap = facts.python_heap
    if heap is None or not heap.sites:
        return
    names = facts.names(one.site for one in heap.sites)
    each = " and ".join(
        f"{_format.plural(one.blocks, 'block')} ({_format.size(one.requested_bytes)}) from"
        f" {names[one.site]}"
        for one in heap.sites
    )
    moment = f"{heap.time_ns / 1e9:.3f}"
    yield Advice(
        "arenas",
        heap.saved_bytes,
        moment,
        "simulated",
        f"{each} keep arenas of CPython, which go back to the system only when they are empty:"
        f" without them {_format.size(heap.resident_bytes - heap.saved_bytes)} would be left of"
        f" {_format.size(heap.resident_bytes)}.",
        "Drop them if they are not needed; else copy them while the temporary objects around them"
        " are still there, so that the copies have arenas of their own (a copy of a str is"
        " s.encode().decode()), or make them in a process of its own. Call sites at that moment:"
        f" spanwise ledger {shlex.quote(facts.recording.name)} --sites --at {moment}",
        against=PLAIN,
    )
