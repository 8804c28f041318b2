# SPDX-License-Identifier: Apache-2.0
"""The objective `resident`: exhaustive comparison, Ctrl-C, memory, bounds and priors."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise.optimizer.local_search import MixedScores, Scores
from spanwise.optimizer.profile import profile_of
from spanwise.optimizer.solver import Fit, Rules
from spanwise.recordings import simulate

from tests.python.optimizer.optimizer_tools import by_peak, wanting

CASES = int(os.environ.get("SPANWISE_EXHAUSTIVE_CASES", "12"))
"""Small cases that are searched exhaustively; 1,000 for the long form, which takes minutes:
SPANWISE_EXHAUSTIVE_CASES=1000 ./dev test --python tests/python/optimizer/test_resident.py -s"""

SIZES = (16, 32, 48, 64, 96, 160, 400, 1000, 1600, 2048)
CLASSES, PAGES, PAGE_BYTES = 2, 2, 4096


def small_case(seed: int) -> NDArray[np.void]:
    """Some hundred operations on objects of three sizes; many are freed again."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice(SIZES, 3, replace=False)
    rows: list[tuple[int, int, int]] = []
    live: list[int] = []
    for i in range(int(rng.integers(60, 160))):
        if live and rng.random() < rng.choice([0.1, 0.45]):
            rows.append((1, live.pop(int(rng.integers(len(live)))), 0))
        else:
            live.append(i)
            rows.append((0, i, int(rng.choice(sizes))))
    ops = np.zeros(len(rows), sw.OPS_DTYPE)
    for i, (kind, number, size) in enumerate(rows):
        ops[i]["time_ns"], ops[i]["kind"], ops[i]["object"], ops[i]["size"] = i, kind, number, size
    return ops


def every_table(sizes: list[int]) -> Iterator[sw.SizeClassTable]:
    """Every set of at most CLASSES sizes that has the largest, with spans of each length."""
    *lower, largest = sizes
    for count in range(CLASSES):
        for chosen in itertools.combinations(lower, count):
            lengths = itertools.product(range(1, PAGES + 1), repeat=count + 1)
            for pages in lengths:
                specs = list(zip((*chosen, largest), pages, strict=True))
                yield sw.SizeClassTable.custom(specs, page_bytes=PAGE_BYTES)


