# SPDX-License-Identifier: Apache-2.0
"""How each number of a report is defined; docs/definitions.md has the same at more length."""

from __future__ import annotations

DEFINITIONS: dict[str, str] = {
    "requested": "The sum of the sizes that the live objects were asked for with.",
    "round-up": "The slot's size minus the requested size, over live objects in slots.",
    "tail": "The end of each span that is too short for one more slot.",
    "free slots": "Slots that are free, in spans from which no thread allocates just now: only the"
    " same size class can use them.",
    "cached": "Free slots of the spans that threads allocate from, and empty spans and freed large"
    " objects that a thread's cache keeps.",
    "metadata": "The heap's own records: spans, bits, page map, caches.",
    "large rounding": "Whole pages minus the requested size, of live large objects.",
    "arena slack": "Chunks of arenas that are not handed out.",
    "quarantine": "Freed memory that is kept back from use.",
    "free pages": "Pages of no span that the system has not got back.",
    "held": "The sum of all of the above, exactly: what the heap has from the system by its own"
    " account. Held minus requested is waste.",
    "resident": "Held bytes in pages of the system (4 KiB on most machines) that were written to:"
    " what the program pays for. The simulated program writes all of each object.",
    "peak": "The moment after the first operation that brings the requested bytes to their maximum."
    " It is the same under every table.",
    "waste": "Held minus requested, in bytes or as a share of held.",
    "class": "A slot size of the table. A request takes the smallest class that is as large.",
    "span": "Pages in a row that are cut into slots of one class.",
    "occupancy": "Slots in use, of a span's slots.",
    "free bytes kept": "The free slots and the tail of a span, shared evenly among the objects that"
    " live in it, since each of them alone keeps the span.",
    "held out": "A recording that a table was tried on and not fitted to.",
}
