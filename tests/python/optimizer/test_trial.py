# SPDX-License-Identifier: Apache-2.0
"""The trial: tables that are proposed, given or stock, tried on recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
import spanwise as sw
from spanwise.optimizer.search import simulated_operations

from tests.python.optimizer.optimizer_tools import churned, wanting


def test_what_the_objective_loves_may_lose() -> None:
    """By hand: c16 has 512-byte slots, 16 a page, in spans of 1, 2, 4, and then 8 pages.

    The proposal gives the 4,000 objects 1,024 bytes each.
    """
    best = sw.optimize(churned(1024, 2048, 4096, 8192), classes=5, objective="allocs")
    stock, found = best.trial.stock_ledger, best.trial.found_ledger
    assert best.table.classes["size_bytes"].tolist() == [1024, 2048, 4096, 8192, 32768]
    assert best.table.classes["span_bytes"].tolist()[0] == 8192
    assert stock.requested_bytes == found.requested_bytes == 4000 * 512
    assert stock.held_bytes - stock.metadata_bytes == (15 + 30 * 8) * 8192  # 3,760 / 128 is 29.4
    assert found.held_bytes - found.metadata_bytes == 500 * 8192  # 4,000 / 8
    assert (best.stock, best.beats_stock, best.holds) == ("c16", False, False)
    assert best.verdict() == (
        "of the tables aligned to 16, c16 stays: it holds 2.1 MiB; best-5-allocs would hold"
        " 4.0 MiB, 1.9 MiB above that (go, not so aligned, would hold 2.1 MiB); nothing was held"
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
    assert best.beats_stock and best.table.classes["size_bytes"].tolist()[-1] == 32768
    assert best.table.classes["size_bytes"].tolist()[0] in range(1000, 1025)
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
            assert trial.held_bytes[name] == ledger.held_bytes
        ours, stock = trial.held_bytes[best.table.name], trial.held_bytes["c16"]
        assert trial.saved_bytes == stock - ours
        assert trial.beats_stock == (ours < stock)
    winner = f"{best.table.name} holds least: " if best.beats_stock else "c16 stays: it holds "
    assert winner in best.verdict()
    assert ("loses" in best.verdict()) == bool(best.loses_on)
    for text in (str(best), best._repr_html_()):
        assert "instead of the" not in text


def test_tables_that_are_given_take_part(program: sw.Recording) -> None:
    """The best of all wins; one that malloc could not serve from is shown and cannot win."""
    proposed = sw.optimize(program, classes=40, objective="held").table
    better = sw.SizeClassTable.custom(
        [(int(row["size_bytes"]), int(row["span_bytes"]) // 8192) for row in proposed.classes],
        name="better",
    )
    best = sw.optimize(program, classes=1, tables=[better, "c16", "pow2"])
    assert (best.table, best.trial.found, best.proposal.name) == (better, "better", "best-1-peak")
    assert set(best.held_bytes) == {"go", "c16", "better", "pow2", "best-1-peak"}
    assert best.held_bytes["better"] == min(
        best.held_bytes[name] for name in best.held_bytes if name != "go"
    )
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
    assert best.held_bytes["go"] < best.held_bytes["c16"]


def test_equally_good_is_not_better() -> None:
    copy = sw.SizeClassTable.named("c16").to_dict()["classes"]
    pairs = [(row["size"], row["pages"]) for row in copy]
    same = sw.SizeClassTable.custom([*pairs, (65536, 8)], name="same")
    recording = wanting(*[100] * 300)
    best = sw.optimize(recording, classes=1, tables=[same])
    assert (
        best.table == same
        and best.held_bytes["same"] >= best.held_bytes["c16"]
        and not best.beats_stock
    )


def test_names_that_two_tables_would_have(program: sw.Recording) -> None:
    mine = sw.SizeClassTable.custom([(64, 1), (32768, 4)], name="mine")
    other = sw.SizeClassTable.custom([(96, 1), (32768, 4)], name="mine")
    with pytest.raises(sw.InvalidError, match="two different tables have the name 'mine'"):
        sw.optimize(program, tables=[mine, other])
    with pytest.raises(sw.InvalidError, match="name 'mine' belongs to a given table; choose"):
        sw.optimize(program, tables=[mine], name="mine")
    first = sw.optimize(program, classes=24)
    again = sw.optimize(program, classes=24, tables=[first.table])
    assert again.held_bytes == first.held_bytes


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
    assert len(best.held_bytes) == 4