def test_search_against_exhaustive_search() -> None:
    """Median gap 0, worst at most 2 %; every table is judged by `Recording.ledger`."""
    gaps = []
    for seed in range(CASES):
        recording = sw.Recording.from_ops(small_case(seed), name="small")
        sizes = [-(-size // 16) * 16 for size in recording.histogram()["size_bytes"].tolist()]
        tables = every_table(sorted(set(sizes)))
        least = min(
            recording.ledger(one, "peak-resident").peak_resident_bytes or 0 for one in tables
        )
        rules: dict[str, Any] = {
            "largest_bytes": max(sizes),
            "page_bytes": PAGE_BYTES,
            "pages": PAGES,
        }
        best = by_peak(recording, CLASSES, "resident", **rules)
        gaps.append(best.resident_bytes[best.proposal.name] / least - 1)
    print(f"{CASES} cases: median gap {statistics.median(gaps):.4f}, worst {max(gaps):.4f}")
    assert statistics.median(gaps) <= 0
    assert max(gaps) <= 0.02


def test_the_number_of_processors_changes_nothing(
    program: sw.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = []
    for count in (1, 3):
        processors = set(range(count))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, all_=processors: all_)
        tables.append(by_peak(program, 8, "resident", candidates=24).proposal)
    assert tables[0] == tables[1]


def test_after_ctrl_c_the_best_table_so_far_is_evaluated(program: sw.Recording) -> None:
    """Ctrl-C in the middle of the search: a result all the same, which says so."""
    counts = []

    def step(operations: int) -> None:
        counts.append(operations)
        if len(counts) == 3:
            signal.raise_signal(signal.SIGINT)

    best = by_peak(program, 8, "resident", candidates=4000, progress=step)
    assert best.stopped and "; the search was ended early." in best.verdict()
    assert best.resident_bytes[best.proposal.name] > 0
    assert threading.active_count() < 20


def test_scores_are_the_ledgers(program: sw.Recording, other: sw.Recording, tmp_path: Path) -> None:
    """Of an array and of a file, alone and added up; each table is simulated once."""
    stored = sw.Recording.from_ops(other.ops, tmp_path / "b.swt")
    scores = Scores([program, stored])
    for table in map(sw.SizeClassTable.named, ("c16", "pow2", "c16")):
        parts = [
            one.ledger(table, "peak-resident").peak_resident_bytes or 0 for one in (program, other)
        ]
        assert scores(table) == sum(parts) == scores.ledgers([table], table)[0].resident_bytes
    assert len(scores) == 2


def test_a_table_above_its_limit_is_rejected_early(
    program: sw.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores up to the limit are exact, others a lower bound above it; all operations count."""
    monkeypatch.setattr(simulate, "FILE_STEP", 50)
    stored = sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    tables = [sw.SizeClassTable.named(name) for name in ("c16", "pow2", "fibonacci")]
    exact = [one.resident_bytes or 0 for one in map(partial(at_most, stored), tables)]
    order = sorted(range(3), key=exact.__getitem__)
    middle = exact[order[1]]
    for recordings in ([stored], [stored, stored]):
        counts: list[int] = []
        scores = Scores(recordings, counts.append, 1)
        limit = len(recordings) * middle
        found = scores.within(tables, [limit] * 3)
        assert [found[i] for i in order[:2]] == [len(recordings) * exact[i] for i in order[:2]]
        assert limit < found[order[2]] < len(recordings) * exact[order[2]]
        assert sum(counts) == 3 * len(recordings) * len(stored) and len(scores) == 3
        assert scores.within(tables, [limit] * 3) == found  # nothing is simulated again
        assert sum(counts) == 3 * len(recordings) * len(stored)
        assert scores.of(tables) == [len(recordings) * one for one in exact] and len(scores) == 3


def test_early_rejection_changes_no_result(
    program: sw.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = sw.Recording.from_ops(program.ops, tmp_path / "a.swt", name="program")
    whole = by_peak(stored, 16, "resident", candidates=40)
    monkeypatch.setattr(simulate, "FILE_STEP", 500)
    cut = by_peak(stored, 16, "resident", candidates=40)
    assert cut.proposal == whole.proposal and cut.resident_bytes == whole.resident_bytes


def at_most(recording: sw.Recording, table: sw.SizeClassTable) -> sw.Ledger:
    return recording.ledger(table, "peak-resident")


def replaced(live: int, pairs: int) -> Iterator[NDArray[np.void]]:
    """Objects of 16 to 500 bytes, replaced one at a time, in blocks of 10,000."""
    rng = np.random.default_rng(1)
    ops = np.zeros(live, dtype=sw.OPS_DTYPE)
    ops["object"], ops["size"] = np.arange(live), rng.integers(16, 500, live)
    yield ops
    for _ in range(pairs // 10_000):
        ops = np.zeros(20_000, dtype=sw.OPS_DTYPE)
        ops["object"] = np.repeat(rng.integers(0, live, 10_000), 2)
        ops["kind"][0::2] = 1
        ops["size"][1::2] = rng.integers(16, 500, 10_000)
        yield ops


def test_a_damaged_file_is_an_error(tmp_path: Path, program: sw.Recording) -> None:
    place = tmp_path / "a.swt"
    sw.Recording.from_ops(program.ops, place)
    recording = sw.Recording.open(place)
    raw = bytearray(place.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    place.write_bytes(raw)
    with pytest.raises(sw.SpanwiseError):
        Scores([recording])(sw.SizeClassTable.c16())


@pytest.mark.parametrize("candidates", [0, -1])
def test_no_candidates_are_refused(program: sw.Recording, candidates: int) -> None:
    with pytest.raises(sw.InvalidError, match=f"candidates {candidates}: must be at least 1"):
        sw.optimize(program, candidates=candidates)


# --- the bound on what an unseen size wastes ------------------------------------------------------


def test_a_bound_that_no_table_keeps_is_refused() -> None:
    with pytest.raises(sw.InvalidError) as caught:
        sw.optimize(wanting(100), 27)
    assert str(caught.value) == (
        "waste_percent 25: takes at least 28 classes up to 32768 bytes; allow so many, or more"
        " waste"
    )
    assert len(sw.optimize(wanting(100), 28, "peak").proposal) == 28
    for percent in (0, 101):
        with pytest.raises(sw.InvalidError, match=f"waste_percent {percent}: must be 1 to 100; 1"):
            sw.optimize(wanting(100), waste_percent=percent)


def test_the_prior_of_the_search_by_hand(program: sw.Recording) -> None:
    """(1 - p) of the peak resident bytes, and p of slots and tails for requests of every size.

    Each size s weighs 1 / s^2, times what makes the requested bytes those of the recording.
    """
    profile, largest, prior = profile_of(program), 2048, 0.25
    table = sw.SizeClassTable.custom([(64, 1), (1024, 1), (2048, 2)], page_bytes=4096)
    cells = {64: 64.0, 1024: 1024.0, 2048: 2048.0}  # spans of 4096 and 8192 bytes have no tail
    served = sum(s * profile.weights[s] for s in range(largest + 1))
    scale = served / sum(1 / s for s in range(1, largest + 1))
    slots = (min(c for c in cells if c >= s) / s**2 for s in range(1, largest + 1))
    cost = scale * sum(slots)
    rules = Rules(3, 16, largest, 4096, 2, 0.5, prior)
    unseen = Fit([program], "resident", rules).unseen()
    resident = program.ledger(table, "peak-resident").peak_resident_bytes or 0
    for part in (0.0, prior):
        score = MixedScores(Scores([program]), unseen, part)(table)
        assert score == pytest.approx((1 - part) * resident + part * cost)
