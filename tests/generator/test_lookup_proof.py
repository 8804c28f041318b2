# SPDX-License-Identifier: Apache-2.0
"""The proofs of a table notice a defect at each place where one can be."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from spanwise_sizeclasses import proofs
from spanwise_sizeclasses.model import ProofError, SizeClass, Table

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
        proofs._prove_lookup(GO)


def test_every_size_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[int] = set()
    right = Table.class_of

    def noted(table: Table, size: int) -> int:
        asked.add(size)
        return right(table, size)

    monkeypatch.setattr(Table, "class_of", noted)
    assert proofs._prove_lookup(C16).endswith(f"for every size 0..{LARGEST}")
    assert asked == set(range(LARGEST + 1))


# 8 KiB in slots of 1,008 bytes: eight of them and a tail of 128 bytes, a 64th of the span.
TAILED = Table("tailed", 8192, (SizeClass(1008, 1),))


@pytest.mark.parametrize(("limit", "holds"), [((1, 65), False), ((1, 64), True), ((1, 63), True)])
def test_a_tail_may_be_as_long_as_the_limit(limit: tuple[int, int], holds: bool) -> None:
    assert GO.parameters is not None
    parameters = replace(GO.parameters, tail_limit=Fraction(*limit), max_size=1008)
    table = replace(TAILED, parameters=parameters)
    if holds:
        assert proofs._prove_tails(table) == [f"no tail above {Fraction(*limit)} of its span"]
        return
    with pytest.raises(ProofError, match="class 1: tail above 1/65 of its span"):
        proofs._prove_tails(table)


def test_classes_of_16_bytes_are_multiples_of_16() -> None:
    assert C16.parameters is not None
    classes = (SizeClass(8, 1), SizeClass(24, 1), SizeClass(LARGEST, 4))
    with pytest.raises(ProofError, match="a class above 8 is no multiple of 16"):
        proofs._prove_tails(Table("c16", 8192, classes, C16.parameters))


@pytest.mark.parametrize("wrong", [{8: 87.5}, {8: 87.5, 16: 43.75, 24: 29.24, 48: 31.5}])
def test_worst_waste_is_the_expected_one(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[int, float]
) -> None:
    monkeypatch.setitem(proofs.EXPECTED, "go", (67, wrong))
    with pytest.raises(ProofError, match="worst waste above the bound is"):
        proofs._prove_bounds(GO)


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
