# SPDX-License-Identifier: Apache-2.0
"""Every measure of ledgers, sums and comparisons, by hand from made-up terms."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise.__main__ import main
from spanwise.ledger.ledger import LEDGER_CLASS_DTYPE, add_ledgers, class_waste
from spanwise.ledger.parts import RunStats

from tests.python.helpers import ALLOC, FREE, REALLOC, ROOT, make_ops, random_ops

TERMS = {
    "requested_bytes": 1000,
    "roundup_bytes": 30,
    "tail_bytes": 20,
    "free_slot_bytes": 70,
    "cached_bytes": 110,
    "metadata_bytes": 510,
    "large_rounding_bytes": 50,
    "free_page_bytes": 210,
}
HELD = 2000  # their sum

STATS = RunStats(
    **{
        **dict.fromkeys(RunStats.__dataclass_fields__, 0),
        "peak_requested_bytes": 1600,
        "peak_held_bytes": 4000,
        "held_at_peak_bytes": 2400,
        "requested_at_peak_held_bytes": 800,
        "mean_held_over_requested": 1.75,
        "steady_held_over_requested": 1.125,
        "peak_resident_bytes": None,
    }  # type: ignore[arg-type]
)


def class_rows() -> NDArray[np.void]:
    """Large objects, a class with 4 spans of 10 slots, one with 1 span of 8, and an unused one."""
    rows = np.zeros(4, LEDGER_CLASS_DTYPE)
    rows["cls"] = range(4)
    rows["size_bytes"] = [0, 16, 24, 32]
    rows["spans"] = [2, 4, 1, 0]
    rows["span_bytes"] = [400, 640, 200, 0]
    rows["slots"] = [2, 40, 8, 0]
    rows["live_objects"] = [2, 10, 2, 0]
    rows["requested_bytes"] = [350, 130, 40, 0]
    rows["roundup_bytes"] = [50, 20, 10, 0]
    rows["tail_bytes"] = [0, 12, 8, 0]
    rows["free_slot_bytes"] = [0, 60, 10, 0]
    rows["cached_bytes"] = [0, 90, 20, 0]
    rows["occupancy"][0, 10] = 2
    rows["occupancy"][1, [0, 2, 5]] = [1, 1, 2]
    rows["occupancy"][2, 2] = 1
    return rows


def made_up(**changes: Any) -> sw.Ledger:
    values: dict[str, Any] = {
        **TERMS,
        "held_bytes": HELD,
        "rss_bytes": None,
        "events": 9,
        "live_objects": 12,
        "large_objects": 2,
        "spans": 5,
        "largest_hole_bytes": 160,
        "free_runs": 3,
        "returned_bytes": 40,
        "classes": class_rows(),
        "table": "mine",
        "at": "peak",
        "stats": STATS,
    }
    return sw.Ledger(**{**values, **changes})


def holding(held: int, table: str) -> sw.Ledger:
    """A ledger whose free pages make up for what it holds."""
    return made_up(table=table, held_bytes=held, free_page_bytes=210 + held - HELD)


# --- measures -------------------------------------------------------------------------------------


MEASURES: dict[str, Any] = {
    "internal_waste": (30 + 20 + 50) / 1000,
    "unused_share": (70 + 110 + 210) / 2000,
    "held_over_requested": 2.0,
    "mean_occupancy": (10 + 2) / (40 + 8),  # without large objects
    "largest_hole_bytes": 160,
    "free_runs": 3,
    "jw_mean": 1.75,
    "jw_mean_steady": 1.125,
    "jw_at_peak_requested": 2400 / 1600,
    "jw_at_peak_held": 4000 / 800,
    "jw_of_peaks": 4000 / 1600,
}


@pytest.mark.parametrize("name", MEASURES)
def test_measure(name: str) -> None:
    assert made_up().measures[name] == MEASURES[name]


def test_measures_are_numbers_with_definitions_in_a_table() -> None:
    measures = made_up(stats=None).measures
    assert list(measures) == list(MEASURES)
    share = measures["unused_share"]
    assert (f"{share}", f"{share:.2f}", 2 * share) == ("0.195", "0.20", 0.39)
    assert share.definition == "(free slots + cached + free pages) / held"
    assert math.isnan(measures["jw_mean"]) and pickle.loads(pickle.dumps(share)) == share
    assert pickle.loads(pickle.dumps(share)).definition == share.definition
    lines = [line.split(maxsplit=2) for line in str(measures).splitlines()]
    assert lines[0] == ["measure", "value", "definition"]
    assert lines[3] == ["unused_share", "0.195", share.definition]
    assert [line[1] for line in lines[6:9]] == ["160", "3", "unknown"]
    assert measures._repr_html_().count("<tr>") == 1 + len(MEASURES)
    with pytest.raises(KeyError, match="no measure 'unused share'; there are internal_waste, unu"):
        measures["unused share"]


def test_occupancy_and_measures_in_json() -> None:
    ledger = made_up(stats=None)
    assert ledger.occupancy == [1, 0, 2, 0, 0, 2, 0, 0, 0, 0, 0]
    values = {name: one["value"] for name, one in ledger.to_dict()["measures"].items()}
    unknown = {name: None for name in MEASURES if name.startswith("jw_")}
    assert values == {**MEASURES, **unknown, "occupancy": ledger.occupancy}
    assert type(values["free_runs"]) is int


def test_documents_list_the_keys_of_measures() -> None:
    page = (ROOT / "docs/definitions.md").read_text(encoding="utf-8")
    docstring = sw.Ledger.measures.__doc__ or ""
    for name in MEASURES:
        assert f"| `{name}` |" in page and f"\n        {name}: " in docstring


def test_waste_of_classes() -> None:
    assert class_waste(class_rows()).tolist() == [50, 182, 48, 0]


def test_class_rows_show_shares_and_leave_out_what_is_not_used() -> None:
    rows = [line.split() for line in made_up().class_table().splitlines()[2:]]
    assert [row[0] for row in rows] == ["large", "16", "24"]
    assert rows[0][-2:] == ["87.5", "%"]  # 350 of 400
    assert rows[1] == ["16", "10", "4", "130", "20", "12", "60", "90", "20.3", "%"]  # 130 of 640


def test_the_table_of_classes_has_those_with_the_most_waste() -> None:
    def sizes(most: int) -> list[str]:
        return [line.split()[0] for line in made_up().class_table(most).splitlines()[2:]]

    assert sizes(1) == ["16"]
    assert sizes(2) == ["large", "16"]  # in the order of size
    assert sizes(3) == ["large", "16", "24"]


# --- sums -----------------------------------------------------------------------------------------


def test_sums_of_ledgers() -> None:
    """The heaps have separate holes, so the largest hole of the sum is the larger of the two."""
    other = made_up(
        **{name: 10 * value for name, value in TERMS.items()},
        held_bytes=20000,
        events=1,
        live_objects=100,
        large_objects=20,
        spans=50,
        largest_hole_bytes=90,
        free_runs=5,
        returned_bytes=400,
        tracked=False,
    )
    both = add_ledgers([made_up(), other], "two")
    for name, value in TERMS.items():
        assert getattr(both, name) == 11 * value, name
    assert both.held_bytes == 22000
    assert both.largest_hole_bytes == 160
    assert (both.free_runs, both.returned_bytes, both.events) == (8, 440, 10)
    assert (both.live_objects, both.large_objects, both.spans) == (112, 22, 55)
    assert (both.tracked, both.stats, both.source, both.rss_bytes) == (False, None, "two", None)
    once, twice = class_rows(), both.classes
    for name in once.dtype.names or ():
        factor = 1 if name in ("cls", "size_bytes") else 2
        assert (twice[name] == factor * once[name]).all(), name
    assert both.measures["unused_share"] == 11 * 390 / 22000
    with pytest.raises(ValueError, match="all of one table"):
        add_ledgers([made_up(), made_up(table="other")], "two")


# --- comparisons ----------------------------------------------------------------------------------


def test_comparison() -> None:
    comparison = sw.Comparison([holding(3000, "b"), holding(2400, "a"), holding(4000, "c")])
    assert comparison.best().table == "a"
    assert comparison.verdict() == "a holds 2.3 KiB, the least: 600 B (20.0 %) less than b."
    rows = {row[0]: row[1:] for row in comparison.text_rows()}
    assert rows["held"] == ("3,000", "2,400", "4,000")
    assert rows["waste"] == ("2,000", "1,400", "3,000")
    assert rows["free pages"] == ("1,210", "610", "2,210")
    assert rows["cached"] == ("110", "110", "110")
    assert [cell.split()[0] for cell in rows["waste of held"]] == ["66.7", "58.3", "75.0"]
    with sw.Heap("go", dry=True) as heap:
        assert str(sw.Comparison([heap.ledger()])).startswith("ledgers (now), bytes\n")


def test_without_that_figure_best_holds_least() -> None:
    busy = made_up(table="busy", requested_bytes=1900, held_bytes=2900)
    idle = made_up(table="idle", requested_bytes=1000, held_bytes=2400, free_page_bytes=610)
    assert busy.waste_bytes < idle.waste_bytes
    assert sw.Comparison([busy, idle]).best().table == "idle"


def resident_most(most: int, held: int, table: str) -> sw.Ledger:
    """A ledger of a run with such a peak resident."""
    return replace(holding(held, table), stats=replace(STATS, peak_resident_bytes=most))


def test_the_one_figure_ranks_whatever_is_held() -> None:
    """By hand: the peak resident is less under the one that holds more at the moment shown."""
    tables = [resident_most(5000, 2400, "lean"), resident_most(4000, 3000, "wide")]
    comparison = sw.Comparison(tables)
    assert comparison.best().table == "wide"
    assert comparison.best("held_bytes").table == "lean"
    said = "wide has a peak resident of 3.9 KiB, the least: 1000 B (20.0 %) less than lean"
    assert comparison.verdict() == f"{said}; it holds 600 B more at peak."
    same = sw.Comparison([resident_most(4000, 2400, "x"), resident_most(4000, 3000, "y")])
    assert same.verdict() == "x has a peak resident of 3.9 KiB, and y as much."
    one_does_not_know = sw.Comparison([*tables, holding(2000, "real")])
    assert one_does_not_know.judged_by == "held_bytes"
    assert one_does_not_know.best().table == "real"


def test_of_several_recordings_the_most_that_was_resident_is_added_up() -> None:
    first, second = (resident_most(size, 3000, "t") for size in (4000, 500))
    assert add_ledgers([first, second], "two").peak_resident_bytes == 4500
    assert add_ledgers([first, holding(3000, "t")], "two").peak_resident_bytes is None
    assert holding(3000, "t").peak_resident_bytes is None


# --- live sites -----------------------------------------------------------------------------------


def of_sites(*rows: tuple[int, int, int, int]) -> sw.Recording:
    """Operations of (kind, object, size, site)."""
    ops = make_ops(*(row[:3] for row in rows))
    ops["site"] = [row[3] for row in rows]
    return sw.Recording.from_ops(ops, name="mine")


def numbers(found: sw.LiveSites) -> list[tuple[int, ...]]:
    return [
        (s.id, s.live_objects, s.requested_bytes, s.roundup_bytes, s.kept_free_bytes) for s in found
    ]


def test_a_full_span_by_hand() -> None:
    """Three slots of 5,376 B in 16 KiB leave a tail of 256 B: 86 B for the first, 85 for others."""
    found = of_sites((ALLOC, 0, 5000, 1), (ALLOC, 1, 5000, 2), (ALLOC, 2, 5376, 2)).live_sites("go")
    assert numbers(found) == [(2, 2, 10376, 376, 170), (1, 1, 5000, 376, 86)]
    assert [site.waste_bytes for site in found] == [546, 462]
    assert found.no_site["free_span_bytes"] == 0
    assert found.array["kept_free_bytes"].tolist() == [170, 86]
    assert "2 call sites of mine with live objects at peak" in repr(found)
    assert "unknown" in found._repr_html_()


def test_pinned_spans_by_hand() -> None:
    """Free slots are charged to the live objects; a resized object belongs to the resize's site."""
    rows = [(ALLOC, i, 5000, 9) for i in range(3)]
    recording = of_sites(*rows, (FREE, 2, 0, 0), (REALLOC, 0, 5100, 4))
    found = recording.live_sites("go", at="end")
    free = 16384 - 2 * 5376
    assert numbers(found) == [(9, 1, 5000, 376, free // 2), (4, 1, 5100, 276, free // 2)]
    assert recording.live_sites("go", at=2.5e-6).sites[0].live_objects == 3


def test_a_recording_without_sites_says_how_to_record_them(tmp_path: Path) -> None:
    said = "no call sites are known: record the program with --stacks 16"
    plain = of_sites((ALLOC, 0, 5000, 0), (ALLOC, 1, 5000, 0))
    both = sw.RecordingSet([plain, plain])
    for one in (plain, both):
        assert said in repr(one.live_sites()) and said in repr(one.sites)
        assert [site.id for site in one.live_sites()] == [0]
    known = of_sites((ALLOC, 0, 5000, 0), (ALLOC, 1, 5000, 1))
    assert said not in repr(known.live_sites()) and said not in repr(known.sites)


@pytest.mark.parametrize("at", ["peak", "peak-resident", "end", 15.0])
@pytest.mark.parametrize("stored", [False, True])
def test_sites_and_what_is_of_none_add_up(stored: bool, at: str | float, tmp_path: Path) -> None:
    ops = random_ops(8, 4000, threads=3)
    ops["site"] = np.arange(len(ops)) % 37
    ops["site"][ops["kind"] == 3] = 0
    recording = sw.Recording.from_ops(ops, tmp_path / "a.swt" if stored else None)
    found, ledger = recording.live_sites(at=at), recording.ledger(at=at)
    names = ("live_objects", "requested_bytes", "roundup_bytes", "kept_free_bytes")
    sums = {name: int(found.array[name].sum()) for name in names}
    assert sums["live_objects"] == ledger.live_objects > 20
    assert sums["requested_bytes"] == ledger.requested_bytes
    assert sums["roundup_bytes"] == ledger.roundup_bytes + ledger.large_rounding_bytes
    kept = sums["kept_free_bytes"] + found.no_site["free_span_bytes"]
    assert kept == ledger.tail_bytes + ledger.free_slot_bytes + ledger.cached_bytes
    whole = sum(sums.values()) - sums["live_objects"] + sum(found.no_site.values())
    assert whole == ledger.held_bytes
    assert found.ledger == ledger
    resident = int(found.array["resident_bytes"].sum())
    empty = (ledger.resident_bytes or 0) - resident  # metadata, and what of no span was written to
    assert 0 <= empty <= sum(found.no_site.values())
    assert found.to_dict()["no_site"] == found.no_site


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ops = make_ops((ALLOC, 0, 5000), (ALLOC, 1, 5000))
    ops["site"] = [1, 2]
    sw.Recording.from_ops(ops, tmp_path / "a.swt")
    words = ["ledger", str(tmp_path / "a.swt"), "--table", "go", "--sites"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("simulated ledger of a.swt under go at peak-resident")
    assert (
        "2 call sites of a.swt with live objects at peak-resident, most waste first, bytes" in said
    )
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [site["live_objects"] for site in printed["sites"]] == [1, 1]
    assert {site["label"] for site in printed["sites"]} == {"unknown"}
    assert printed["ledger"]["held_bytes"] == 10_000 + sum(printed["no_site"].values()) + sum(
        site["roundup_bytes"] + site["kept_free_bytes"] for site in printed["sites"]
    )
