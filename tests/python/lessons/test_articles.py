# SPDX-License-Identifier: Apache-2.0
"""Each claim of the articles has a verdict and stands in a notebook, or is listed as open."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.lessons import articles
from spanwise.lessons.articles import VERDICTS, Claim, claims, open_keys, verdicts

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
OPEN_AT_MOST = 0
"""Claims without a verdict: each has one. Never raise it."""


def test_a_claim_has_one_name() -> None:
    names = Counter(claim.key for claim in claims())
    assert len(names) == len(claims()) == 261


def test_each_claim_has_a_verdict_or_is_open() -> None:
    without = {claim.key for claim in claims() if claim.verdict is None}
    assert without == open_keys()
    assert len(without) <= OPEN_AT_MOST


def test_verdicts_have_a_reason_and_a_notebook_that_shows_them() -> None:
    for claim in claims():
        if claim.verdict is not None:
            assert claim.verdict in VERDICTS and claim.reason.endswith(".")
            (source,) = NOTEBOOKS.glob(f"{claim.notebook}-*.ipynb")
            cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
            code = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
            assert f'verdicts("{claim.notebook}"' in code.replace("\n    ", "")


def test_a_reproduced_figure_is_the_figure() -> None:
    """What was reproduced is equal; what differs says how; a statement needs no figure."""
    for claim in claims():
        if claim.verdict == "reproduced" and claim.value is not None:
            assert claim.ours == claim.value
        if claim.verdict == "different":
            assert claim.ours is not None and claim.ours != claim.value


def test_verdicts_are_for_claims_that_there_are() -> None:
    """No group names a claim twice, or one that no article makes."""
    groups = articles._read("verdicts.json")["groups"]
    given = [(r["source"], r["case"], r["unit"]) for group in groups for r in group["rows"]]
    assert len(set(given)) == len(given)
    assert set(given) <= {claim.key for claim in claims()}
    assert not set(given) & open_keys()


def test_a_count_that_is_not_the_verdicts_is_refused() -> None:
    said = verdicts("04", {("[5]int64", "B/op"): 48})
    assert "[5]int64: 48 B/op; here 48" in said
    with pytest.raises(sw.InvalidError, match="counted 47"):
        verdicts("04", {("[5]int64", "B/op"): 47})
    with pytest.raises(sw.InvalidError, match="no claim of notebook"):
        verdicts("04", {("[6]int64", "B/op"): 48})
    with pytest.raises(sw.InvalidError, match="no claim stands"):
        verdicts("99", {})


def test_a_claim_by_hand() -> None:
    (one,) = (c for c in claims() if c.case == "make 32769")
    assert one == Claim(
        "go-101-memory-blocks",
        "4-core laptop, Go 1.20",
        "make 32769",
        40960,
        "B/op",
        "reproduced",
        40960,
        "Counted under Go's size classes, to the byte.",
        "04",
    )
