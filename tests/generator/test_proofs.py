# SPDX-License-Identifier: Apache-2.0
"""Proofs and properties of tables; each proof notices its defect."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spanwise_sizeclasses import emit, model
from spanwise_sizeclasses.families import make_table
from spanwise_sizeclasses.model import (
    SLOTS_MAX,
    Parameters,
    ProofError,
    SizeClass,
    SizeClassError,
    Table,
)

from tests.generator.tools import C16, GO

LARGEST = 32768


@pytest.mark.parametrize("size", [0, 1, 8, 9, 1023, 1024, 1025, 32767, LARGEST])
@pytest.mark.parametrize("off", [-1, 1])
def test_one_wrong_look_up(monkeypatch: pytest.MonkeyPatch, size: int, off: int) -> None:
    right = Table.class_of

    def wrong(table: Table, asked: int) -> int:
        return right(table, asked) + (off if asked == size else 0)

    monkeypatch.setattr(Table, "class_of", wrong)
    wanted = next(cls for cls, c in enumerate(GO.classes, 1) if c.size >= size)
    message = f"table go: size {size} gives class {wanted + off}, not {wanted}"
    with pytest.raises(ProofError, match=f"^{re.escape(message)}$"):
        model._prove_lookup(GO)


def test_every_size_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[int] = set()
    right = Table.class_of

    def noted(table: Table, size: int) -> int:
        asked.add(size)
        return right(table, size)

    monkeypatch.setattr(Table, "class_of", noted)
    assert model._prove_lookup(C16).endswith(f"for every size 0..{LARGEST}")
    assert asked == set(range(LARGEST + 1))


# 8 KiB in slots of 1,008 bytes: eight of them and a tail of 128 bytes, a 64th of the span.
TAILED = Table("tailed", 8192, (SizeClass(1008, 1),))


@pytest.mark.parametrize(("limit", "holds"), [((1, 65), False), ((1, 64), True), ((1, 63), True)])
def test_a_tail_may_be_as_long_as_the_limit(limit: tuple[int, int], holds: bool) -> None:
    assert GO.parameters is not None
    parameters = replace(GO.parameters, tail_limit=Fraction(*limit), max_size=1008)
    table = replace(TAILED, parameters=parameters)
    if holds:
        assert model._prove_tails(table) == [f"no tail above {Fraction(*limit)} of its span"]
        return
    with pytest.raises(ProofError, match="class 1: tail above 1/65 of its span"):
        model._prove_tails(table)


def test_classes_of_16_bytes_are_multiples_of_16() -> None:
    assert C16.parameters is not None
    classes = (SizeClass(8, 1), SizeClass(24, 1), SizeClass(LARGEST, 4))
    with pytest.raises(ProofError, match="a class above 8 is not a multiple of 16"):
        model._prove_tails(Table("c16", 8192, classes, C16.parameters))


@pytest.mark.parametrize("wrong", [{8: 87.5}, {8: 87.5, 16: 43.75, 24: 29.24, 48: 31.5}])
def test_worst_waste_is_the_expected_one(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[int, float]
) -> None:
    monkeypatch.setitem(model.EXPECTED, "go", (67, wrong))
    with pytest.raises(ProofError, match="worst waste above the bound is"):
        model._prove_bounds(GO)


def test_rows_by_hand() -> None:
    """1,008 bytes after a class of 512: worst is 513, which loses 495 of each slot, and the tail.

    A slot is aligned to the largest power of two that divides its size.
    """
    table = Table("two", 8192, (SizeClass(512, 1), SizeClass(1008, 1)))
    first, second = table.rows
    assert (first.objects, first.tail_waste, first.min_align) == (16, 0, 512)
    assert first.max_waste_pct == 99.8  # 16 times 511 of 8192
    assert (second.objects, second.tail_waste, second.min_align) == (8, 128, 16)
    assert second.max_waste_pct == 49.9  # 8 times 495, and 128, of 8192: 4088


PARAMETERS = st.builds(
    Parameters,
    align=st.sampled_from(["go", "16"]),
    page_bytes=st.sampled_from([4096, 8192, 16384, 65536]),
    max_size=st.sampled_from([1 << n for n in range(4, 17)]),
    tail_limit=st.builds(Fraction, st.integers(1, 12), st.integers(13, 64)),
    span_slots=st.sampled_from([1, 2, 64, 8192]),
    growing=st.booleans(),
)


@settings(deadline=None, max_examples=30)
@given(PARAMETERS)
def test_procedure_properties(p: Parameters) -> None:
    try:
        table = make_table(p)
    except SizeClassError as error:
        assert re.fullmatch(r"(\d+ classes: .*|class \d+ .*|size \d+: no span .*)", str(error))
        return
    assert model.prove(table)
    assert table.max_size == p.max_size
    assert table.classes[0].size == 8 or p.max_size == 8
    if p.align == "16":
        assert all(c.size % 16 == 0 for c in table.classes if c.size > 8)
    for row, upper in zip(table.rows, table.classes[1:], strict=False):
        assert row.tail_waste <= row.span_bytes * p.tail_limit
        same = p.span_slots == 1 and upper.pages * p.page_bytes == row.span_bytes
        assert not same or row.span_bytes // upper.size < row.objects, "neighbours to be merged"
    assert all(c.size % (1 << table.large_shift) == 0 for c in table.classes if c.size > 1024)


@st.composite
def class_lists(draw: st.DrawFn) -> tuple[int, tuple[SizeClass, ...]]:
    page = draw(st.sampled_from([4096, 8192, 16384, 65536]))
    steps = draw(st.lists(st.integers(1, 400), min_size=1, max_size=20))
    size = 0
    classes = []
    for step in steps:
        size += 8 * step
        most = min(-(-size // page) + 6, SLOTS_MAX * size // page)
        least = -(-size // page)
        pages = draw(st.integers(least, most))
        firsts = [pages >> k for k in range(4) if pages % (1 << k) == 0 and pages >> k >= least]
        first = draw(st.sampled_from(firsts))
        classes.append(SizeClass(size, pages, None if first == pages else first))
    return page, tuple(classes)


@settings(deadline=None, max_examples=40)
@given(class_lists())
def test_any_legal_list_is_proved(drawn: tuple[int, tuple[SizeClass, ...]]) -> None:
    page, classes = drawn
    model.check_classes(page, classes)
    table = Table("random", page, classes)
    assert model.prove(table)
    assert table.small_map[0] == 1
    for row, c in zip(table.rows, classes, strict=True):
        assert row.objects * row.size + row.tail_waste == row.span_bytes == c.pages * page
        assert row.size % row.min_align == 0 and row.min_align <= page


def test_spans_that_32_bits_can_not_divide_are_legal() -> None:
    table = Table("wide", 8192, (SizeClass(8, 1), SizeClass(65528, 40), SizeClass(262136, 32)))
    model.check_classes(table.page_bytes, table.classes)
    assert model.prove(table)
    source = emit.table_source(table, emit.Origin("x", "y", ()))
    assert "{65528, 5, 40, 40}" in source and "{262136, 1, 32, 32}" in source


def test_proofs_notice_a_wrong_table(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Table("go", 8192, (*GO.classes[:-1], SizeClass(32640, 4)), Parameters("go"))
    with pytest.raises(ProofError, match="largest class is 32640"):
        model.prove(wrong)
    missing = Table("go", 8192, C16.classes, Parameters("go"))
    with pytest.raises(ProofError, match="66 classes, expected 67"):
        model.prove(missing)
    monkeypatch.setattr(model, "magic_of", lambda size: 0xFFFFFFFFFFFFFFFF // size)
    with pytest.raises(ProofError, match=r"class 1 \(8 bytes\): offset 8 gives slot 0, not 1"):
        model.prove(GO)
