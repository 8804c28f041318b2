# SPDX-License-Identifier: Apache-2.0
"""Live bytes by call site: counted by hand, and equal to the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.helpers import ALLOC, FREE, REALLOC, make_ops, random_ops


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
    sums = {name: int(found.array[name].sum()) for name in found.array.dtype.names[1:-4]}
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
    assert said.startswith("ledger of a.swt under go at peak-resident")
    assert (
        "2 call sites of a.swt with live objects at peak-resident, most waste first, bytes" in said
    )
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [site["live_objects"] for site in printed["sites"]] == [1, 1]
    assert printed["ledger"]["held_bytes"] == 10_000 + sum(printed["no_site"].values()) + sum(
        site["roundup_bytes"] + site["kept_free_bytes"] for site in printed["sites"]
    )
