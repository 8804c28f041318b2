# SPDX-License-Identifier: Apache-2.0
"""Samples as whole objects: by hand, and for any samples what must hold of sizes and sums."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from spanwise.recordings.profiles import Call, Sample, objects_of, scaled, shared_out

MAIN = (Call("main", "a.c", 1),)
OTHER = (Call("other", "a.c", 2),)


def test_bytes_over_the_size_by_hand() -> None:
    """Two stacks with 1.6 and 1.8 objects of 100 bytes have 3.4 together: the second has two."""
    found = objects_of([Sample(1, 160, 100, MAIN), Sample(1, 180, 100, OTHER)])
    assert found.stacks == [(), MAIN, OTHER]
    assert found.counts == {(100, 1): 1, (100, 2): 2}
    assert (found.file_bytes, found.total_bytes, found.uncounted_bytes) == (340, 300, 0)


def test_a_size_that_is_not_known_by_hand() -> None:
    """Seven bytes for three objects are 2, 2 and 3; bytes without a count are one object."""
    found = objects_of([Sample(3, 7), Sample(0, 1 << 29), Sample(2, 0), Sample(5, 0, 48)])
    assert found.counts == {(2, 0): 2, (3, 0): 1, (1 << 29, 0): 1, (0, 0): 7}
    assert found.file_bytes == found.total_bytes == 7 + (1 << 29)
    assert found.uncounted_bytes == 1 << 29


def test_sizes_and_no_count() -> None:
    """The label of a size gives a count even where the file has none."""
    assert objects_of([Sample(0, 960, 96)]).counts == {(96, 0): 10}
    assert objects_of([Sample(1, 40, 96)]).counts == {}  # less than half an object


def test_half_an_object_is_one() -> None:
    assert shared_out({4: 50}, 100) == {4: 1}
    assert shared_out({4: 49}, 100) == {}
    assert shared_out({7: 150, 8: 150, 9: 150}, 100) == {7: 2, 8: 2, 9: 1}  # 4.5, which is 5


samples = st.builds(
    Sample,
    st.integers(0, 9),
    st.integers(0, 10**6),
    st.one_of(st.none(), st.integers(1, 5000)),
    st.sampled_from([(), MAIN, OTHER, MAIN + OTHER]),
)


@given(st.lists(samples, max_size=40))
def test_sums_differ_by_half_an_object_per_size(given_samples: list[Sample]) -> None:
    found = objects_of(given_samples)
    sized = [one for one in given_samples if one.size is not None and one.total_bytes]
    sizes = {one.size for one in sized}
    assert found.file_bytes == sum(one.total_bytes for one in given_samples)
    assert abs(found.file_bytes - found.total_bytes) * 2 <= sum(size or 0 for size in sizes)
    assert all(count > 0 for count in found.counts.values())
    if len(sized) == len(given_samples):
        exact: Counter[tuple[int | None, int]] = Counter()
        for one in sized:
            exact[one.size, found.stacks.index(one.stack)] += one.total_bytes
        for (size, stack), total in exact.items():
            assert size is not None
            assert abs(found.counts.get((size, stack), 0) - Fraction(total, size)) < 1


@given(st.dictionaries(st.integers(0, 50), st.integers(1, 10**12), min_size=1), st.integers(1, 99))
def test_scaled_counts_have_the_wanted_sum(counts: dict[int, int], most: int) -> None:
    total = sum(counts.values())
    found = scaled(counts, most)
    assert sum(found.values()) == most
    for key, count in counts.items():
        assert abs(found.get(key, 0) - Fraction(count * most, total)) < 1
