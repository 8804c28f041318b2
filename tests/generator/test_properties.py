# SPDX-License-Identifier: Apache-2.0
"""Properties of tables, and their proofs."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spanwise_sizeclasses import emit, model, proofs
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
    assert proofs.prove(table)
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
    assert proofs.prove(table)
    assert table.small_map[0] == 1
    for row, c in zip(table.rows, classes, strict=True):
        assert row.objects * row.size + row.tail_waste == row.span_bytes == c.pages * page
        assert row.size % row.min_align == 0 and row.min_align <= page


def test_spans_that_32_bits_can_not_divide_are_legal() -> None:
    table = Table("wide", 8192, (SizeClass(8, 1), SizeClass(65528, 40), SizeClass(262136, 32)))
    model.check_classes(table.page_bytes, table.classes)
    assert proofs.prove(table)
    source = emit.table_source(table, emit.Origin("x", "y", ()))
    assert "{65528, 5, 40, 40}" in source and "{262136, 1, 32, 32}" in source


def test_proofs_notice_a_wrong_table(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Table("go", 8192, (*GO.classes[:-1], SizeClass(32640, 4)), Parameters("go"))
    with pytest.raises(ProofError, match="largest class is 32640"):
        proofs.prove(wrong)
    missing = Table("go", 8192, C16.classes, Parameters("go"))
    with pytest.raises(ProofError, match="66 classes, expected 67"):
        proofs.prove(missing)
    monkeypatch.setattr(proofs, "magic_of", lambda size: 0xFFFFFFFFFFFFFFFF // size)
    with pytest.raises(ProofError, match=r"class 1 \(8 bytes\): offset 8 gives slot 0, not 1"):
        proofs.prove(GO)
