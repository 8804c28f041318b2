# SPDX-License-Identifier: Apache-2.0
"""The optimiser from Python and from the command line: rules, gains, frontier, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import spanwise as sw
from hypothesis import given, settings
from hypothesis import strategies as st
from spanwise.__main__ import main
from spanwise.optimizer.frontier import AS_RECORDED, peak_ledger
from spanwise.optimizer.profile import profile_of
from spanwise.optimizer.search import simulated_operations
from spanwise.recording.recorder import run_recorded

from tests.python.helpers import (
    ALLOC,
    FREE,
    REALLOC,
    ROOT,
    make_ops,
    needs_recorder,
    random_ops,
)


@pytest.fixture(scope="module")
def program() -> sw.Recording:
    return sw.Recording.from_ops(random_ops(5, 30_000), name="program")


@pytest.fixture(scope="module")
def other() -> sw.Recording:
    return sw.Recording.from_ops(random_ops(6, 20_000), name="other")


def wanting(*sizes: int) -> sw.Recording:
    """A recording that asks for these sizes and keeps them."""
    return sw.Recording.from_ops(make_ops(*((ALLOC, i, size) for i, size in enumerate(sizes))))


# --- profiles -------------------------------------------------------------------------------------


def test_profiles_are_plain_counts(program: sw.Recording) -> None:
    weights = profile_of(program, "allocs").weights
    histogram = program.histogram()
    expected = np.zeros(len(weights))
    expected[histogram["size"]] = histogram["count"]
    assert (weights == expected).all()
    live: dict[int, int] = {}
    for op in program.ops[: program.summary.peak_op]:
        live[int(op["object"])] = int(op["size"])
        if op["kind"] == FREE:
            del live[int(op["object"])]
    peak = np.bincount(list(live.values()), minlength=len(weights))
    assert (profile_of(program, "peak").weights == peak).all()


def test_time_is_object_seconds() -> None:
    ops = make_ops((ALLOC, 0, 100), (REALLOC, 0, 300), (ALLOC, 1, 7), (FREE, 0, 0))
    weights = profile_of(sw.Recording.from_ops(ops), "time").weights
    assert weights[100] == pytest.approx(1e-6)
    assert weights[300] == pytest.approx(2e-6)
    assert weights[7] == pytest.approx(1e-6)


def test_a_file_has_the_profile_of_its_operations(program: sw.Recording, tmp_path: Path) -> None:
    stored = sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    for objective in ("allocs", "time", "peak"):
        kept, plain = profile_of(stored, objective), profile_of(program, objective)
        assert np.allclose(kept.weights, plain.weights)
        assert kept.large_bytes == pytest.approx(plain.large_bytes)


@pytest.mark.parametrize("name", ["go", "c16", "jemalloc", "mimalloc", "pow2"])
def test_waste_is_the_tables_own_arithmetic(program: sw.Recording, name: str) -> None:
    table = sw.SizeClassTable.named(name)
    waste = profile_of(program, "peak").waste(table)
    ledger = program.ledger(table)
    assert waste.requested == ledger.requested_bytes
    # Requests with an alignment may get a larger class, so the ledger can only have more.
    assert waste.roundup <= ledger.roundup_bytes
    weights = profile_of(program, "peak").weights
    sizes = np.flatnonzero(weights)
    rounded = table.round_up(np.maximum(sizes, 1)) - sizes
    assert waste.roundup + waste.large_rounding == pytest.approx(float(weights[sizes] @ rounded))


# --- the table ------------------------------------------------------------------------------------


def test_fits_what_is_asked_for() -> None:
    recording = wanting(*[24] * 50, *[100] * 40, *[1000] * 30)
    best = sw.optimize(recording, classes=4, align=8, pages=4, partial=0)
    sizes = best.table.classes["size"].tolist()
    # 1000 B grows as far as its span holds it equally often; the largest class is always there.
    assert sizes[0] == 24 and sizes[1] == 104 and 1000 <= sizes[2] < 1100 and sizes[3] == 32768
    assert best.table.name == best.proposal.name == "best-4-peak"
    assert best.held_out == () and "nothing was held out" in best.verdict()


@pytest.mark.parametrize("align", [8, 16])
@pytest.mark.parametrize("objective", ["allocs", "time", "peak", "held"])
def test_rules_are_kept(program: sw.Recording, objective: str, align: int) -> None:
    best = sw.optimize(program, classes=20, objective=objective, align=align, max_size=16384)
    sizes = best.table.classes["size"]
    assert len(best.table) <= 20
    assert sizes[-1] == 16384
    assert (sizes[sizes >= align] % align == 0).all()
    if objective != "held":
        assert (best.table.classes["span_bytes"] <= 10 * 8192).all()
    waste = best.arithmetic
    assert waste.total == pytest.approx(waste.roundup + waste.tail + waste.large_rounding)
    assert best.unit == ("byte-seconds" if objective == "time" else "bytes")


def test_more_classes_never_waste_more(program: sw.Recording) -> None:
    wastes = [
        sw.optimize(program, classes=n, partial=0).arithmetic.total for n in (1, 2, 5, 12, 40, 120)
    ]
    assert wastes == sorted(wastes, reverse=True)
    assert wastes[0] > 3 * wastes[-1]


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 4096), min_size=1, max_size=40),
    st.integers(1, 6),
    st.lists(st.integers(1, 256), min_size=5, max_size=5, unique=True),
)
def test_no_other_table_of_as_many_classes_is_better(
    requests: list[int], classes: int, rivals: list[int]
) -> None:
    recording = wanting(*requests)
    best = sw.optimize(recording, classes=classes, max_size=4096, pages=3, partial=0)
    sizes = [*sorted({16 * n for n in rivals} - {4096})[: classes - 1], 4096]
    for pages in (1, 2, 3):
        rival = sw.SizeClassTable.custom([(size, pages) for size in sizes])
        mine = profile_of(recording, "peak").waste(rival)
        assert best.arithmetic.total <= mine.total + 1e-6


def test_held_holds_least(program: sw.Recording) -> None:
    held = peak_ledger([program], sw.optimize(program, 32, "held").table).held_bytes
    assert held <= peak_ledger([program], sw.optimize(program, 32, "peak").table).held_bytes


def test_several_recordings(program: sw.Recording, other: sw.Recording) -> None:
    both = sw.optimize([program, other], classes=16)
    assert both.arithmetic.requested == (
        program.summary.peak_requested_bytes + other.summary.peak_requested_bytes
    )
    only = sw.optimize([program, other], classes=16, weights=[1, 0])
    assert only.table == sw.optimize(program, classes=16, partial=only.rules.partial).table or (
        only.arithmetic.share == pytest.approx(profile_of(program, "peak").waste(only.table).share)
    )
    half = sw.optimize([program, other], classes=16, weights=[1, 1])
    assert half.arithmetic.requested == pytest.approx(both.arithmetic.requested)


def test_a_prior_serves_what_was_never_asked_for() -> None:
    recording = wanting(*[100] * 1000)
    blind = sw.optimize(recording, classes=16, partial=0)
    wide = sw.optimize(recording, classes=16, prior=0.1, partial=0)
    assert len(blind.table) == 2
    assert len(wide.table) == 16
    assert wide.table.round_up(2000) < 3000 < blind.table.round_up(2000)


def test_constraints_say_what_a_rule_costs(program: sw.Recording) -> None:
    best = sw.optimize(program, classes=24, partial=0)
    saved = {one.rule: one.saved for one in best.constraints}
    assert saved["align 8 instead of 16"] >= 0
    assert saved["spans of up to 40 pages"] >= 0
    assert saved["twice as many classes"] >= 0
    assert saved["spans that Go's 32-bit division serves"] <= 1e-6
    assert saved["the fewest pages for the largest class"] <= 1e-6


def test_a_rule_that_no_table_meets_costs_nothing(program: sw.Recording) -> None:
    best = sw.optimize(program, classes=8, align=8, max_size=1000, page_bytes=4096)
    rules = [one.rule for one in best.constraints]
    assert "align 16 instead of 8" not in rules  # 1000 B is no multiple of 16
    assert "largest class 65536 B" in rules
    assert "align 16" not in str(best)


# --- the trial ------------------------------------------------------------------------------------


def churned(*sizes: int, live: int = 4000) -> sw.Recording:
    """`live` objects of 512 bytes, which are the peak; then 20,000 of each size come and go."""
    rows = [(ALLOC, i, 512) for i in range(live)] + [(FREE, i, 0) for i in range(64)]
    for number, size in enumerate(size for size in sizes for _ in range(20_000)):
        rows += [(ALLOC, live + number, size), (FREE, live + number, 0)]
    return sw.Recording.from_ops(make_ops(*rows), name="churned")


def test_what_the_objective_loves_may_lose() -> None:
    """By hand: c16 has 512-byte slots, 128 a span; the proposal gives the 4,000 objects 1,024."""
    best = sw.optimize(churned(1024, 2048, 4096, 8192), classes=5, objective="allocs")
    stock, found = best.trial.stock_ledger, best.trial.found_ledger
    assert best.table.classes["size"].tolist() == [1024, 2048, 4096, 8192, 32768]
    assert best.table.classes["span_bytes"].tolist()[0] == 8192
    assert stock.requested_bytes == found.requested_bytes == 4000 * 512
    assert stock.held_bytes - stock.metadata_bytes == 32 * 65536  # 4,000 / 128 is 31.25
    assert found.held_bytes - found.metadata_bytes == 500 * 8192  # 4,000 / 8
    assert (best.stock, best.beats_stock, best.holds) == ("c16", False, False)
    assert best.verdict() == (
        "of the tables aligned to 16, c16 stays: it holds 2.1 MiB; best-5-allocs would hold"
        " 4.1 MiB, 2.0 MiB above that (go, not so aligned, would hold 2.1 MiB); nothing was held"
        " out."
    )
    assert best.trial.saved_bytes == stock.held_bytes - found.held_bytes < 0


def test_one_class_more_and_it_wins() -> None:
    """By hand: now 512 has its class, 16 a span of 8 KiB, and no span is partly empty."""
    best = sw.optimize(churned(1024, 2048, 4096, 8192), classes=6, objective="allocs")
    found = best.trial.found_ledger
    assert found.held_bytes - found.metadata_bytes == 250 * 8192 == 4000 * 512
    assert best.beats_stock and best.holds
    assert best.verdict().startswith("best-6-allocs holds least: ")
    assert " less than c16" in best.verdict()


def test_a_loss_on_what_was_held_out_is_told() -> None:
    """Fitted to 1,000-byte objects; 513 bytes then take the largest class, of 32 KiB."""
    fitted = wanting(*[1000] * 2000)
    small, same = wanting(*[513] * 2000), wanting(*[1000] * 1000)
    small.name, same.name = "small", "same"
    best = sw.optimize(fitted, classes=2, partial=0, holdout=[same, small])
    assert best.beats_stock and best.table.classes["size"].tolist()[-1] == 32768
    assert best.table.classes["size"].tolist()[0] in range(1000, 1025)
    assert [trial.name for trial in best.held_out] == ["same", "small"]
    assert best.loses_on == ("small",) and not best.holds
    assert "; on small, held out, best-2-peak loses: c16 holds " in best.verdict()
    assert "; on same, held out, best-2-peak holds " in best.verdict()


@pytest.mark.parametrize("objective", ["allocs", "time", "peak", "held"])
@pytest.mark.parametrize("classes", [1, 3, 24, 60])
def test_the_verdict_is_the_ledgers(
    program: sw.Recording, other: sw.Recording, objective: str, classes: int
) -> None:
    """Held bytes are those of `Recording.ledger`, and the words follow from them."""
    best = sw.optimize(program, classes, objective, holdout=other)
    for trial, recording in ((best.trial, program), (best.held_out[0], other)):
        for table in ("go", "c16", best.table):
            ledger = recording.ledger(table)
            name = table if isinstance(table, str) else table.name
            assert trial.held[name] == ledger.held_bytes
        ours, stock = trial.held[best.table.name], trial.held["c16"]
        assert trial.saved_bytes == stock - ours
        assert trial.beats_stock == (ours < stock)
    winner = f"{best.table.name} holds least: " if best.beats_stock else "c16 stays: it holds "
    assert winner in best.verdict()
    assert ("loses" in best.verdict()) == bool(best.loses_on)
    for text in (str(best), best._repr_html_()):
        assert " more" not in text and "instead of the" not in text


def test_tables_that_are_given_take_part(program: sw.Recording) -> None:
    """The best of all wins; one that malloc could not serve from is shown and cannot win."""
    proposed = sw.optimize(program, classes=40, objective="held").table
    better = sw.SizeClassTable.custom(
        [(int(row["size"]), int(row["span_bytes"]) // 8192) for row in proposed.classes],
        name="better",
    )
    best = sw.optimize(program, classes=1, tables=[better, "c16", "pow2"])
    assert (best.table, best.trial.found, best.proposal.name) == (better, "better", "best-1-peak")
    assert set(best.held) == {"go", "c16", "better", "pow2", "best-1-peak"}
    assert best.held["better"] == min(best.held[name] for name in best.held if name != "go")
    odd = sw.SizeClassTable.custom([(24, 1), (1000, 1), (32768, 4)], name="odd")
    best = sw.optimize(wanting(*[1000] * 500), classes=1, tables=[odd])
    assert best.trial.barred == ("go", "odd") and best.table.name == "best-1-peak"
    assert not best.beats_stock
    assert "(odd, not so aligned, would hold " in best.verdict()
    free = sw.optimize(wanting(*[1000] * 500), classes=1, tables=[odd], align=8)
    assert free.trial.barred == () and free.table == odd


def test_with_align_8_both_stock_tables_are_to_be_beaten() -> None:
    """By hand: go's 24-byte class takes 24 KiB for 1,024 objects, c16's of 32 bytes 32 KiB."""
    recording = wanting(*[24] * 100_000)
    best = sw.optimize(recording, classes=1, align=8)
    assert best.trial.barred == () and best.stock == "go"
    assert best.held["go"] < best.held["c16"]


def test_equally_good_is_not_better() -> None:
    copy = sw.SizeClassTable.named("c16").to_table_file()["classes"]
    pairs = [(row["size"], row["pages"]) for row in copy]
    same = sw.SizeClassTable.custom([*pairs, (65536, 8)], name="same")
    recording = wanting(*[100] * 300)
    best = sw.optimize(recording, classes=1, tables=[same])
    assert best.table == same and best.held["same"] >= best.held["c16"] and not best.beats_stock


def test_names_that_two_tables_would_have(program: sw.Recording) -> None:
    mine = sw.SizeClassTable.custom([(64, 1), (32768, 4)], name="mine")
    other = sw.SizeClassTable.custom([(96, 1), (32768, 4)], name="mine")
    with pytest.raises(sw.InvalidError, match="two different tables have the name 'mine'"):
        sw.optimize(program, tables=[mine, other])
    with pytest.raises(sw.InvalidError, match="name 'mine' belongs to a given table; choose"):
        sw.optimize(program, tables=[mine], name="mine")
    first = sw.optimize(program, classes=24)
    again = sw.optimize(program, classes=24, tables=[first.table])
    assert again.held == first.held


@pytest.mark.parametrize("objective", ["peak", "held"])
def test_progress_counts_what_is_simulated(
    program: sw.Recording, other: sw.Recording, objective: str, tmp_path: Path
) -> None:
    stored = sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    told: list[int] = []
    best = sw.optimize(stored, 24, objective, holdout=other, tables=["pow2"], progress=told.append)
    most = simulated_operations(stored, 24, objective, holdout=other, tables=1)
    assert 0 < sum(told) <= most
    if objective == "peak":
        assert sum(told) == most == 4 * (program.summary.peak_op + other.summary.peak_op)
    assert len(best.held) == 4


# --- the frontier ---------------------------------------------------------------------------------


def test_frontier_rows_are_ledgers(program: sw.Recording) -> None:
    best = sw.optimize(program, classes=24)
    frontier = best.make_frontier(counts=(4, 64), caches=(AS_RECORDED, 1, 4), scales=(1, 2))
    assert frontier.curves() == [(1, 0), (1, 1), (1, 4), (2, 0)]
    assert frontier.curve()["classes"].tolist() == [4, 24, 64]
    parts = ("requested", "roundup", "tail", "partial", "cached", "metadata", "other")
    for row in frontier.rows:
        assert sum(int(row[name]) for name in parts) == row["held"]
    ledger = program.ledger(best.table)
    row = frontier.curve()[1]
    assert (row["held"], row["cached"]) == (ledger.held_bytes, ledger.cached_bytes)
    assert frontier.best()["held"] == frontier.curve()["held"].min()
    one, four = frontier.curve(caches=1), frontier.curve(caches=4)
    assert (four["cached"] > one["cached"]).all()
    assert str(frontier).count("least") == 4
    assert len(frontier.to_dict()["minima"]) == 4


def test_pictures(program: sw.Recording) -> None:
    best = sw.optimize(program, classes=12)
    frontier = best.make_frontier(counts=(4, 8), caches=(AS_RECORDED,), scales=(1,))
    drawn, waste = frontier.plot(), best.plot_waste()
    assert len(drawn.get_lines()) == 2
    assert waste.get_title(loc="left") == "round-up of each size"
    plt.close("all")
    assert "best-12-peak" in best._repr_html_()


# --- files ----------------------------------------------------------------------------------------


def test_table_file_serves_the_generator(program: sw.Recording, tmp_path: Path) -> None:
    best = sw.optimize(program, classes=24)
    path = tmp_path / "best.json"
    best.table.to_json(path)
    assert sw.SizeClassTable.from_json(path) == best.table
    file = json.loads(path.read_text())
    assert file["parameters"]["classes"] == 24
    assert file["provenance"] == "spanwise optimize, objective peak, of program"
    script = ROOT / "scripts/sizeclasses.py"
    words = [sys.executable, str(script), "--table", str(path), "-o", str(tmp_path / "gen")]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(made.name for made in (tmp_path / "gen").iterdir()) == [
        "default.h",
        "fast.h",
        "paths_best_24_peak.c",
        "paths_best_24_peak.h",
        "table_best_24_peak.c",
    ]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 0}, "classes 0: must be 1 to 255"),
        ({"classes": 256}, "classes 256: must be 1 to 255"),
        ({"align": 12}, "align 12: must be 8 or 16"),
        ({"max_size": 24}, "max_bytes 24: no class; must be a multiple of align 16 up to 262144"),
        (
            {"pages": 3},
            "pages_max 3: a class of 32768 bytes needs 4 pages of 8192 bytes; allow so many",
        ),
        ({"page_bytes": 5000}, "page_bytes 5000: must be a power of two from 4096 to 65536"),
        ({"objective": "speed"}, "objective 'speed': must be one of allocs, time, peak, held"),
        ({"name": "go"}, "name 'go' belongs to a built-in table; choose another"),
        (
            {"name": "my table"},
            "name 'my table': must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter",
        ),
        ({"prior": 1.0}, "prior 1.0: must be at least 0 and below 1"),
        ({"partial": -0.5}, "span_charge -0.5: must be 0 or more"),
        (
            {"weights": [1, 2]},
            "weights [1.0, 2.0]: give one number of 0 or more for each of 1 recordings, not all 0",
        ),
    ],
)
def test_impossible_rules(program: sw.Recording, options: dict[str, Any], message: str) -> None:
    with pytest.raises(sw.InvalidError) as caught:
        sw.optimize(program, **options)
    assert str(caught.value) == message


def test_nothing_to_fit() -> None:
    with pytest.raises(sw.InvalidError) as caught:
        sw.optimize(sw.Recording.from_ops(np.zeros(0, sw.OPS_DTYPE), name="empty"))
    assert str(caught.value) == "empty: holds no allocation; record a program that makes some"
    with pytest.raises(sw.InvalidError) as caught:
        sw.optimize(wanting(100_000, 200_000))
    assert str(caught.value) == (
        "no request of at most 32768 bytes: there is nothing to fit classes to"
    )
    with pytest.raises(sw.InvalidError, match="no recording to fit a table to"):
        sw.optimize([])
    with pytest.raises(TypeError, match="recordings must be Recording objects, not str"):
        sw.optimize(["a.swt"])  # type: ignore[list-item]


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def stored(program: sw.Recording, other: sw.Recording, tmp_path: Path) -> Path:
    sw.Recording.from_ops(program.ops, tmp_path / "a.swt")
    sw.Recording.from_ops(other.ops[:8000], tmp_path / "b.swt")
    return tmp_path


def test_command(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", stored / "a.swt", "--holdout", stored / "b.swt", "--classes", "20"]
    words += ["-o", stored / "t.json"]
    assert main([str(word) for word in words]) == 0
    text = capsys.readouterr().out
    assert "best-20-peak holds least: " in text
    assert "; on b.swt, held out, best-20-peak holds " in text
    assert f"wrote {stored / 't.json'} (best-20-peak, 20 classes)" in text
    assert len(sw.SizeClassTable.named(str(stored / "t.json"))) == 20
    assert main([*map(str, words), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["table"]["classes"][-1] == {"size": 32768, "pages": 4}
    assert (value["beats_stock"], value["loses_on"], value["stock"]) == (True, [], "c16")
    assert set(value["trial"]["tables"]) == {"go", "c16", "best-20-peak"}
    assert [trial["recording"] for trial in value["held_out"]] == ["b.swt"]
    assert value["written"] == str(stored / "t.json")


def test_command_where_the_stock_table_stays(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1 and no file; with --anyway exit 1 and the file. The figures are the ledger's."""
    place = stored / "t.json"
    words = ["optimize", str(stored / "a.swt"), "--classes", "1", "-o", str(place)]
    assert main(words) == 1
    text = capsys.readouterr().out
    assert "c16 stays: it holds " in text
    assert f"{place} was not written; --anyway writes best-1-peak nevertheless" in text
    assert not place.exists()
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["written"] is None
    assert not place.exists()
    assert main([*words, "--anyway", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["written"] == str(place) and told["beats_stock"] is False
    for table in ("c16", str(place)):
        assert main(["ledger", str(stored / "a.swt"), "--table", table, "--json"]) == 0
        ledger = json.loads(capsys.readouterr().out)
        row = told["trial"]["tables"][ledger["table"]]
        assert row["held_bytes"] == ledger["held_bytes"]
        assert row["waste_bytes"] == ledger["held_bytes"] - ledger["requested_bytes"]


def test_command_of_a_table_that_what_was_held_out_condemns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, size in (("fitted", 1000), ("unseen", 513)):
        ops = make_ops(*((ALLOC, i, size) for i in range(2000)))
        sw.Recording.from_ops(ops, tmp_path / f"{name}.swt")
    fit = ["optimize", str(tmp_path / "fitted.swt"), "--classes", "2", "--partial", "0"]
    fit += ["-o", str(tmp_path / "t.json")]
    assert main([*fit, "--holdout", str(tmp_path / "unseen.swt")]) == 1
    text = capsys.readouterr().out
    assert "best-2-peak holds least: " in text
    assert "; on unseen.swt, held out, best-2-peak loses: c16 holds " in text
    assert not (tmp_path / "t.json").exists()
    assert main(fit) == 0
    assert (tmp_path / "t.json").exists()


@needs_recorder()
def test_command_on_a_real_program_both_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One class is worse than c16 for every program; of 24 classes the ledger decides."""
    place, table = tmp_path / "json.swt", tmp_path / "t.json"
    with (tmp_path / "said").open("w") as said:
        run_recorded([sys.executable, "-c", "import json"], place, stdout=said)
    words = ["optimize", str(place), "-o", str(table)]
    assert main([*words, "--classes", "1"]) == 1
    assert "c16 stays" in capsys.readouterr().out and not table.exists()
    status = main(words)
    text = capsys.readouterr().out
    assert table.exists() == (status == 0)
    assert main([*words, "--anyway"]) == status
    recording = sw.Recording.open(place)
    ours, stock = (recording.ledger(one).held_bytes for one in (str(table), "c16"))
    assert (ours < stock) == (status == 0) == ("holds least" in text)


def test_command_draws_the_frontier(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = stored / "f.png"
    words = ["optimize", str(stored / "b.swt"), "--frontier", "--plot", str(picture), "--json"]
    assert main(words) in (0, 1)
    frontier = json.loads(capsys.readouterr().out)["frontier"]
    assert {row["caches"] for row in frontier["rows"]} == {0, 1, 2, 4, 8, 16}
    assert picture.stat().st_size > 10_000


def test_command_leaves_no_file_behind_an_error(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["optimize", str(stored / "a.swt"), "--classes", "0", "-o", str(stored / "t.json")]
    assert main(words) == 2
    assert capsys.readouterr().err == "spanwise: classes 0: must be 1 to 255\n"
    assert not (stored / "t.json").exists()
    place = stored / "none/t.json"
    assert main(["optimize", str(stored / "a.swt"), "-o", str(place)]) == 2
    assert (
        capsys.readouterr().err
        == f"spanwise: {place}: cannot be written: No such file or directory\n"
    )
    assert sorted(path.name for path in stored.iterdir()) == ["a.swt", "b.swt"]
