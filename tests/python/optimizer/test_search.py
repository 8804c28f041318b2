# SPDX-License-Identifier: Apache-2.0
"""The search: scores, neighbours, the fit, profiles, exhaustive comparison, bounds, priors."""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise.optimizer import local_search, pareto, search, solver
from spanwise.optimizer import solver as options
from spanwise.optimizer.evaluation import parts_of
from spanwise.optimizer.local_search import MixedScores, Neighbourhood, Scores, Specs
from spanwise.optimizer.profile import profile_of
from spanwise.optimizer.solver import Fit, Rules, held_counts
from spanwise.recordings import simulate

from tests.python.helpers import ALLOC, FREE, REALLOC, by_peak, make_ops, wanting

RULES = Rules(4, 16, 32768, 8192, 10, 0.5, 0.0)
BIG, SMALL = wanting(*[100] * 4000), wanting(*[100] * 500)
TABLE = sw.SizeClassTable.custom([(128, 1), (32768, 4)], name="mine")


def peaks(*recordings: sw.Recording) -> list[int]:
    found = [one.ledger(TABLE, "peak-resident").peak_resident_bytes for one in recordings]
    return [size for size in found if size is not None]


# --- scores ---------------------------------------------------------------------------------------


def test_unseen_sizes_have_their_part_of_a_score() -> None:
    """By hand: ten requests of 100 bytes cost 1,280 in slots of 128, which have no tail."""
    unseen = profile_of(wanting(*[100] * 10))
    big, small = peaks(BIG, SMALL)
    for prior in (0.0, 0.25, 0.5):
        mixed = MixedScores(Scores([BIG, SMALL]), unseen, prior)
        score = (1 - prior) * (big + small) + prior * 1280
        assert mixed.within([TABLE], score) == [pytest.approx(score)]  # not rejected
        assert mixed(TABLE) == pytest.approx(score) and len(mixed) == 1
        low = MixedScores(Scores([BIG, SMALL]), unseen, prior)
        assert score >= low.within([TABLE], 0.9 * score)[0] > 0.9 * score


# --- neighbours -----------------------------------------------------------------------------------

SPECS: Specs = ((64, 1, 1), (1024, 1, 1), (32768, 4, 4))


def near(*sizes: int, rules: Rules = RULES) -> Neighbourhood:
    return Neighbourhood(profile_of(wanting(*sizes)), rules)


def test_spans_that_a_class_may_have() -> None:
    """A slot must fit into the shortest span, and the longest is that doubled again and again."""
    one = near(100)
    fits = [(8192, 1, 1), (8192, 8, 1), (32768, 4, 4), (16, 16, 1), (32768, 64, 4)]
    assert all(one._fits(*spec) for spec in fits)
    wrong = [(8208, 1, 1), (8192, 3, 2), (8192, 6, 1), (8192, 1, 2), (64, 1, 0), (16, 32, 1)]
    wrong.append((32768, 128, 4))  # more than 8 times 10 pages
    assert not any(one._fits(*spec) for spec in wrong)


def test_every_neighbour_keeps_the_largest_class_and_the_rules() -> None:
    one = near(40, 100, 700, 5000)
    found = [*one.of(SPECS, random.Random(1))]
    assert len(found) == len(set(found)) > 20 and SPECS not in found
    for specs in found:
        sizes = [size for size, _, _ in specs]
        assert sizes[-1] == 32768 and sizes == sorted(set(sizes)) and len(specs) <= 4
        assert not any(size % 16 for size in sizes)
    assert {len(specs) for specs in found} == {2, 3, 4}


def test_a_class_is_split_where_it_saves_most_round_up() -> None:
    """By hand: a class at 16, 32 or 48 below one of 64 serves 1, 11 or 12 of the requests.

    It saves 48, 32 or 16 bytes of each: 48, 352 or 192.
    """
    one = near(16, *[32] * 10, 48)
    assert one._splits(0, 64) == [32, 48, 16]
    assert one._splits(32, 64) == [48] and one._splits(48, 64) == []


class ByName:
    """Scores of tables by name, instead of a simulation."""

    def __init__(self, known: dict[str, int]) -> None:
        self._known = known

    def __call__(self, table: sw.SizeClassTable) -> int:
        """Of one table."""
        return self._known[table.name]

    def of(self, tables: Sequence[sw.SizeClassTable]) -> list[int]:
        """Of tables."""
        return [self(table) for table in tables]


