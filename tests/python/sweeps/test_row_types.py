# SPDX-License-Identifier: Apache-2.0
"""Row files with wrong fields: the error names the line and the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.measure.bench_rounds import ROW_FIELDS as RUN_FIELDS
from spanwise.sweeps.tasks import ROW_FIELDS, VALUE_FIELDS, table_spec

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
    assert refused(path, sw.Sweep).startswith("no header has the table 0000000000000000 of a row")


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
