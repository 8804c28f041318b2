# SPDX-License-Identifier: Apache-2.0
"""The evaluation of proposed, given, stock and family tables on recordings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import spanwise as sw
from spanwise.optimizer.evaluation import (
    _partial_span_bytes,
    evaluate,
    ineligible,
    keeps_bound,
)
from spanwise.optimizer.local_search import Scores
from spanwise.optimizer.search import FAMILIES
from spanwise.optimizer.solver import Rules
from spanwise.tables.table import STOCK

from tests.python.helpers import ALLOC, FREE, make_ops
from tests.python.optimizer.optimizer_tools import by_peak, wanting


def test_a_loss_on_held_out_data_rejects_a_table(alone: None) -> None:
    """Fitted to 496-byte objects; 513 bytes then take a page at least of a slot of 32 KiB.

    What is saved on the one recording does not make up for a loss on the other.
    """
    fitted = wanting(*[496] * 2000)
    small, same = wanting(*[513] * 20), wanting(*[496] * 4000)
    small.name, same.name = "small", "same"
    best = by_peak(fitted, classes=2, partial=0, holdout=[same, small], name="mine")
    bad = best.held_out[1].resident_bytes
    assert bad["mine"] > 20 * 4096 > bad["c16"] - 64 * 1024
    assert (
        best.evaluation.saved_bytes > 0
        and best.held_out[0].saved_bytes > 0 > bad["c16"] - bad["mine"]
    )
    assert [one.name for one in best.held_out] == ["same", "small"]
    assert best.loses_on == ("small",) and not best.holds
    said = "no table beats c16 on every held-out recording: mine saves "
    assert best.verdict().startswith(said)
    assert "; mine loses " in best.verdict()
    assert best.verdict().endswith(" under c16 on small, held out.")


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