@pytest.mark.parametrize(
    ("a", "b", "chosen"),
    [
        ((100, 60), (90, 90), "a"),  # no more than c16 is no loss
        ((101, 10), (99, 99), "b"),
        ((150, 10), (110, 95), "a"),  # both lose
        ((10, 90), (60, 60), "a"),
        ((80, 80), (80, 80), "b"),  # the last of equal ones
        ((70, 90), (1, 1000), "a"),
    ],
)
def test_the_least_of_those_that_lose_nowhere_is_chosen(
    a: tuple[int, int], b: tuple[int, int], chosen: str
) -> None:
    """Of two recordings c16 has 100 bytes resident each; go has 1, and is not aligned."""
    mine = [sw.SizeClassTable.custom([(64, 1), (32768, 4)], name=name) for name in "ab"]
    tables = [sw.SizeClassTable.go(), sw.SizeClassTable.c16(), *mine]
    judged: list[Any] = [
        ByName({"go": 1, "c16": 100, "a": of_a, "b": of_b}) for of_a, of_b in zip(a, b, strict=True)
    ]
    assert search.choose(tables, RULES, judged).name == chosen


class Given:
    """Scores that depend only on the first class, instead of a simulation."""

    def __init__(self, of_first: Callable[[int], float]) -> None:
        self._of_first = of_first
        self.seen: set[int] = set()

    def __call__(self, table: sw.SizeClassTable) -> float:
        """Of one table."""
        return self.of([table])[0]

    def __len__(self) -> int:
        return len(self.seen)

    def of(self, tables: Sequence[sw.SizeClassTable]) -> list[float]:
        """Of tables."""
        self.seen |= {table.hash for table in tables}
        return [self._of_first(int(table.classes["size_bytes"][0])) for table in tables]

    def within(self, tables: Sequence[sw.SizeClassTable], _most: float) -> list[float]:
        """Of tables; none is rejected."""
        return self.of(tables)


def table_of(specs: Specs) -> sw.SizeClassTable:
    return sw.SizeClassTable.custom(specs, name="mine")


def searched(of_first: Callable[[int], float], candidates: int, *starts: Specs) -> Any:
    scores: Any = Given(of_first)
    tables = [table_of(specs) for specs in starts]
    found = local_search.search(tables, near(100, 200, 300), scores, candidates, table_of)
    return found, len(scores)


def test_a_search_goes_to_what_is_better_and_ends_where_nothing_is() -> None:
    """The score is lowest if the first class is 112, which is one step from 208."""
    found, count = searched(lambda size: abs(size - 112), 500, ((208, 1, 1), (32768, 4, 4)))
    assert (found.table.classes["size_bytes"][0], found.score, found.stopped) == (112, 0, False)
    assert count < 500
    flat, count = searched(lambda _: 7, 500, SPECS)
    assert flat.table == table_of(SPECS) and flat.score == 7 and count < 500


