# SPDX-License-Identifier: Apache-2.0
"""When a policy becomes the default, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import spanwise as sw
from spanwise.measure.field_cases import SPANWISE, case_of, policy_name
from spanwise.measure.field_rounds import ROW_FIELDS

from studies.policies import picture
from studies.policies.page import Policies, answer, wins
from studies.policies.priced import DEFAULTS, Priced
from studies.policies.settings import ALONE, KNOBS, LENGTHS, best_of_each, length_table

POLICY = "fullest span"


def told_of(saved: Sequence[float], spent: Sequence[float]) -> Policies:
    """One program a value; five equal rounds on the second input save so many percent."""
    rows, programs = [], []
    for number, (rss, cpu) in enumerate(zip(saved, spent, strict=True)):
        cases = tuple(case_of(["true"], f"p{number}", name) for name in ("first", "second"))
        resident = {DEFAULTS: (1000, 1000), POLICY: (900, 950)}
        programs.append(Priced(f"p{number}", (cases[0], cases[1]), resident))
        for round_ in range(5):
            for allocator, part in ((SPANWISE, 0.0), (policy_name(ALONE[POLICY]), 1.0)):
                row = dict.fromkeys(ROW_FIELDS)
                row |= {"program": f"p{number}", "input": "second", "round": round_}
                row |= {"allocator": allocator, "rss_bytes": 1e6 * (100 - part * rss)}
                rows.append({**row, "cpu_ns": 1e6 * (100 - part * cpu)})
    called = {POLICY: policy_name(ALONE[POLICY])}
    return Policies(sw.Field(rows), programs, called, POLICY)


@pytest.mark.parametrize(
    ("saved", "spent", "expected"),
    [
        ([1, 2, 3, 4, 5], [0, 0, 0, 0, 0], True),
        ([1, 2, 3, 4, 0], [0, 0, 0, 0, 0], False),  # the interval's end is 0
        ([1, 2, 3, 4, 5], [0, 0, 0, 0, -2], False),  # of five, the interval is all
        ([1, 2, 3, 4, 5], [-1, -1, -1, -1, -1], True),
        ([9, 9, 9, 9, 9, 9, 9, -2], [0] * 8, False),  # one program loses too much
    ],
)
def test_a_default_must_win_held_out(
    saved: list[float], spent: list[float], expected: bool
) -> None:
    told = told_of(saved, spent)
    assert wins(told, POLICY) == expected
    said = answer(told)
    assert said.startswith(f"**`{POLICY}` wins held out.**" if expected else "**The default stays.")
    assert "+10.00 % (+10.00 .. +10.00)" in said and "+5.00 % (+5.00 .. +5.00)" in said


def test_the_best_of_each_knob() -> None:
    """What saves nothing on average stays as it is."""
    saved = {name: [-1.0, 0.5] for name in ALONE}
    assert best_of_each(saved) is None
    saved["lasting span"], saved["fullest span"] = [1.0, 2.0], [3.0, -1.0]
    saved["decay at once"] = [0.0, 0.1]
    assert best_of_each(saved) == sw.HeapOptions(placement="lasting", decay_ms=0)
    assert sum(map(len, KNOBS.values())) == len(ALONE)


def test_the_picture_has_policies_by_their_names() -> None:
    """Of four programs simulated 5 %, measured 1 to 4 % and a loss of 2 %: medians by hand."""
    figure = picture.draw(told_of([1, 2, 3, 4], [-2, -2, -2, -2]))
    panels = figure.axes
    assert [one.get_text() for one in panels[0].get_yticklabels()] == [POLICY]
    diamonds = [ax.containers[0].lines[0].get_xdata().tolist() for ax in panels]
    assert diamonds == [[pytest.approx(5)], [pytest.approx(2.5)], [pytest.approx(-2)]]
    bars = [ax.containers[0].lines[2][0].get_segments()[0][:, 0].tolist() for ax in panels]
    assert bars[1] == pytest.approx([1, 4])  # of four values the interval is all
    rings = panels[1].get_lines()[1].get_xdata()
    assert list(rings) == pytest.approx([1, 2, 3, 4])
    assert [one.get_text() for one in panels[1].texts] == ["p3"]  # 4 %, the farthest
    assert [one.get_text() for one in panels[2].texts] == ["span choice"]


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_of_spans_do_not_grow(name: str) -> None:
    stock, table = sw.SizeClassTable.c16(), length_table(name)
    column = "span_bytes" if name == LENGTHS[0] else "first_span_bytes"
    assert table.classes["span_bytes"].tolist() == stock.classes[column].tolist()
    assert table.classes["first_span_bytes"].tolist() == stock.classes[column].tolist()
