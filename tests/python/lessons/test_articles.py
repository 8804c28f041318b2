# SPDX-License-Identifier: Apache-2.0
"""Counts of the articles: verdicts, blocks, growth of slices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.lessons.articles import (
    VERDICTS,
    Blocks,
    blocks,
    books,
    claims,
    verdicts,
)

GO = sw.SizeClassTable.go()
ROOT = Path(__file__).parents[3]


def numbers(text: str) -> set[float]:
    """Return the numbers in a text, without their thousands separators."""
    return {float(word.replace(",", "")) for word in re.findall(r"\d[\d,]*\.?\d*", text)}


def test_a_reproduced_figure_is_the_articles_and_a_different_one_is_not() -> None:
    assert len({claim.key for claim in claims()}) == len(claims()) == 261
    for claim in claims():
        assert claim.verdict in VERDICTS and claim.reason.endswith(".")
        if claim.verdict == "reproduced" and claim.value is not None:
            assert claim.ours == claim.value
        if claim.verdict == "different":
            assert claim.ours is not None and claim.ours != claim.value


def test_only_what_nobody_can_measure_here_has_no_figure() -> None:
    """Sizes of a service in production, each next to what ours would take or serve."""
    without = {claim.case for claim in claims() if claim.verdict == "not reproducible"}
    assert without == {"long connections of the real service", "peak of the real service"}
    none = [claim for claim in claims() if claim.ours is None]
    assert {claim.case for claim in none} == without
    assert all(numbers(claim.others) for claim in none)


def test_the_page_of_lessons_counts_the_verdicts() -> None:
    text = " ".join((ROOT / "docs/design/lesson.md").read_text(encoding="utf-8").split())
    count = Counter(claim.verdict for claim in claims())
    assert f"has {len(claims())} figures and statements" in text
    assert (
        f"{count['reproduced']} are reproduced, {count['different']} differ, and"
        f" {count['not reproducible']} are not reproducible"
    ) in text


FIGURE = re.compile(
    r"(\d[\d,.]*)(?: (?:and|to|for) (\d[\d,.]*))? (?:ns|µs|ms|%|instructions)(?!\w)"
)


def test_a_figure_is_on_the_page_that_its_reason_names() -> None:
    """Our figures, those of others, and the times and percentages of the texts."""
    checked = 0
    for claim in claims():
        pages = re.findall(r"docs/(?:measurements|design)/[\w-]+\.md", claim.reason)
        if not any("measurements" in page for page in pages):
            continue
        found = numbers("".join((ROOT / page).read_text(encoding="utf-8") for page in pages))
        if isinstance(claim.ours, int | float) and claim.unit != "%":
            assert {claim.ours, round(claim.ours * 1000, 6)} & found, claim  # ms are printed in us
            if not claim.unit.startswith("messages"):  # Go's throughput is computed from its ns
                assert numbers(claim.others) <= found, claim
        texts = FIGURE.findall(f"{claim.ours}; {claim.others}; {claim.reason}")
        assert numbers(" ".join(" ".join(each) for each in texts)) <= found, claim
        checked += 1
    assert checked > 130


# --- no claim withholds a figure ------------------------------------------------------------------

OTHER_NAMES = {
    "16 B in batches, over the loop that bumps and clears": "small objects in batch, with arena",
    "16 B in batches, over Go's arena": "small objects in batch, with arena",
    "16 B in batches, over Go's heap": "small objects in batch, with arena",
    "slice of 1 KiB, over Go's arena": "frequent temporary slices, with arena",
    "slice of 1 KiB, over Go's heap": "frequent temporary slices, with arena",
    "a server's message, one arena per 32, over Go's heap": "average throughput, with arena",
    "the same over Go's arena": "average throughput, with arena",
    "collections with 12 MB live, over Go's heap": "collections fall by",
    "pauses with 12 MB live, over Go's heap": "total pause falls by",
    "pauses with 12 MB live, over the same heap without arenas": "total pause falls by",
    "get and put of a pool, ns": "sync.Pool alone, 1 k tasks",
    "get and put of a pool, over Go's `sync.Pool`": "sync.Pool alone, 10 k tasks",
    "FlatBuffers, builder of 256 B, heap": "protobuf and FlatBuffers can build in an arena",
    "FlatBuffers, builder of 256 B, arena": "protobuf and FlatBuffers can build in an arena",
    "FlatBuffers, builder of 4 KiB, heap": "protobuf and FlatBuffers can build in an arena",
    "FlatBuffers, builder of 4 KiB, arena": "protobuf and FlatBuffers can build in an arena",
    "Protobuf, heap": "protobuf and FlatBuffers can build in an arena",
    "Protobuf, arena": "protobuf and FlatBuffers can build in an arena",
    "stop, P99, us": "P99 GC STW, service",
    "gc, new of 16 B, over Go": "20 M CreatePointer",
    "inline_zeroed_32": "a constant 32 B object",
    "multiple, ten of 256 B": "without recyclable memory",
    "buffer scalable_pair, treap": "Malloc and Free must run",
    "buffer batch, treap": "RecyclableMemory is 53 % faster",
    "buddy": "buddy allocation",
    "throughput of one core, messages/s": "peak of the real service",
    "stack by copy, filled to 1 MiB, over a chain": "a goroutine stack starts",
    "small objects (16 B) in batches, Go, ns": "small objects in batch, without arena",
    "slices of 1 KiB, Go, ns": "frequent temporary slices, without arena",
    "all pauses, ms": "total_gc_pause, without arena",
    "the mean pause, ms": "STW, without arena",
    "connections' pools, messages/s": "pool of connections: throughput, without arena",
}
"""First cell of a row of a page -> the beginning of the claim that its first figure answers."""


def rows_of_pages() -> Iterator[tuple[list[str], list[str]]]:
    """Return the head and the cells of each row of a table in docs/measurements."""
    for page in sorted((ROOT / "docs/measurements").glob("*.md")):
        head: list[str] = []
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|"):
                head = []
            elif not head:
                head = cells
            else:
                yield head, cells


def test_no_claim_withholds_the_figures_of_a_row_that_answers_it() -> None:
    """A row that names a claim, first or as the nearest case: all figures but ratios."""
    shown: dict[str, set[float]] = {}
    for claim in claims():
        text = f"{claim.ours} {claim.value} {claim.others} {claim.reason}"
        shown.setdefault(claim.case, set()).update(numbers(text))
    named, other = set(), set()
    for head, cells in rows_of_pages():
        answered = {name for cell in cells[:2] for name in cell.split("; ")} & shown.keys()
        columns = zip(head[1:], cells[1:], strict=True)
        figures = [cell for title, cell in columns if not re.search("/|nearest", title)]
        figures = [re.sub(r"\[.*?\]", "", cell) for cell in figures]  # without intervals
        for case in answered:
            assert numbers(" ".join(figures)) <= shown[case], (case, cells)
            named.add(case)
        if cells[0] in OTHER_NAMES:
            first = next(min(numbers(cell.split()[0])) for cell in figures if numbers(cell))
            cases = [case for case in shown if case.startswith(OTHER_NAMES[cells[0]])]
            assert cases and all(first in shown[case] for case in cases), cells
            other.add(cells[0])
    assert len(named) > 60
    assert other == OTHER_NAMES.keys()


def test_a_count_that_is_not_the_verdicts_is_refused() -> None:
    said = verdicts("04", {("[5]int64", "B/op"): 48})
    assert "[5]int64: 48 B/op; here 48" in said
    with pytest.raises(sw.InvalidError, match="counted 47"):
        verdicts("04", {("[5]int64", "B/op"): 47})
    with pytest.raises(sw.InvalidError, match="no claim of notebook"):
        verdicts("04", {("[6]int64", "B/op"): 48})
    with pytest.raises(sw.InvalidError, match="has no claim"):
        verdicts("99", {})


# --- blocks ---------------------------------------------------------------------------------------


def test_blocks_by_hand() -> None:
    """33 takes 48; 66 takes 80; 32769 takes five pages of 8 KiB."""
    assert blocks([33, 33, 66], GO) == Blocks(176, 3, 44)
    assert blocks([32769], GO) == Blocks(40960, 1, 8191)
    assert blocks([], GO) == Blocks(0, 0, 0)


@pytest.mark.parametrize(
    ("count", "together", "apart"),
    [
        (100, (4992, 2), (5696, 101)),
        (820, (47744, 2), (46144, 821)),
        (853, (47872, 2), (47856, 854)),
    ],
)
def test_books(count: int, together: tuple[int, int], apart: tuple[int, int]) -> None:
    assert books(count, GO, together=True)[:2] == together
    assert books(count, GO, together=False)[:2] == apart


def test_blocks_bad_sizes() -> None:
    with pytest.raises(sw.InvalidError):
        blocks([-1], GO)
    with pytest.raises(TypeError):
        blocks([1.5], GO)  # type: ignore[list-item]


# --- growth ---------------------------------------------------------------------------------------


def test_growth_of_go_one_by_one() -> None:
    """The capacities that Go 1.18 and later print for []int64."""
    found = sw.simulate_growth([1] * 2000, table=GO)
    known = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 848, 1280, 1792, 2560)
    assert found.capacities == known
    assert found.blocks == tuple(8 * n for n in known)
    assert found.copied_bytes == 8 * sum(known[:-1])
    assert found.waste_bytes == 8 * (2560 - 2000)


def test_merge_of_five_slices() -> None:
    """Joining 2, 3, 4, 5 and 3 ints takes 352 B in 4 blocks, or 144 B in one made beforehand."""
    found = sw.simulate_growth([2, 3, 4, 5, 3], table=GO)
    assert found.capacities == (2, 6, 12, 24)
    assert (found.allocated_bytes, found.allocs) == (352, 4)
    assert found.copied_bytes == 8 * (2 + 5 + 9)
    at_once = sw.simulate_growth([17], table=GO)
    assert (at_once.allocated_bytes, at_once.allocs, at_once.waste_bytes) == (144, 1, 8)


@pytest.mark.parametrize(
    ("policy", "capacities"),
    [
        ("1.5x", (1, 2, 3, 4, 6, 9, 13)),
        ("2x", (1, 2, 4, 8, 16)),
        ("golden", (1, 2, 3, 4, 6, 9, 14)),
        ("exact", tuple(range(1, 13))),
        ("go", (1, 2, 4, 8, 16)),
    ],
)
def test_twelve_elements_without_a_table(policy: str, capacities: tuple[int, ...]) -> None:
    found = sw.simulate_growth([1] * 12, policy=policy, element_bytes=10)
    assert found.capacities == capacities
    assert found.blocks == tuple(10 * n for n in capacities)
    assert found.held_bytes == 10 * capacities[-1]
    assert found.waste_bytes == 10 * (capacities[-1] - 12)
    assert found.copied_bytes == 10 * sum(n for n in capacities[:-1])


def test_growth_bad_input() -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: sw.simulate_growth([1], policy="3x"),
        lambda: sw.simulate_growth([-1]),
        lambda: sw.simulate_growth([1], element_bytes=0),
        lambda: sw.simulate_growth([1 << 62], element_bytes=8),
        lambda: sw.simulate_growth([1 << 62, 1 << 62]),
    )
    for call in calls:
        with pytest.raises(sw.InvalidError):
            call()
    with pytest.raises(TypeError):
        sw.simulate_growth([1.5])  # type: ignore[list-item]