def test_the_best_start_is_searched_first(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []

    def first_better(table: sw.SizeClassTable, *_: Any) -> None:
        order.append(int(table.classes["size_bytes"][0]))

    monkeypatch.setattr(local_search, "_first_better", first_better)
    starts: list[Specs] = [((size, 1, 1), (32768, 4, 4)) for size in (512, 112, 256)]
    searched(lambda size: abs(size - 112), 500, *starts)
    assert order == [112, 256, 512]


def test_of_several_starts_the_best_is_kept() -> None:
    """No more tables may be simulated than there are starts."""
    starts: list[Specs] = [((size, 1, 1), (32768, 4, 4)) for size in (512, 112, 256)]
    found, count = searched(lambda size: abs(size - 112), 3, *starts)
    assert (found.table, found.score, count) == (table_of(starts[1]), 0, 3)


@pytest.mark.parametrize(("operations", "tables"), [(1, 160), (2_000_000, 100), (10**9, 48)])
def test_how_many_tables_are_simulated(
    operations: int, tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 million operations, at least 48 tables, at most 160."""
    monkeypatch.setattr(sw.Recording, "__len__", lambda _: operations)
    assert options.default_candidates([BIG]) == tables


# --- the fit --------------------------------------------------------------------------------------


def fit_of(*recordings: sw.Recording, rules: Rules = RULES) -> Fit:
    return Fit(list(recordings), "peak", rules)


def test_a_span_is_charged_for_each_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    weights: list[float] = []
    monkeypatch.setattr(
        solver, "Solver", lambda _profile, _rules, span_weight: weights.append(span_weight)
    )
    both = fit_of(BIG, SMALL)
    both.solver()
    both.of([BIG]).solver()
    assert weights == [2, 1]
    assert both.of([SMALL]).profile.requested == 50_000


def test_points_of_the_pareto_front_have_the_wanted_classes(program: sw.Recording) -> None:
    """Neither the charge for spans nor the bound on waste keeps them from it."""
    rules = Rules(32, 16, 32768, 8192, 10, 0.5, 0.0, waste_percent=25)
    tables = fit_of(program, rules=rules).tables((4, 64), (1, 2))
    assert {key: len(table) for key, table in tables.items()} == {
        **{(4, 1): 4, (64, 1): 64},
        **{(4, 2): 4, (64, 2): 64},
    }


def test_held_takes_the_proposal_that_holds_least(program: sw.Recording) -> None:
    rules = Rules(24, 16, 32768, 8192, 10, 0.5, 0.0)
    fit = Fit([program], "held", rules)
    held = [program.ledger(table).held_bytes for table in fit.proposals(None)]
    best = by_peak(program, 24, "held").proposal
    assert len(held) > 3 and max(held) > program.ledger(best).held_bytes == min(held)
    assert (best.name, held_counts(24)) == ("best-24-held", [4, 8, 12, 16, 20, 24])


def test_parts_of_a_recording() -> None:
    """Three operations are cut into three parts, but not into four.

    Seven are cut after the second and the fourth; then so many objects live, which are allocated
    at the beginning of the next part.
    """
    assert [len(part) for part in parts_of([wanting(*[8] * 7)], 3)] == [2, 2 + 2, 4 + 3]
    three = [wanting(8, 16, 24)]
    assert len(parts_of(three, 3)) == 3
    with pytest.raises(sw.InvalidError, match="3 operations cannot be cut into 4 parts"):
        parts_of(three, 4)


def test_progress_is_the_operations_up_to_the_peak(
    program: sw.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    stored = sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    monkeypatch.setattr(pareto, "FILE_STEP", 500)
    pareto.peak_ledger([stored, stored], TABLE, progress=counts.append)
    assert sum(counts) == 2 * program.summary.peak_op and max(counts) <= 500
    counts.clear()
    best = by_peak(program, classes=8)
    best.make_pareto(counts=(4,), caches=(0,), scales=(1,), progress=counts.append)
    assert sum(counts) == 2 * program.summary.peak_op
    counts.clear()
    sw.optimize(program, 8, "held", waste_percent=100, progress=counts.append)
    assert 0 < sum(counts) <= search.simulated_operations(program, 8, "held")


# --- profiles -------------------------------------------------------------------------------------


def test_weights_are_the_objects_live_at_the_peak() -> None:
    ops = make_ops((ALLOC, 0, 100), (REALLOC, 0, 300), (ALLOC, 1, 7), (FREE, 0, 0))
    weights = profile_of(sw.Recording.from_ops(ops)).weights
    assert (weights[300], weights[7], weights.sum()) == (1, 1, 2)


@pytest.mark.parametrize("name", ["go", "c16", "jemalloc", "mimalloc", "pow2"])
def test_waste_is_the_tables_own_arithmetic(program: sw.Recording, name: str) -> None:
    table = sw.SizeClassTable.named(name)
    waste = profile_of(program).waste(table)
    ledger = program.ledger(table, "peak")
    assert waste.requested == ledger.requested_bytes
    # Requests with an alignment may get a larger class, so the ledger can only have more.
    assert waste.roundup <= ledger.roundup_bytes
    weights = profile_of(program).weights
    sizes = np.flatnonzero(weights)
    rounded = table.round_up(np.maximum(sizes, 1)) - sizes
    assert waste.roundup + waste.large_rounding == pytest.approx(float(weights[sizes] @ rounded))


# --- whole searches -------------------------------------------------------------------------------


CASES = int(os.environ.get("SPANWISE_EXHAUSTIVE_CASES", "12"))
"""Small cases that are searched exhaustively; 1,000 for the long form, which takes minutes:
SPANWISE_EXHAUSTIVE_CASES=1000 ./dev test --python tests/python/optimizer/test_search.py -s"""

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


def at_most(recording: sw.Recording, table: sw.SizeClassTable) -> sw.Ledger:
    return recording.ledger(table, "peak-resident")


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
