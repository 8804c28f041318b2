# SPDX-License-Identifier: Apache-2.0
"""When a policy becomes the default, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import spanwise as sw
from spanwise.measure.field_cases import SPANWISE, case_of, policy_name
from spanwise.measure.field_rounds import ROW_FIELDS

from studies.policies import picture
from studies.policies.bursts import BURSTS, burst_cases
from studies.policies.duel import Duel, section
from studies.policies.page import Policies, answer
from studies.policies.priced import DEFAULTS, Priced
from studies.policies.settings import ALONE, KNOBS, LENGTHS, best_alone, best_of_each, length_table

POLICY = "fullest span"
BURST = case_of(["true"], "burst", "")


def told_of(saved: Sequence[float], spent: Sequence[float], burst: float = 0.0) -> Policies:
    """One program a value; five equal rounds on the second input save so many percent.

    Faults are saved as much as memory; of a program that works in bursts only time is, so much.
    """
    rows, programs = [], []
    for number, (rss, cpu) in enumerate(zip(saved, spent, strict=True)):
        cases = tuple(case_of(["true"], f"p{number}", name) for name in ("first", "second"))
        resident = {DEFAULTS: (1000, 1000), POLICY: (900, 950)}
        programs.append(Priced(f"p{number}", (cases[0], cases[1]), resident))
        rows += rounds_of(cases[1], rss, cpu)
    called = {POLICY: policy_name(ALONE[POLICY])}
    runs = sw.Field([*rows, *rounds_of(BURST, 0, burst)])
    duel = Duel(runs, [one.cases[1] for one in programs], [BURST], called)
    return Policies(sw.Field(rows), programs, called, duel)


def rounds_of(case: sw.FieldCase, rss: float, cpu: float) -> list[dict[str, object]]:
    rows = []
    for round_ in range(5):
        for allocator, part in ((SPANWISE, 0.0), (policy_name(ALONE[POLICY]), 1.0)):
            row: dict[str, object] = dict.fromkeys(ROW_FIELDS)
            row |= {"program": case.program, "input": case.input, "round": round_}
            row |= {"allocator": allocator, "rss_bytes": 1e6 * (100 - part * rss)}
            row |= {"cpu_ns": 1e6 * (100 - part * cpu), "page_faults": 100 - part * rss}
            rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("saved", "spent", "burst", "against"),
    [
        ([1, 2, 3, 4, 5], [0, 0, 0, 0, 0], -5, ""),
        ([1, 2, 3, 4, 0], [0, 0, 0, 0, 0], 0, "(+0.00 .. +4.00), which is not above 0"),
        ([1, 2, 3, 4, 5], [0, 0, 0, 0, -2], 0, "of processor time it saves +0.00 % (-2.00 .."),
        ([1, 2, 3, 4, 5], [-1, -1, -1, -1, -1], 0, ""),
        ([9, 9, 9, 9, 9, 9, 9, -2], [0] * 8, 0, "p7 loses 2.0 % of peak RSS"),
        ([1, 2, 3, 4, 5], [0, 0, 0, 0, 0], -6, "`burst` loses 6 % of processor time"),
    ],
)
def test_a_default_must_win_held_out(
    saved: list[float], spent: list[float], burst: float, against: str
) -> None:
    """Of five values the interval is all; of eight it is from the second to the seventh."""
    told = told_of(saved, spent, burst)
    assert told.duel is not None
    reasons = told.duel.why_not(POLICY)
    assert len(reasons) == bool(against) and all(against in one for one in reasons)
    said = answer(told)
    assert said.startswith("**The default stays." if against else f"**`{POLICY}` wins held out.**")
    assert "+10.00 % (+10.00 .. +10.00)" in said and "+5.00 % (+5.00 .. +5.00)" in said
    assert (reasons[0] if against else "Nothing speaks against it.") in said


def test_the_page_of_the_duel() -> None:
    """By hand: the median of 1 to 5 is 3, their mean as well; a burst has a row of its own."""
    told = told_of([1, 2, 3, 4, 5], [-1, -1, -1, -1, -1], -6)
    assert told.duel is not None
    lines = section(told.duel, 5)
    (overall,) = (line for line in lines if line.startswith(f"| {POLICY} |"))
    assert "| +3.00 % (+1.00 .. +5.00) | +3.00 % (" in overall
    assert "| -1.00 % (-1.00 .. -1.00) | -1.00 % (-1.00 .. -1.00) |" in overall
    assert "| burst | +0.00 % (+0.00 .. +0.00) | -6.00 % (-6.00 .. -6.00) |" in "\n".join(lines)
    assert [line[:5] for line in lines].count("| p3 ") == 1


def test_bursts_run() -> None:
    """Each once, with two bursts."""
    cases, skipped = burst_cases(2)
    assert len(cases) + len(skipped) == len(BURSTS)
    found = sw.field(cases, [SPANWISE], rounds=1, progress=False)
    assert not found.failures and all(row["page_faults"] > 0 for row in found)


def test_the_best_of_each_knob() -> None:
    """What saves nothing on average stays as it is."""
    saved = {name: [-1.0, 0.5] for name in ALONE}
    assert best_of_each(saved) is None
    assert best_alone(saved) is None
    saved["lasting span"], saved["fullest span"] = [1.0, 2.0], [3.0, -1.0]
    saved["decay at once"] = [0.0, 0.1]
    assert best_of_each(saved) == sw.HeapOptions(placement="lasting", decay_ms=0)
    assert best_alone(saved) == "lasting span"
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
