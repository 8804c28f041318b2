# SPDX-License-Identifier: Apache-2.0
"""Table files and options: what is refused, and in which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spanwise_sizeclasses import cli
from spanwise_sizeclasses.families import make_table
from spanwise_sizeclasses.model import Parameters
from spanwise_sizeclasses.tablefile import dump_table, load_table

from tests.generator.tools import C16, FINE, GO, run_script, with_classes

RISING = "size must be above the 16 bytes of class 1; list the classes in rising order"
TOO_LARGE = "size must be at most 262144; leave it out, larger requests get whole pages"
NAME_RULE = "must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter"
PAGE_RULE = "must be a power of two from 4096 to 65536"
KNOWN = "known are name, page_bytes, classes, parameters, provenance"
BAD_TABLES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "line 1, column 1: not valid JSON (expecting value); fix it there"),
    "cut": (
        '{"name": "x",\n "page',
        "line 2, column 2: not valid JSON (unterminated string starting at); fix it there",
    ),
    "not utf-8": (b'{"name": "\xff"}', "offset 10: not UTF-8; save it as UTF-8"),
    "list": ("[]", "top level: must be an object, not a list"),
    "long number": ("1" * 5000, "a number or a nesting is too long to be of a table"),
    "nan": (with_classes((float("nan"), 1)), "NaN is not valid JSON; give a number"),
    "no classes key": (
        '{"name": "x", "page_bytes": 8192}',
        "top level: key 'classes' is missing; add it",
    ),
    "unknown key": (with_classes((16, 1), nmae=1), f"top level: unknown key 'nmae'; {KNOWN}"),
    "twice": (
        '{"name": "x", "name": "y", "page_bytes": 8192, "classes": []}',
        "key 'name' occurs twice in one object; keep one",
    ),
    "name type": (with_classes((16, 1), name=7), "name must be a string, not 7"),
    "name odd": (with_classes((16, 1), name="a b"), f"name 'a b': {NAME_RULE}"),
    "name long": (with_classes((16, 1), name="a" * 99), f"name '{'a' * 64}': {NAME_RULE}"),
    "name taken": (
        with_classes((16, 1), name="c16"),
        "name 'c16' belongs to a built-in table with other classes; rename yours",
    ),
    "page float": (
        with_classes((16, 1), page_bytes=8192.0),
        "page_bytes must be an integer, not 8192.0",
    ),
    "page odd": (with_classes((16, 1), page_bytes=12288), f"page_bytes 12288: {PAGE_RULE}"),
    "page negative": (
        with_classes((16, 1), page_bytes=-8192),
        "page_bytes must be from 0 to 4294967295, not -8192",
    ),
    "classes type": (with_classes(classes={}), "classes must be a list, not an object"),
    "classes none": (with_classes(), "0 classes: must be 1 to 255"),
    "parameters": (
        with_classes((16, 1), parameters=[]),
        "parameters must be an object, not a list",
    ),
    "provenance": (
        with_classes((16, 1), provenance=3),
        "provenance must be an object or a string, not 3",
    ),
    "class type": (with_classes(classes=[16]), "class 1: must be an object, not 16"),
    "class key missing": (
        with_classes(classes=[{"size": 16}]),
        "class 1: key 'pages' is missing; add it",
    ),
    "class key unknown": (
        with_classes(classes=[{"size": 16, "pages": 1, "align": 16}]),
        "class 1: unknown key 'align'; known are size, pages, first_pages",
    ),
    "size float": (with_classes((16.5, 1)), "class 1: size must be an integer, not 16.5"),
    "size negative": (
        with_classes((-16, 1)),
        "class 1: size must be from 0 to 4294967295, not -16",
    ),
    "size huge": (
        with_classes((1 << 70, 1)),
        "class 1: size must be from 0 to 4294967295, not a number of more than 64 bits",
    ),
    "size zero": (with_classes((0, 1)), "class 1 (0 bytes): size must be at least 8"),
    "size odd": (
        with_classes((16, 1), (20, 1)),
        "class 2 (20 bytes): size must be a multiple of 8; use 24",
    ),
    "size falls": (with_classes((16, 1), (8, 1)), f"class 2 (8 bytes): {RISING}"),
    "size large": (with_classes((262152, 40)), f"class 1 (262152 bytes): {TOO_LARGE}"),
    "pages zero": (with_classes((16, 0)), "class 1 (16 bytes): pages must be at least 1"),
    "no fit": (
        with_classes((16, 1), (16392, 2)),
        "class 2 (16392 bytes): does not fit its span of 16384 bytes; use 3 pages",
    ),
    "span": (
        with_classes((16, 513)),
        "class 1 (16 bytes): span of 4202496 bytes is above 4194304; use at most 512 pages",
    ),
    "first odd": (
        with_classes(classes=[{"size": 16, "pages": 6, "first_pages": 2}]),
        "class 1 (16 bytes): first_pages 2: 6 pages must be a power of two times as many",
    ),
    "no fit in the first": (
        with_classes(classes=[{"size": 10240, "pages": 4, "first_pages": 1}]),
        "class 1 (10240 bytes): does not fit its first span of 8192 bytes; use 2 pages",
    ),
    "long file": (" " * ((1 << 20) + 1), "longer than 1048576 bytes; a table file is not"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_table_file(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = BAD_TABLES[case]
    path = tmp_path / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert cli.main(["--table", str(path), "-o", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"sizeclasses: {path}: {message}\n"
    assert captured.out == ""
    assert not (tmp_path / "out").exists()


def test_first_pages_are_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "grows.json"
    classes = [{"size": 16, "pages": 4, "first_pages": 1}, {"size": 32, "pages": 2}]
    path.write_text(with_classes(classes=classes))
    table = load_table(str(path))
    assert [(c.pages, c.shortest) for c in table.classes] == [(4, 1), (2, 2)]
    assert json.loads(dump_table(table))["classes"] == classes
    classes[1]["first_pages"] = 2  # as long as all others: the same table
    path.write_text(with_classes(classes=classes))
    assert load_table(str(path)).hash == table.hash
    del classes[0]["first_pages"]
    path.write_text(with_classes(classes=classes))
    assert load_table(str(path)).hash != table.hash


def test_unreadable_table_files(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    result = run_script("--table", str(missing))
    reason = "cannot be read (No such file or directory); give go, c16 or a table file"
    assert (result.returncode, result.stderr) == (2, f"sizeclasses: {missing}: {reason}\n")
    (tmp_path / "dir.json").mkdir()
    result = run_script("--table", str(tmp_path / "dir.json"))
    assert "cannot be read (Is a directory)" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--table", "gone"],
            "table 'gone' is unknown; give go, c16, jemalloc, tcmalloc, mimalloc, pow2,"
            " fibonacci, geometric-R or a file FILE.json",
        ),
        (["--page-bytes", "5000"], f"page_bytes 5000: {PAGE_RULE}"),
        (["--max-size", "3000"], "max_size 3000: must be a power of two from 16 to 262144"),
        (["--max-size", "0"], "max_size 0: must be a power of two from 16 to 262144"),
        (["--tail-limit", "1"], "tail_limit 1: must be at least 0 and below 1"),
        (["--span-slots", "0"], "span_slots 0: must be from 1 to 8192"),
        (["--span-slots", "8193"], "span_slots 8193: must be from 1 to 8192"),
        (
            ["--max-size", "262144", "--tail-limit", "0"],
            "size 131328: no span up to 4194304 bytes wastes at most 0 in its tail;"
            " raise the tail limit",
        ),
        (["--check", "--table", "go"], "--check takes no --table; leave it out"),
        (["--list", "--page-bytes", "4096"], "--list takes no --page-bytes; leave it out"),
        (["--write", "--cutoff", "64"], "--write takes no --cutoff; leave it out"),
        (["-o", "x", "--format", "md"], "-o writes C, not --format md; leave one out"),
    ],
)
def test_bad_options(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == 2
    assert capsys.readouterr().err == f"sizeclasses: {message}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--cutoff", "1025"], "argument --cutoff: '1025' is not a number of bytes from 0 to 1024"),
        (["--cutoff", "-1"], "argument --cutoff: '-1' is not a number of bytes from 0 to 1024"),
        (
            ["--tail-limit", "1/0"],
            "argument --tail-limit: '1/0' is not a fraction such as 1/8 or 0.125",
        ),
        (["--span-slots", "-1"], "argument --span-slots: '-1' is not a number of slots"),
        (["--page-bytes", "8k"], "argument --page-bytes: '8k' is not a number of bytes"),
        (["--growing", "maybe"], "argument --growing: 'maybe' is neither yes nor no"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_bad_usage(args: list[str], message: str) -> None:
    result = run_script(*args)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"sizeclasses: {message}; see --help\n"


def test_parameters_do_not_shape_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(FINE))
    assert cli.main(["--table", str(path), "--align", "16"]) == 2
    expected = f"sizeclasses: {path}: --align shapes go and c16 only; leave it out\n"
    assert capsys.readouterr().err == expected


def test_table_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for table in (GO, C16, make_table(Parameters("16", page_bytes=4096))):
        path.write_text(dump_table(table))
        again = load_table(str(path))
        assert (again.name, again.classes, again.hash) == (table.name, table.classes, table.hash)
    path.write_text(dump_table(GO))
    assert load_table(str(path)).has_tiny  # it is the built-in table, not a copy of its numbers


def test_unwritable_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cli.main(["-o", str(blocked)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"sizeclasses: {blocked}/table_go.c: cannot be written (")
    assert error.endswith("); choose another directory\n")
    full = tmp_path / "full"
    full.mkdir()
    (full / "paths_go.h").mkdir()  # the third of four outputs can not replace a directory
    assert cli.main(["-o", str(full)]) == 2
    assert not list(full.glob(".*")), "temporary files are left"
