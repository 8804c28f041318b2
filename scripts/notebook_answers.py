# SPDX-License-Identifier: Apache-2.0
"""What the answers of the notebooks claim, computed from each notebook's own data.

A notebook ends with `answer`, a text. For each of its sentences the function of the notebook yields
the fragments that the data supports. They must be in the sentence, and what remains of it has
neither a number nor a comparison. `check` runs in the kernel, after the last cell.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

Fragments = Iterator[list[str]]

CLAIM = re.compile(
    r"\d|\b(more|less|fewer|most|least|larger|smaller|higher|lower|faster|slower|longer|shorter"
    r"|all|none|every|exactly|both|confirms|refutes)\b"
)
"""What a sentence must not have outside of its fragments."""


def sentences(answer: str) -> list[str]:
    """Return the sentences of an answer."""
    return re.split(r"(?<=[.])\s+(?=[A-Z0-9])", answer.strip())


def check(number: str, names: dict[str, Any]) -> None:
    """Compare the answer of a notebook with its data.

    Args:
        number: of the notebook.
        names: the variables of its kernel.

    Raises:
        AssertionError: a sentence says something else, or more.
    """
    said = sentences(names["answer"])
    found = list(ANSWERS[number](SimpleNamespace(**names)))
    assert len(said) == len(found), f"{len(said)} sentences, {len(found)} are checked: {said}"
    for sentence, fragments in zip(said, found, strict=True):
        rest = sentence
        for fragment in fragments:
            assert fragment in rest, f"the data says {fragment!r}: {sentence}"
            rest = rest.replace(fragment, "_", 1)
        unproved = CLAIM.search(rest)
        assert not unproved, f"nothing supports {unproved}: {rest}"


def _size_class(n: SimpleNamespace) -> Fragments:
    sizes = [int(size) for size in n.go.classes["size_bytes"]]
    slots = [next(size for size in sizes if size >= request) for request in range(1, 32769)]
    wasted = sum(slots) - sum(range(1, 32769))
    yield ["every size from 1 B to 32 KiB", f"{100 * wasted / sum(slots):.1f} % of all slots"]
    steps = [(b - a, b) for a, b in pairwise(sizes) if b >= 128]
    short = [step for step, to in steps if 8 * step <= 1 << (to.bit_length() - 1)]
    most = max(100 * (step - 1) / to for step, to in steps)
    yield [
        f"{len(steps)} steps from 128 B on {len(short)} are at most an eighth",
        "at most 12.5 % of its slot",
        f"largest of the others wastes {most:.1f} %",
    ]
    tails = [100 * int(row["tail_bytes"]) / int(row["span_bytes"]) for row in n.go.classes]
    assert max(tails) <= 12.5
    yield [f"at most {max(tails):.2f} % of it", "at most an eighth"]


def _your_program(n: SimpleNamespace) -> Fragments:
    b = n.before
    causes = {
        "round-up": b.roundup_bytes + b.large_rounding_bytes,
        "free slots": b.free_slot_bytes,
        "caches": b.cached_bytes,
    }
    largest, cause = max((value, name) for name, value in causes.items())
    waste = b.held_bytes - b.requested_bytes
    held = f"{100 * waste / b.held_bytes:.1f} % of the {b.held_bytes / 2**20:.1f} MiB"
    yield [f"{held} held under c16", f"{100 * largest / waste:.0f} % of it {cause}"]
    rows = n.front.array
    least = int(rows["classes"][np.argmin(rows["resident_bytes"])])
    yield [f"with {least} classes has the least resident"]
    saved = (b.resident_bytes - n.after.resident_bytes) / 2**20
    yield [f"{abs(saved):.1f} MiB {'less' if saved > 0 else 'more'}"]
    found, c16, glibc = (
        float(np.median([run.peak_rss_bytes for run in one.runs])) / 2**20 for one in n.replays
    )
    agree = (found < c16) == (saved > 0)
    yield [
        f"{found:.1f} MiB instead of {c16:.1f} ({glibc:.1f} by",
        "confirms" if agree else "refutes",
    ]


def _paths(n: SimpleNamespace) -> Fragments:
    middle = {
        (what, size): sorted(pairs)[len(pairs) // 2]
        for what, rows in n.percent.items()
        for size, pairs in zip(n.sizes, rows.tolist(), strict=True)
    }
    saved = {}
    for what in n.percent:
        served = [
            percent for (kind, size), percent in middle.items() if kind == what and size <= 512
        ]
        saved[what] = 100 - sum(served) / len(served)
    words = [f"{abs(s):.0f} % {'less' if s >= 0 else 'more'}" for s in saved.values()]
    yield ["up to 512 B", *words]
    noise = max(abs(percent - 100) for (_, size), percent in middle.items() if size > 512)
    is_clear = all(abs(one) > noise for one in saved.values())
    verdict = "both effects are" if is_clear else "not every effect is"
    yield ["Above 512 B both", f"up to {noise:.0f} %", verdict]
    text = next(Path("to-512").glob("paths_*.c")).read_text(encoding="utf-8").splitlines()
    functions = sum(line.startswith("SCAN(") for line in text)
    served = sum(size <= 512 for size in n.wanted.tolist()) / len(n.wanted)
    yield [
        "up to 512 B",
        f"{functions} functions",
        f"{100 * served:.0f} % of the requests",
    ]


def _stack_and_append(n: SimpleNamespace) -> Fragments:
    places = [(cost.case.verdict.place, cost.allocs) for cost in n.costs]
    paid, free = places.count(("stack", 0)), sum(p == "heap" and a > 0 for p, a in places)
    heap = sum(place == "heap" for place, _ in places)
    yield [f"{free} of {heap} cases", f"{paid} of {len(places) - heap} others"]
    yield [f"40 B take {n.go.explain(40).rounded_bytes}", f"32,769 B take {5 * 8192:,}"]
    capacities = (2, 6, 12, 24)  # the need, then twice the last
    grown = sum(int(n.go.round_up(8 * capacity)) for capacity in capacities)
    yield ["17 integers", f"took {grown} B", f"takes {n.go.explain(17 * 8).rounded_bytes}"]
    by_waste = sorted((value, name) for name, value in n.unused.items())
    by_copies = sorted((value, name) for name, value in n.copied.items())
    (low, least), (high, most) = by_waste[0], by_waste[-1]
    (seldom, fewest), (often, top) = by_copies[0], by_copies[-1]
    yield [
        f"{least} leaves the least of its last block unused, {low:.0f} %",
        f"{most} the most, {high:.0f} %",
        f"{top} copies most often, {often:.1f} times",
        f"{fewest} least, {seldom:.1f} times",
    ]


def _one_block(n: SimpleNamespace) -> Fragments:
    def taken(request: int) -> int:
        return int(n.go.round_up(request))

    worse = [k for k in range(1, 2001) if taken(40 * k) > k * taken(40)]
    yield [
        "1 to 2,000 books",
        f"takes more than many for {len(worse)} counts, {worse[0]} to {worse[-1]}",
        f"{taken(40) - 40} B",
    ]
    yield [f"all of its {taken(40 * n.number) / 1024:,.0f} KiB"]
    middle = [int(np.abs(n.left - 0.5).argmin())] * len(n.held)
    rows = sorted((held[at], name) for at, (name, held) in zip(middle, n.held.items(), strict=True))
    yield [", ".join(f"{held / 1024:,.0f} KiB {name}" for held, name in rows)]


def _ranges(n: SimpleNamespace) -> Fragments:
    needed = {
        name: [float(row["needed"]) for row in n.rows if row["placement"] == name]
        for name in n.PLACEMENTS
    }
    middles = sorted((float(np.median(each)), name) for name, each in needed.items())
    most, name = max((max(each), name) for name, each in needed.items())
    yield [
        f"needed {middles[0][0]:.2f} times what is live with {middles[0][1]} fit",
        f"{middles[-1][0]:.2f} times with {middles[-1][1]}",
        f"{most:.2f} times, with {name}",
    ]
    spoiled = sorted(n.spoiled.values())
    proved = (n.live * (np.log2(n.largest) / 2 + 1) - n.largest + 1) / n.live
    assert spoiled[0] >= proved - 1e-9
    yield [
        f"sizes up to {n.largest}",
        f"{spoiled[0]:.2f} to {spoiled[-1]:.2f} times",
        f"fewer than {proved:.2f}",
    ]


def _collector(n: SimpleNamespace) -> Fragments:
    right = [found == marked and freed == n.nodes - marked for found, marked, freed in n.counts]
    yield [f"{sum(right)} of {len(right)} random graphs", "exactly"]
    shapes = sorted((times[-1], name) for name, times in n.ns.items())
    yield [
        f"{n.sizes[-1]:,} objects",
        f"{shapes[-1][0]:.0f} ns in the slowest shape ({shapes[-1][1]})",
        f"{shapes[0][0]:.0f} ns in the fastest ({shapes[0][1]})",
    ]
    small, large, whole = sorted(n.pauses)
    assert len(n.pauses[whole]) == 10  # one pause marks all of a cycle
    usual = [statistics.median(n.pauses[budget]) for budget in (small, large, whole)]
    yield [
        f"{usual[0]:.2f} ms in steps of {small:,} objects",
        f"{usual[1]:.2f} ms in steps of {large:,} and {usual[2]:.1f} ms when one step marked all",
    ]
    said = []
    for percent in (400, 50):
        held, cycles = n.garbage[percent]
        said.append((percent, cycles, f"{max(held):.0f} MiB"))
    yield [
        "{} % needed {} cycles and held up to {}".format(*said[0]),
        "{} % needed {} and held up to {}".format(*said[1]),
    ]


def _service(n: SimpleNamespace) -> Fragments:
    cost = {name: min(run[name].cpu_ns / run[name].messages for run in n.rounds) for name in n.cost}
    extra = {name: value - cost["static"] for name, value in cost.items() if name != "static"}
    ranked = sorted((value, name) for name, value in extra.items())
    yield [
        f"{extra['heap']:.0f} ns per message with a heap",
        f"{extra['arena']:.0f} ns with an arena per message",
        f"{extra['batch']:.0f} ns with one per 32",
        f"{ranked[0][1]} took the least, {ranked[0][0]:.0f} ns",
        f"{ranked[-1][1]} the most, {ranked[-1][0]:.0f} ns",
        "all",
    ]
    found = []
    for spread in (0.0, 1.0):
        ends = n.deaths[spread]
        groups = [slice(at, at + 100) for at in range(0, n.messages, 100)]
        held = sum((n.size[g] * (ends[g].max() - n.births[g])).sum() for g in groups)
        found.append(held / (n.size * (ends - n.births)).sum())
    yield ["if 100 messages", f"{found[0]:.1f} times the live", f"{found[1]:.1f} times when"]


def _peers(n: SimpleNamespace) -> Fragments:
    def above(replay: Any) -> float:
        rss = [run.peak_rss_bytes - run.startup_rss_bytes for run in replay.runs]
        return float(np.median(rss)) / 2**20

    # Of two that took the same the notebook names the first.
    rows = sorted(((above(replay), name) for name, replay in n.two.items()), key=lambda row: row[0])
    requested = n.two["glibc"].peak_requested_bytes / 2**20
    yield [
        f"Of {len(rows)} allocators {rows[0][1]} took the least",
        f"{rows[0][0]:.1f} MiB where {requested:.1f} MiB were requested",
        f"{rows[-1][1]} the most, {rows[-1][0]:.1f} MiB",
    ]
    ratios = {name: above(n.two[name]) / above(n.one[name]) for name in n.two}
    ends = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    low, high = (f"{100 * ratios[name] - 100:+.0f} % ({name})" for name in ends)
    share = n.two["glibc"].crossings / len(n.recording.ops)
    yield [f"{100 * share:.0f} % of the operations", f"{low} to {high}"]


def _through_time(n: SimpleNamespace) -> Fragments:
    grown, freed, end = (n.ledgers[name] for name in ("grown", "freed", "end"))
    waste = [100 - 100 * one.requested_bytes / one.held_bytes for one in (freed, grown)]
    yield [
        "90 % of the objects",
        f"{100 * freed.held_bytes / grown.held_bytes:.0f} % of what it had held",
        f"{waste[0]:.0f} % of it waste",
        f"{waste[1]:.0f} % before",
    ]
    parts = [
        (freed.free_slot_bytes, "free slots"),
        (freed.free_page_bytes, "free pages"),
        (freed.cached_bytes, "caches"),
    ]
    (a, first), (b, second) = sorted(parts, reverse=True)[:2]
    wasted = freed.held_bytes - freed.requested_bytes
    yield [f"{100 * a / wasted:.0f} % are {first}", f"{100 * b / wasted:.0f} % {second}"]
    used: list[dict[int, list[int]]] = [{}, {}]  # class -> live objects of each used span
    for tiles, into in zip((n.maps["grown"], n.maps["freed"]), used, strict=True):
        for tile in tiles:
            if tile["live"]:
                into.setdefault(int(tile["cls"]), []).append(int(tile["live"]))
    many = {cls: live for cls, live in used[0].items() if len(live) >= 3}
    model = sum(len(live) * (1 - 0.9 ** (sum(live) / len(live))) for live in many.values())
    still = sum(len(used[1].get(cls, [])) for cls in many)
    yield [
        f"{still} of {sum(map(len, many.values()))} spans still",
        f"0.9^n predicts {model:.0f}",
    ]
    yield [
        f"{(end.requested_bytes - freed.requested_bytes) / 2**20:.1f} MiB of the next",
        f"grew by {(end.held_bytes - freed.held_bytes) / 2**20:.1f} MiB",
    ]


ANSWERS: dict[str, Callable[[SimpleNamespace], Fragments]] = {
    "01": _size_class,
    "02": _your_program,
    "03": _paths,
    "04": _stack_and_append,
    "05": _one_block,
    "06": _ranges,
    "07": _collector,
    "08": _service,
    "09": _peers,
    "10": _through_time,
}
"""The claims of each notebook, by number."""
