# SPDX-License-Identifier: Apache-2.0
"""Short readers of other tools' files: total bytes allocated, and bytes live at the end.

Each is written from the format's definition alone and shares nothing with the importers.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Totals = tuple[int, int]


def totals_of(events: Iterable[tuple[str | None, str | None, int]]) -> Totals:
    """Return the totals of events (freed address or None, new address or None, bytes)."""
    live: dict[str, int] = {}
    allocated = 0
    for gone, come, size in events:
        if gone is not None:
            live.pop(gone, None)
        if come is not None:
            live[come] = size
            allocated += size
    return allocated, sum(live.values())


def mtrace(text: str) -> Totals:
    """A line of mtrace's ends in "+ ADDRESS SIZE", "- ADDRESS", "< OLD" or "> NEW SIZE"."""
    events: list[tuple[str | None, str | None, int]] = []
    for line in text.splitlines():
        match re.sub(r"^@ .*?\] ?", "", line).split():
            case ["+" | ">", address, size] if address.startswith("0x"):
                events.append((None, address, int(size, 16)))
            case ["-" | "<", address]:
                events.append((address, None, 0))
    return totals_of(events)


def memory_replay(text: str) -> Totals:
    """malloc_debug's record_allocs, without times."""
    events: list[tuple[str | None, str | None, int]] = []
    for line in text.splitlines():
        match line.split()[1:]:
            case ["malloc", address, size]:
                events.append((address, address, int(size)))
            case ["calloc", address, count, size]:
                events.append((address, address, int(count) * int(size)))
            case ["memalign", address, _, size]:
                events.append((address, address, int(size)))
            case ["realloc", address, old, size]:
                events.append((old, address, int(size)))
            case ["free", address]:
                events.append((address, None, 0))
    return totals_of(one for one in events if one[1] != "0x0")


def heaptrack(text: str) -> Totals:
    """Raw: "+ SIZE STACK ADDRESS", "- ADDRESS"; else "a SIZE STACK", and "+ PAIR", "- PAIR"."""
    pairs: list[int] = []
    counts: dict[int, int] = {}
    allocated = live = 0
    addresses: dict[int, int] = {}
    for line in text.splitlines():
        word, *rest = line.split(" ")
        if word not in ("a", "+", "-") or not rest:
            continue
        numbers = [int(one, 16) for one in rest]
        if word == "a":
            pairs.append(numbers[0])
        elif word == "+" and not pairs:
            live += numbers[0] - addresses.pop(numbers[2], 0)
            addresses[numbers[2]] = numbers[0]
            allocated += numbers[0]
        elif word == "-" and not pairs:
            live -= addresses.pop(numbers[0], 0)
        elif word == "+":
            counts[numbers[0]] = counts.get(numbers[0], 0) + 1
            allocated += pairs[numbers[0]]
            live += pairs[numbers[0]]
        elif counts.get(numbers[0], 0):
            counts[numbers[0]] -= 1
            live -= pairs[numbers[0]]
    return allocated, live


def jemalloc_json(text: str) -> Totals:
    """Of the last dump: bytes of small requests and what lives, both by class."""
    stats = json.loads(text[text.rindex('{"jemalloc"') :].partition("\n")[0])["jemalloc"]
    classes = [one["size"] for one in stats["arenas"]["bin"]]
    large = [one["size"] for one in stats["arenas"]["lextent"]]
    arenas = stats["stats.arenas"]
    requested = live = 0
    for arena in [arenas["merged"]] if "merged" in arenas else arenas.values():
        for size, one in zip(classes, arena["bins"], strict=True):
            requested += size * one["nrequests"]
            live += size * one["curregs"]
        live += sum(s * one["curlextents"] for s, one in zip(large, arena["lextents"], strict=True))
    return requested, live


