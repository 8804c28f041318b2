# SPDX-License-Identifier: Apache-2.0
"""Every back end with every placement beside a naive map of bytes: offsets, holes, refusals.

The form here takes a few seconds; `./dev stress python_models` makes ten million steps.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import spanwise as sw
from hypothesis import given, settings
from hypothesis import strategies as st
from spanwise.ranges.allocators import BACKENDS

from tests.python.ranges import long_models
from tests.python.ranges.models import (
    BAD,
    BUDDY_SIZES,
    PLACED,
    STEPS,
    Step,
    pairs,
    run_buddy,
    run_ranges,
)

EXAMPLES = 30


@pytest.mark.parametrize(("backend", "placement"), PLACED)
@settings(max_examples=EXAMPLES, deadline=None)
@given(STEPS)
def test_a_map_of_bytes_does_the_same(backend: str, placement: str, steps: list[Step]) -> None:
    run_ranges(backend, placement, steps)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(st.sampled_from(BUDDY_SIZES), st.integers(0, 2), STEPS)
def test_a_buddy_gives_aligned_blocks_and_refuses_none_that_is_there(
    size: int, unit_order: int, steps: list[Step]
) -> None:
    run_buddy(size, unit_order, steps)


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("name", [*BACKENDS, "buddy"])
def test_no_argument_outside_changes_anything(name: str, locked: bool) -> None:
    """0, negative, past the end, overflow, and what is no number, in every call that takes one."""
    ranges: sw.RangeAllocator | sw.BuddyAllocator
    if name == "buddy":
        ranges = sw.BuddyAllocator(128, unit=16, locked=locked)
    else:
        ranges = sw.RangeAllocator(128, backend=name, locked=locked)
    with ranges:
        assert ranges.alloc(32) == 0
        before = pairs(ranges)
        for wrong in (0, -1, -(1 << 70), 1 << 63, 1 << 64, 1 << 200):
            for call in (ranges.alloc, ranges.find):
                with pytest.raises(sw.InvalidError):
                    call(wrong)
            with pytest.raises(sw.InvalidError), ranges.scope(wrong):
                pass
            with pytest.raises(BAD):
                ranges.free(0, wrong)
        for start, size in ((-1, 8), (128, 1), (120, 9), (1 << 62, 1), (1 << 64, 1), (64, 64)):
            with pytest.raises(BAD):
                ranges.free(start, size)
        for odd in (1.0, "1", None, True):
            for one in (ranges.alloc, ranges.find, ranges.scope):
                with pytest.raises(TypeError):
                    one(odd)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                ranges.free(odd, 1)  # type: ignore[arg-type]
        with pytest.raises(sw.OutOfMemoryError):
            ranges.alloc(1 << 62)
        assert ranges.find(129) is None
        assert pairs(ranges) == before
        ranges.verify()


def test_the_long_form_counts_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--state", str(tmp_path / "models.json"), "--examples", "1", "--operations"]
    assert long_models.main([*words, "1"]) == 0
    first = json.loads((tmp_path / "models.json").read_text(encoding="utf-8"))
    assert first["batches"] == 1 and first["operations"] >= 1
    assert long_models.main([*words, "1"]) == 0  # done already
    assert json.loads((tmp_path / "models.json").read_text(encoding="utf-8")) == first
    assert long_models.main([*words, str(first["operations"] + 1)]) == 0
    more = json.loads((tmp_path / "models.json").read_text(encoding="utf-8"))
    assert more["batches"] == 2 and more["operations"] > first["operations"]
    assert f"{more['operations']:,} steps in 2 batches" in capsys.readouterr().out
