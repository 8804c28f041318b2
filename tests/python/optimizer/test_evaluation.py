# SPDX-License-Identifier: Apache-2.0
"""The evaluation of proposed, given, stock and family tables, and the verdict in words."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.ledger.ledger import Comparison
from spanwise.optimizer.evaluation import (
    FOLD_DTYPE,
    Evaluation,
    _partial_span_bytes,
    evaluate,
    ineligible,
    keeps_bound,
)
from spanwise.optimizer.local_search import Scores
from spanwise.optimizer.result import OptimizeResult
from spanwise.optimizer.search import FAMILIES
from spanwise.optimizer.solver import Fit, Rules
from spanwise.results.rows import as_rows
from spanwise.tables.table import STOCK

from tests.python.helpers import ALLOC, FREE, by_peak, make_ops, wanting


@pytest.mark.parametrize("objective", ["peak", "held", "resident"])
@pytest.mark.parametrize("classes", [1, 24])
def test_the_verdict_is_the_ledgers(
    program: sw.Recording, other: sw.Recording, objective: str, classes: int
) -> None:
    """Resident bytes are those of `Recording.ledger`, and the words follow from them."""
    best = by_peak(program, classes, objective, holdout=other, candidates=20)
    for one, recording in ((best.evaluation, program), (best.held_out[0], other)):
        for table in ("go", "c16", "pow2", best.table):
            ledger = recording.ledger(table, "peak-resident")
            name = table if isinstance(table, str) else table.name
            assert one.resident_bytes[name] == ledger.resident_bytes
        ours, stock = one.resident_bytes[best.table.name], one.resident_bytes["c16"]
        assert one.saved_bytes == stock - ours == sum(one.split().values())
        assert one.beats_stock == (ours < stock)
        assert one.limit_bytes == recording.summary.peak_requested_bytes <= ours
    judged = best.held_out[0].resident_bytes
    free = [name for name in judged if name not in {*STOCK, *best.evaluation.ineligible}]
    assert judged[best.table.name] == min(judged[name] for name in free)
    assert best.holds == (100 * judged[best.table.name] <= 99 * judged["c16"])
    assert best.verdict().startswith("no table beats c16") != best.holds
    assert "limit" in str(best) and "span lengths" in str(best)
    assert re.search(r"\n  left: outside the heap +unknown +unknown\n", str(best))


def test_the_split_is_by_parts_of_the_ledgers(alone: None) -> None:
    """By hand: objects of 520 bytes have slots of 576 bytes under c16, and of 528 bytes here.

    Both ledgers are of the moment when the last page was first touched under c16, so before the
    last of the 1,000 objects; under the given table the last page is touched at another moment.
    """
    given = sw.SizeClassTable.custom([(528, 8), (32768, 4)], name="given")
    best = by_peak(wanting(*[520] * 1000), classes=1, tables=[given], least_percent=0)
    assert best.table == given and best.holds
    stock, ours = best.evaluation.stock_ledger, best.evaluation.found_ledger
    assert 800 < stock.live_objects <= 1000 and stock.live_objects == ours.live_objects
    assert stock.requested_bytes == ours.requested_bytes == 520 * stock.live_objects
    assert (stock.at, ours.at) == ("peak-resident", "peak-resident under c16")
    split = best.evaluation.split()
    assert split["classes"] == (56 - 8) * stock.live_objects
    assert ours.resident_bytes is not None
    later = best.evaluation.resident_bytes["given"] - ours.resident_bytes
    assert split["other moment"] == -later <= 0
    assert "by cause at peak-resident under c16" in str(best)


def test_a_small_saving_does_not_win(alone: None) -> None:
    """By hand: 48 bytes of 10,000 objects each, next to 64 MiB that no table changes: 0.7 %."""
    rows = [(ALLOC, i, 520) for i in range(10_000)]
    recording = sw.Recording.from_ops(make_ops(*rows, (ALLOC, 10_000, 64 << 20)))
    given = sw.SizeClassTable.custom([(528, 8), (32768, 4)], name="given")
    best = by_peak(recording, classes=1, tables=[given])
    assert 0.005 < best.saved_share < 0.008 and best.least_percent == 1
    assert best.beats_stock and not best.holds and not best.loses_on
    assert best.verdict().startswith("no table beats c16 by 1 %: given saves ")
    assert best.table.to_dict()["parameters"]["condemned"] == best.verdict()
    for percent, holds in ((0, True), (0.5, True), (0.8, False)):
        other = by_peak(recording, classes=1, tables=[given], least_percent=percent)
        assert (other.holds, other.saved_bytes) == (holds, best.saved_bytes)
    for percent in (-1, 101, float("nan")):
        with pytest.raises(sw.InvalidError, match=f"least_percent {percent}: must be 0 to 100"):
            by_peak(recording, classes=1, least_percent=percent)


RULES = Rules(1, 16, 32768, 8192, 10, 0.5, 0.0)


def test_partial_spans_by_lifetime() -> None:
    """By hand: 64 objects of 512 bytes, 16 a span of 8 KiB; 45 go, so that 3 spans keep one each.

    The 19 that stay would fit into two spans with 13 free slots. So 32 free slots, two whole spans,
    are there because of who lives how long; that is what is left. Under c16 spans have 16, 32 and
    64 slots; the last has room for all, so no free slot of the others need be. The large object
    makes the end the moment with most resident.
    """
    rows = [(ALLOC, i, 512) for i in range(64)]
    rows += [(FREE, i, 0) for i in range(48) if i % 16]
    recording = sw.Recording.from_ops(make_ops(*rows, (ALLOC, 64, 1 << 20)))
    given = sw.SizeClassTable.custom([(512, 1), (32768, 4)], name="given")
    tables = [*map(sw.SizeClassTable.named, STOCK), given]
    for count in (1, 2):  # two recordings cannot share a span
        one = evaluate(Scores([recording] * count), tables, [], "given", RULES)
        assert one.found_ledger.free_slot_bytes == 45 * 512 * count
        assert one.left() == {"partial spans": 32 * 512 * count, "outside the heap": None}
        split = one.split()
        assert split["partial spans"] == (45 - 32) * 512 * count
        assert split["span lengths"] == -13 * 512 * count
        assert sum(split.values()) == one.saved_bytes
        assert one.to_dict()["left"] == one.left()
        assert one.limit_bytes == (19 * 512 + (1 << 20)) * count


def test_free_slots_that_are_not_resident_are_no_partial_span() -> None:
    """By hand: of 15 free slots of 512 bytes, which one object needs, 100 bytes are resident."""
    row = {"spans": 1, "slots": 16, "live_objects": 1, "size_bytes": 512, "cached_bytes": 0}
    for free, partial in ((100, 0), (15 * 512 + 100, 100)):
        resident = SimpleNamespace(classes=[{"free_slot_bytes": free}])
        one: Any = SimpleNamespace(classes=[row], resident=resident)
        assert _partial_span_bytes(one) == partial


def test_tables_that_are_given_take_part(program: sw.Recording) -> None:
    """The best of all wins; one that malloc could not serve from is shown and cannot win."""
    proposed = by_peak(program, classes=40, objective="held").proposal
    better = sw.SizeClassTable.custom(
        [(int(row["size_bytes"]), int(row["span_bytes"]) // 8192) for row in proposed.classes],
        name="better",
    )
    best = by_peak(program, classes=1, tables=[better, "c16", "pow2"])
    assert (best.table, best.evaluation.found, best.proposal.name) == (
        better,
        "better",
        "best-1-peak",
    )
    assert set(best.resident_bytes) == {"go", "c16", "better", "best-1-peak", *FAMILIES}
    odd = sw.SizeClassTable.custom([(24, 1), (520, 5), (32768, 4)], name="odd")
    best = by_peak(wanting(*[520] * 1000), classes=1, tables=[odd])
    assert {"go", "odd"} <= set(best.evaluation.ineligible) and best.table != odd
    assert "odd, not aligned to 16, would have " in best.verdict()
    free = by_peak(wanting(*[520] * 1000), classes=1, tables=[odd], align=8)
    assert free.evaluation.ineligible == {} and free.table == odd


def test_a_table_that_may_waste_half_a_slot_cannot_win(alone: None) -> None:
    """1,000 objects of 512 bytes: pow2 has the fewest classes, and so the least metadata.

    Of its slots a request of 513 bytes would waste 511 of 1,024.
    """
    recording = wanting(*[512] * 1000)
    best = sw.optimize(recording, objective="peak", tables=["pow2", "mimalloc"])
    assert set(best.evaluation.ineligible) == {"go", "pow2"}
    assert best.resident_bytes["pow2"] < best.resident_bytes["c16"] and best.table.name != "pow2"
    loose = by_peak(recording, classes=1, tables=["pow2"])
    assert set(loose.evaluation.ineligible) == {"go"} and loose.table.name == "pow2"


def test_the_bound_of_a_table_by_hand() -> None:
    """After 64 bytes a class of 128 wastes 63 on a request of 65: 49.2 %. 16 and 32 are steps."""
    table = sw.SizeClassTable.custom([(size, 1) for size in (16, 32, 64, 128)], name="steps")
    assert keeps_bound(table, replace(RULES, waste_percent=50))
    assert not keeps_bound(table, replace(RULES, waste_percent=49))


def test_a_stock_table_is_to_be_beaten_whatever_the_bound() -> None:
    """By hand: after 1,024 bytes c16 has a class of 1,152, which wastes 127 of it: 11 %."""
    c16 = sw.SizeClassTable.c16()
    assert ineligible([c16], replace(RULES, waste_percent=8)) == {}
    assert not keeps_bound(c16, replace(RULES, waste_percent=8))


def test_names_that_two_tables_would_have(program: sw.Recording) -> None:
    mine = sw.SizeClassTable.custom([(64, 1), (32768, 4)], name="mine")
    other = sw.SizeClassTable.custom([(96, 1), (32768, 4)], name="mine")
    with pytest.raises(sw.InvalidError, match="two different tables have the name 'mine'"):
        by_peak(program, tables=[mine, other])
    with pytest.raises(sw.InvalidError, match="name 'mine' belongs to a given table; choose"):
        by_peak(program, tables=[mine], name="mine")
    first = by_peak(program)
    again = by_peak(program, tables=[first.proposal])
    assert again.resident_bytes == first.resident_bytes


def test_recordings_of_different_programs_are_refused_by_default(
    program: sw.Recording, other: sw.Recording, tmp_path: Path
) -> None:
    """Both in the fit and held out; mixed=True allows them."""
    first = sw.Recording.from_ops(program.ops, tmp_path / "a.swt", name="/bin/perl")
    same = sw.Recording.from_ops(other.ops, tmp_path / "b.swt", name="/usr/bin/perl")
    second = sw.Recording.from_ops(other.ops[:2000], tmp_path / "c.swt", name="/usr/bin/awk")
    for fitted, held_out in (([first, second], None), ([first], second)):
        with pytest.raises(sw.InvalidError) as caught:
            by_peak(fitted, holdout=held_out)
        assert str(caught.value) == (
            "c.swt: is of awk, and a.swt of perl; give recordings of one program, or fit a"
            " table to several with mixed=True (--mixed)"
        )
    assert by_peak(first, holdout=same).held_out[0].name == "b.swt"
    assert by_peak([first, second], mixed=True).evaluation.name == "a.swt, c.swt"


def test_wrong_held_out_recordings(program: sw.Recording, tmp_path: Path) -> None:
    empty = sw.Recording.from_ops(program.ops[:0], name="empty")
    stored = sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    again = sw.Recording.open(tmp_path / "a.swt")
    nothing = tmp_path / "nothing.swt"
    nothing.touch()
    for held_out, message in (
        (empty, "empty: holds no allocation; record a program that makes some"),
        (again, "a.swt: cannot be held out, because the table is fitted to it"),
        ([], "holdout: no recording; give at least one, or none at all"),
    ):
        with pytest.raises(sw.InvalidError) as caught:
            by_peak(stored, holdout=held_out)
        assert str(caught.value) == message
    with pytest.raises(sw.SpanwiseError) as refused:
        by_peak(stored, holdout=nothing)
    assert str(refused.value) == (
        f"{nothing}: not a spanwise recording: the file is empty; make one with spanwise record"
    )


# --- the verdict, from bytes given by hand --------------------------------------------------------


Bytes = tuple[int, ...]
"""Peak resident bytes under c16 and the found table, and under go where these are not 1."""

ONE = wanting(16)
MINE = sw.SizeClassTable.custom([(16, 1), (32768, 4)], name="mine")
LEDGERS = Comparison([ONE.ledger(table, "peak-resident") for table in ("go", "c16", MINE)])
UNALIGNED = {"go": "not aligned to 16"}


def evaluation(name: str, resident: Bytes) -> Evaluation:
    """An evaluation in which go would be the best, but is not aligned."""
    c16, mine, go = (*resident, 1)[:3]
    return Evaluation(name, LEDGERS, {"go": go, "c16": c16, "mine": mine}, "mine", 16, 0, UNALIGNED)


def optimum(fitted: Bytes, *held_out: Bytes, parts: int = 1, folds: Any = None) -> OptimizeResult:
    """What `optimize` would return; held-out recordings are called a, b, ..."""
    recordings = [ONE] * parts
    rules = Rules(2, 16, 32768, 8192, 10, 0.5, 0.0)
    fit = Fit(recordings, "peak", rules)
    rows = None
    if folds is not None:
        rows = np.zeros(len(folds), FOLD_DTYPE)
        rows["saved_percent"] = folds
    held = tuple(evaluation(name, one) for name, one in zip("ab", held_out, strict=False))
    return OptimizeResult(
        *(fit, MINE, MINE, evaluation("fit", fitted), held),
        folds=None if rows is None else as_rows(rows),
    )


@pytest.mark.parametrize(
    ("resident", "saved", "percent", "loses_on", "holds"),
    [
        ([(1000, 990)], 10, 1.0, "", True),  # exactly least_percent
        ([(1000, 991)], 9, 0.9, "", False),
        ([(1000, 1000)], 0, 0.0, "", False),
        ([(1000, 1010)], -10, -1.0, "", False),
        ([(1000, 500), (4000, 3960)], 40, 1.0, "", True),
        ([(1000, 500), (4000, 3961)], 39, 0.975, "", False),
        ([(1000, 500), (4000, 4000)], 0, 0.0, "", False),
        ([(1000, 500), (4000, 4001)], -1, -0.025, "a", False),
        ([(1000, 1200), (4000, 3600)], 400, 10.0, "", True),  # the fit does not decide
        ([(1000, 900), (2000, 2000), (2000, 1900)], 100, 2.5, "", True),  # a tie is no loss
        ([(1000, 900), (2000, 2001), (2000, 1000)], 999, 24.975, "a", False),
    ],
)
def test_held_out_data_decides(
    resident: list[Bytes], saved: int, percent: float, loses_on: str, holds: bool
) -> None:
    """Held-out recordings decide, each by itself, not the fit."""
    best = optimum(*resident)
    assert (best.stock, best.saved_bytes, best.loses_on) == ("c16", saved, tuple(loses_on))
    assert 100 * best.saved_share == pytest.approx(percent)
    assert best.beats_stock == (saved > 0) and best.holds is holds
    assert best.verdict().startswith("no table beats c16") is not holds
    assert ("condemned" in best.table.to_dict().get("parameters", {})) is not holds
    value = best.to_dict()
    assert (value["saved_bytes"], value["holds"]) == (saved, holds)
    assert value["saved_share"] == best.saved_share


def test_verdicts_in_words() -> None:
    """Percentages are of the resident bytes under c16 on the named recording."""
    won = optimum((1024, 1023), (2048, 1536))
    assert won.verdict() == (
        "mine saves 512 B (25.0 %) of the peak resident of 2.0 KiB under c16 on a, held out; go,"
        " not aligned to 16, would have a peak resident of 1 B."
    )
    lost = optimum((1024, 1023), (2048, 1024), (1000, 1100))
    assert lost.verdict() == (
        "no table beats c16 on every held-out recording: mine saves"
        " 1.0 KiB (50.0 %) of the peak resident of 2.0 KiB under c16 on a, held out; mine loses"
        " 100 B (10.0 %) of the peak resident of 1000 B under c16 on b, held out; go, not aligned"
        " to 16, would have a peak resident of 1 B."
    )


@pytest.mark.parametrize(
    ("fitted", "held_out", "said"),
    [(1, 899, True), (1, 900, False), (5000, 1, True), (1, 5000, False)],
)
def test_a_table_that_breaks_a_rule_is_named_where_it_would_save_more(
    fitted: int, held_out: int, said: bool
) -> None:
    """On what was held out, where the found table has 900 bytes resident."""
    best = optimum((1000, 900, fitted), (1000, 900, held_out))
    assert ("; go, not aligned to 16, would have a peak" in best.verdict()) is said


def test_families_rise_and_are_those_without_a_ledger() -> None:
    one = evaluation("a", (1000, 900))
    one = replace(one, resident_bytes={**one.resident_bytes, "pow2": 70, "jemalloc": 60})
    assert list(one.families().items()) == [("jemalloc", 60), ("pow2", 70)]


def test_tables_are_listed_by_what_decides() -> None:
    """c16 has less resident on the fit, and the found table on the held-out recording."""
    rows, head = optimum((1000, 2000), (4000, 3000))._resident_rows()
    assert head == ("", "fit", "a, held out")
    assert rows[:3] == [("go", "1", "1"), ("mine", "2,000", "3,000"), ("c16", "1,000", "4,000")]


@pytest.mark.parametrize(
    ("parts", "folds", "holds"),
    [
        (2, [0.5, -0.1], True),  # the median is 0.2
        (2, [0.0, 0.0], False),
        (2, [0.1, -0.3], False),
        (3, [-9.0, 0.1, 0.2], True),  # the mean is below 0
        (3, [9.0, -0.1, -0.2], False),
        (1, [-9.0, -9.0], True),  # parts of one recording do not decide
        (2, None, True),
    ],
)
def test_the_median_of_the_parts_left_out_decides(
    parts: int, folds: list[float] | None, holds: bool
) -> None:
    best = optimum((1000, 900), parts=parts, folds=folds)
    assert best.holds is holds
    said = "no table beats c16 in cross-validation: mine saves 100 B"
    assert best.verdict().startswith("mine saves 100 B" if holds else said)


# --- tables that are chosen -----------------------------------------------------------------------

NEAR = sw.SizeClassTable.custom([(528, 8), (1152, 4, 1), (32768, 4)], name="near")
WIDE = sw.SizeClassTable.custom([(560, 8), (1040, 8), (32768, 4)], name="wide")
"""For objects of 520 and 1,040 bytes. An object's part of a full span, tail included, is 580 and
1,170 bytes under c16 (113 slots in 64 KiB, 28 in 32 KiB), 528.5 and 1,170 under `near` (124 and
28), 560 and 1,040 under `wide` (117 and 63). First spans of c16 are shorter and have longer tails.
"""


def choice(fitted: sw.Recording, **options: Any) -> OptimizeResult:
    """Choose from these two and a proposal of a single class of 32 KiB."""
    return by_peak(fitted, classes=1, tables=[NEAR, WIDE], **options)


@pytest.mark.usefixtures("alone")
def test_the_sum_over_held_out_data_chooses() -> None:
    """By hand: of an object of each size `near` saves 51.5 and 0 bytes, and `wide` 20 and 130.

    Of 4,000 and 1,900 objects `near` saves 206 KB, `wide` 327 KB, though under it more is resident
    of the recording with most: 4,000 * 560 bytes, where `near` has 1,900 * 1,170.
    """
    both = [wanting(*[520] * 4000), wanting(*[1040] * 1900)]
    best = choice(wanting(*[520] * 100), holdout=both)
    assert best.table.name == "wide"
    assert best.saved_bytes == pytest.approx(4000 * 20 + 1900 * 130, rel=0.12)
    largest = {
        name: max(one.resident_bytes[name] for one in best.held_out) for name in ("near", "wide")
    }
    assert largest["near"] < largest["wide"]


@pytest.mark.usefixtures("alone")
def test_a_table_that_loses_on_one_recording_is_not_chosen() -> None:
    """`odd` saves most of the sum, but gives 520 bytes a slot of 1,040."""
    odd = sw.SizeClassTable.custom([(1040, 9), (32768, 4)], name="odd")
    both = [wanting(*[520] * 200), wanting(*[1040] * 20_000)]
    best = by_peak(wanting(16), classes=1, tables=[odd, NEAR], holdout=both)
    resident = {
        name: sum(t.resident_bytes[name] for t in best.held_out) for name in ("odd", "near")
    }
    assert resident["odd"] < resident["near"] and best.table.name == "near"


# --- choices on parts -----------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
def test_parts_are_judged_next_to_the_better_stock_table() -> None:
    """With align 8 that may be either: c16 for many objects of 1,040 bytes, go for few of 24."""
    for name, other, sizes in (("c16", "go", [1040] * 3000), ("go", "c16", [24] * 300)):
        two = [wanting(*sizes), wanting(*sizes)]
        better, worse = (
            two[0].ledger(t, "peak-resident").peak_resident_bytes for t in (name, other)
        )
        assert better is not None and worse is not None and better < worse
        rows = by_peak(two, classes=1, align=8, folds=2).folds
        assert rows is not None and rows["stock_bytes"].tolist() == [better, better]


@pytest.mark.usefixtures("alone")
def test_a_part_is_judged_by_the_choice_on_the_others() -> None:
    """By hand: on 520 bytes `near` is chosen, which saves nothing of 1,040; on those `wide`."""
    two = [wanting(*[520] * 4000), wanting(*[1040] * 4000)]
    rows = by_peak(two, classes=1, tables=[NEAR, WIDE], folds=2).folds
    assert rows is not None and rows["fold"].tolist() == [0, 1]
    expected = [("c16", "wide"), ("c16", "near")]
    tables: dict[str, Any] = {"c16": "c16", "near": NEAR, "wide": WIDE}
    for row, recording, pair in zip(rows, two, expected, strict=True):
        stock, chosen = (
            recording.ledger(tables[name], "peak-resident").peak_resident_bytes for name in pair
        )
        assert stock is not None and chosen is not None
        assert (row["stock_bytes"], row["chosen_bytes"]) == (stock, chosen)
        assert row["saved_percent"] == pytest.approx(100 * (stock - chosen) / stock)
    # Metadata, in whole pages, is up to 1 % of so small a heap.
    assert rows["saved_percent"][0] == pytest.approx(100 * 20 / 580, abs=1)
    assert abs(rows["saved_percent"][1]) < 0.5