def heap_text(text: str) -> Totals:
    """Any heap profile as text; sampled counts are scaled by google/pprof's scaleHeapSample."""
    head, *lines = re.split(r"\n(?:MAPPED|# runtime)", text)[0].splitlines()
    rate = 0
    if found := re.search(r"(heap|heap_v2|heapz_v2)/(\d+)$", head):
        rate = int(found[2]) // (2 if found[1] == "heap" else 1)
    sums = [0, 0]
    stacks = 0
    for line in lines:
        stacks += "@" in line
        found = re.match(r" *(?:t\*: )? *(\d+): *(\d+) *\[ *(\d+): *(\d+)", line)
        if found is None or (" t" in line and not stacks):
            continue
        for i in (0, 1):
            count, total = int(found[2 * i + 1]), int(found[2 * i + 2])
            if count and total and rate > 1:
                total = int(total * (1 / (1 - math.exp(-total / count / rate))))
            sums[i] += total
    return sums[1], sums[0]


def go_tool_trace(go: str, path: Path, slots: list[int]) -> Totals:
    """Read a heap from `go tool trace -d=parsed`, with the sizes of Go's classes from 1 on."""
    words = [go, "tool", "trace", "-d=parsed", str(path)]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    spans: dict[int, tuple[int, int]] = {}
    events: list[tuple[str | None, str | None, int]] = []
    shared = set()
    for name, rest in re.findall(r" Experimental .*?Name=(\w+) Args=\[(.*)\]", text):
        numbers = [int(one) for one in re.findall(r"Uint64\((\d+)\)", rest)]
        if name in ("Span", "SpanAlloc") and numbers[2] % 2 == 0:
            first, pages, kind = numbers
            size = slots[(kind >> 2) - 1] if kind >> 2 else pages * 8192
            spans.update(dict.fromkeys(range(first, first + pages), (first * 8192, size)))
        elif name in ("HeapObject", "HeapObjectAlloc"):
            start, size = spans[numbers[0] * 8 // 8192]
            address = str((numbers[0] * 8 - start) // size * size + start)
            if address not in shared:  # objects below 16 bytes have a slot in common
                events.append((None, address, size))
            shared.add(address)
        elif name == "HeapObjectFree":
            events.append((str(numbers[0] * 8), None, 0))
            shared.discard(str(numbers[0] * 8))
    return totals_of(events)


# --- profile.proto --------------------------------------------------------------------------------


def pprof(content: bytes) -> Totals:
    """Sums of alloc_space and inuse_space (or space), in the declared unit of bytes."""
    raw = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    of: dict[int, list[Any]] = {}
    for number, value in fields(raw):
        of.setdefault(number, []).append(value)
    strings = [text.decode() for text in of[6]]
    names = [strings[dict(fields(one))[1]] for one in of[1]]
    sums = [0] * len(names)
    for one in of.get(2, []):
        values: list[int] = []
        for number, value in fields(one):
            if number == 2:
                values += packed(value) if isinstance(value, bytes) else [value]
        sums = [a + b for a, b in zip(sums, values, strict=True)]
    by_name = dict(zip(names, sums, strict=True))
    in_use = "inuse_space" if "inuse_space" in by_name else "space"
    return by_name.get("alloc_space", 0), by_name[in_use]


def varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a varint, and the offset after it."""
    end = next(i for i in range(at, len(raw)) if raw[i] < 128) + 1
    value = sum((byte & 127) << 7 * i for i, byte in enumerate(raw[at:end]))
    return value - (value >> 63 << 64), end


def packed(raw: bytes) -> list[int]:
    """Yield packed numbers."""
    found, at = [], 0
    while at < len(raw):
        value, at = varint(raw, at)
        found.append(value)
    return found


def fields(raw: bytes) -> list[tuple[int, Any]]:
    """Numbers and contents of a message's fields, of the two kinds that profiles have."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(raw):
        key, at = varint(raw, at)
        value, at = varint(raw, at)
        if key % 8 == 2:
            found.append((key // 8, raw[at : at + value]))
            at += value
        else:
            assert key % 8 == 0
            found.append((key // 8, value))
    return found
