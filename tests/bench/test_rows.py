# SPDX-License-Identifier: Apache-2.0
"""bench/targets.toml: what is read, what is refused, and that its rows name what exists."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver.rows import choose, load
from driver.tools import BenchError

from tests.bench.tools import BENCH

TARGETS = load(BENCH / "targets.toml")
GOOD = 'repetitions = 3\n[[rows]]\nname = "a"\nours = "inline pair/16"\npeers = "linked pair/16"\n'


def read(tmp_path: Path, text: str) -> str:
    path = tmp_path / "targets.toml"
    path.write_text(text)
    with pytest.raises(BenchError) as caught:
        load(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rows]", "not TOML"),
        ("[[rows]]", "repetitions is None; use a whole number, 1 or more"),
        ("repetitions = true\n", "repetitions is True; use a whole number, 1 or more"),
        ("repetitions = 2.5\n", "repetitions is 2.5; use a whole number, 1 or more"),
        ("repetitions = 3\n", "has no rows"),
        (GOOD + "target = 0\n", "row 1 (a): target is 0; use a number above 0"),
        (GOOD + "target = true\n", "row 1 (a): target is True; use a number above 0"),
        (GOOD + "each = [16]\n", "row 1 (a): each is [16]; use a text or a list of texts"),
        (GOOD + 'each = ["x", "y"]\n', "row 1 (a): an earlier row has the same name"),
        (GOOD + "speed = 3\n", "row 1 (a): unknown key 'speed'; known are "),
        (GOOD + "unit = 3\n", "row 1 (a): unit is 3; use text"),
        (GOOD + "needs = [3]\n", "row 1 (a): needs is [3]; use a text or a list of texts"),
        (GOOD + 'needs = "go >= 1"\n', "row 1 (a): 'go >= 1' is not NAME or NAME VERSION"),
        (GOOD + "limit = 1\n", "row 1 (a): give either peers (and a target) or a limit"),
        (GOOD + "rank = 1\n", "row 1 (a): rank belongs to a row with rows"),
        (GOOD + 'rows = "b"\n', "row 1 (a): give either ours (a measured row) or rows"),
        (GOOD + GOOD.partition("\n")[2], "row 2 (a): an earlier row has the same name"),
        ('repetitions = 3\n[[rows]]\nours = "inline x"\nlimit = 1\n', "row 1 (?): name is missing"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, said: str) -> None:
    assert read(tmp_path, text).startswith(said)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"none\.toml: No such file or directory"):
        load(tmp_path / "none.toml")


def test_each_makes_one_row_per_word(tmp_path: Path) -> None:
    path = tmp_path / "targets.toml"
    path.write_text(GOOD.replace('"a"', '"a {}"').replace("16", "{}") + 'each = ["16", "64"]\n')
    rows = load(path).rows
    assert [row.name for row in rows] == ["a 16", "a 64"]
    assert [(row.ours, row.peers) for row in rows] == [
        ("inline pair/16", ("linked pair/16",)),
        ("inline pair/64", ("linked pair/64",)),
    ]


def test_rows_are_chosen_by_pattern_or_by_text() -> None:
    names = [row.name for row in choose(TARGETS.rows, ["range find*"])]
    assert names == ["range find, single tree", "range find, two trees"]
    assert [row.name for row in choose(TARGETS.rows, ["buddy"])] == ["range buddy pair"]
    with pytest.raises(BenchError, match="--rows 'nothing' matches none of "):
        choose(TARGETS.rows, ["nothing"])
