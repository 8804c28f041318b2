# SPDX-License-Identifier: Apache-2.0
"""Rows of sweeps: rankings by hand, and files with wrong fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.measure.bench_result import ROW_FIELDS as RUN_FIELDS
from spanwise.sweeps.result import Sweep
from spanwise.sweeps.tasks import ROW_FIELDS, VALUE_FIELDS, table_spec


def row(recording: str, table: str, held: int, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(ROW_FIELDS, 0)
    values.update(recording=recording, recording_sha256=f"sha of {recording}", table=table)
    values.update(table_hash=f"{ord(table):016x}", at="peak", worker="here", error=None)
    values.update(held_bytes=held, waste_bytes=held - 10, requested_bytes=10, seconds=0.5)
    values.update(peak_resident_bytes=held)
    return {**values, **changes}


def sweep_of(*rows: dict[str, Any]) -> Sweep:
    names = dict.fromkeys(one["table"] for one in rows)
    plain = {"page_bytes": 8192, "sizes": [16], "pages": [1]}
    return Sweep(rows, [{"hash": f"{ord(n):016x}", "name": n, **plain} for n in names])


ROWS = (
    row("x", "a", 100),
    row("x", "b", 90, waste_bytes=89),
    row("x", "c", 10),
    row("y", "a", 200),
    row("y", "b", 205, waste_bytes=250),
    row("y", "c", 0, error="it broke"),
)


def test_rankings_are_of_sums() -> None:
    """Table c failed with one recording: it is in no ranking of both."""
    swept = sweep_of(*ROWS)
    assert swept.ranking() == [("b", 295), ("a", 300)]
    assert swept.ranking("waste_bytes") == [("a", 280), ("b", 339)]
    assert swept.ranking("seconds") == [("a", 1.0), ("b", 1.0)]  # of equal ones the first
    assert swept.ranking(recording="x") == [("c", 10), ("b", 90), ("a", 100)]
    assert swept.ranking(recording="y") == [("a", 200), ("b", 205)]
    assert [one["table"] for one in swept.failures] == ["c"]
    assert swept.to_dict()["best"] == "b"


def test_who_refuses_more_is_left_out() -> None:
    """Only the tables that refused the fewest requests of each recording are ranked."""
    swept = sweep_of(
        row("x", "a", 50, failed=3),
        row("x", "b", 60, failed=2),
        row("x", "c", 70, failed=2),
        row("y", "a", 50),
        row("y", "b", 60),
        row("y", "c", 65, failed=1),
    )
    assert swept.ranking() == [("b", 120)]
    assert swept.ranking(recording="x") == [("b", 60), ("c", 70)]
    assert swept.ranking(recording="y") == [("a", 50), ("b", 60)]


def test_ranking_of_resident_bytes() -> None:
    """The peak resident bytes rank by default."""
    swept = sweep_of(row("x", "a", 100, resident_bytes=70), row("x", "b", 90, resident_bytes=80))
    assert swept.ranking("resident_bytes") == [("a", 70), ("b", 80)]
    assert swept.ranking() == [("b", 90), ("a", 100)]
    most = sweep_of(
        *(row("x", t, h, peak_resident_bytes=170 - h) for t, h in (("a", 90), ("b", 80)))
    )
    assert most.judged_by == "peak_resident_bytes"
    assert most.ranking() == [("a", 80), ("b", 90)] and most.to_dict()["best"] == "a"


def test_arrays_of_rows() -> None:
    rows = sweep_of(row("x", "a", 100), row("y", "a", 0, error="no", held_bytes=None, seconds=None))
    columns = rows.array
    assert columns["ok"].tolist() == [True, False]
    assert columns["held_bytes"].tolist() == [100, 0]
    assert columns["table_hash"].tolist() == [ord("a")] * 2
    assert columns["seconds"][0] == 0.5 and np.isnan(columns["seconds"][1])


GO = table_spec(sw.SizeClassTable.go())
BUILD = {
    "started": "2026-11-26T13:08:48Z",
    "versions": {"spanwise": "0.3.0"},
    "commit": None,
    "build": "71eedfaa12cab9c9",
}
HEAD: dict[str, Any] = {
    "kind": "spanwise sweep",
    "format": 1,
    **BUILD,
    "at": "peak",
    "options": {},
    "recordings": [{"name": "a.swt"}],
    "tables": [GO],
}
ROW: dict[str, Any] = {
    "kind": "row",
    **dict.fromkeys(ROW_FIELDS),
    **dict.fromkeys(VALUE_FIELDS, 8192),
    "recording": "a.swt",
    "recording_sha256": "0" * 64,
    "table": "go",
    "table_hash": GO["hash"],
    "classes": 67,
    "at": "peak",
    "mean_held_over_requested": 1.5,
    "seconds": 0.25,
    "worker": "host:7",
}
RUNS: dict[str, Any] = {
    "kind": "spanwise bench",
    "format": 1,
    **BUILD,
    "machine": "Linux x86_64",
    "allocators": {"glibc": ["libc.so.6", "0" * 64]},
}
RUN: dict[str, Any] = {
    "kind": "row",
    **dict.fromkeys(RUN_FIELDS, 4096),
    **{"program": "ls", "input": "", "case_hash": "0" * 16, "allocator": "glibc"},
    **{
        "library_sha256": "0" * 64,
        "output_sha256": "0" * 64,
        "round": 0,
        "worker": "host:7",
        "error": None,
    },
}


def written(path: Path, *lines: dict[str, Any]) -> Path:
    """The lines, and a whole one after them, so that none of them is the last."""
    path.write_text("".join(json.dumps(one) + "\n" for one in (*lines, lines[-1])))
    return path


def refused(path: Path, kind: Any) -> str:
    with pytest.raises(sw.InvalidError) as caught:
        kind.open(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_whole_rows_are_read(tmp_path: Path) -> None:
    found = sw.Sweep.open(written(tmp_path / "s.jsonl", HEAD, ROW))
    assert found.best() == sw.SizeClassTable.go() and found.array["held_bytes"][0] == 8192
    failed = {**ROW, **dict.fromkeys(VALUE_FIELDS), "table_hash": None, "error": "no such table"}
    assert sw.Sweep.open(written(tmp_path / "s.jsonl", HEAD, failed)).failures
    assert sw.BenchResult.open(written(tmp_path / "f.jsonl", RUNS, RUN))[0]["rss_bytes"] == 4096


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("held_bytes", "8192", "held_bytes must be an integer from 0 to 2^63 - 1 or null, not '81"),
        ("held_bytes", -1, "held_bytes must be an integer from 0"),
        ("held_bytes", 1 << 64, "held_bytes must be an integer from 0"),
        ("held_bytes", 1.5, "held_bytes must be an integer from 0"),
        ("held_bytes", True, "held_bytes must be an integer from 0"),
        ("held_bytes", None, "held_bytes is null in a row without an error"),
        ("failed", {}, "failed must be an integer from 0 to 2^63 - 1 or null, not an object"),
        ("mean_held_over_requested", float("inf"), "must be a number or null, not inf"),
        ("seconds", 10**400, "seconds must be a number or null, not one of more than 64 bits"),
        ("table_hash", "go", "table_hash must be 16 hexadecimal digits or null, not 'go'"),
        ("table_hash", None, "table_hash is null in a row without an error"),
        ("recording", ["a"], "recording must be a text, not a list of others"),
        ("recording_sha256", [], "recording_sha256 must be a text or null"),
        ("at", {}, "at must be a text or a number"),
        ("classes", "67", "classes must be an integer"),
        ("error", 7, "error must be a text or null, not 7"),
    ],
)
def test_fields_of_rows(name: str, value: Any, said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", HEAD, {**ROW, name: value})
    found = refused(path, sw.Sweep)
    assert found.startswith("line 2: ") and said in found


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("tables", [{}], "tables must be a list of tables, not a list of others"),
        ("tables", [{**GO, "classes": [[8, 1]]}], "tables must be a list of tables"),
        ("tables", [{**GO, "page_bytes": "8192"}], "tables must be a list of tables"),
        ("tables", [{**GO, "name": None}], "tables must be a list of tables"),
        ("recordings", "a.swt", "recordings must be a list of objects, not 'a.swt'"),
        ("versions", "0.3.0", "versions must be an object with the version of spanwise, not"),
        ("versions", {"python": "3.11"}, "versions must be an object with the version of"),
        ("options", [], "options must be an object"),
        ("commit", 7, "commit must be a text or null, not 7"),
        ("started", None, "started must be a text, not null"),
    ],
)
def test_fields_of_headers(name: str, value: Any, said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", {**HEAD, name: value}, ROW)
    found = refused(path, sw.Sweep)
    assert found.startswith("line 1") and said in found


def test_a_row_of_a_table_that_no_header_has(tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", HEAD, {**ROW, "table_hash": "0" * 16})
    assert refused(path, sw.Sweep).startswith("its header lacks the table 0000000000000000 of a")


def test_a_table_that_is_none(tmp_path: Path) -> None:
    """Tables are made on demand; the error names the file."""
    path = written(tmp_path / "s.jsonl", {**HEAD, "tables": [{**GO, "classes": [[7, 1, 0]]}]}, ROW)
    found = sw.Sweep.open(path)
    with pytest.raises(sw.InvalidError) as caught:
        found.best()
    assert str(caught.value).startswith(f"{path}: a table of it: class 1 (7 bytes): size must be")


@pytest.mark.parametrize(
    ("name", "value"),
    [("rss_bytes", "4096"), ("round", None), ("program", 7), ("error", []), ("cpu_ns", 0.5)],
)
def test_fields_of_runs(name: str, value: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "f.jsonl", RUNS, {**RUN, name: value})
    assert refused(path, sw.BenchResult).startswith(f"line 2: {name} must be ")


def test_a_line_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines = [json.dumps(HEAD), "[" * 200_000, json.dumps(ROW)]
    path.write_text("\n".join(lines) + "\n")
    assert "(is nested too deeply); remove it" in refused(path, sw.Sweep)
