# SPDX-License-Identifier: Apache-2.0
"""The C optimiser (include/spanwise/optimize.h) from Python: options in, tables out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise._owner import Owned
from spanwise.optimizer.profile import SizeProfile, pointer_to
from spanwise.tables.table import SizeClassTable, rebuild

_UINT32 = (1 << 32) - 1
SPAN_BYTES_MAX = int(lib.SW_TABLE_SPAN_BYTES_MAX)
SLOTS_MAX = 8192
NO_BOUND = 100
"""The waste in percent of a slot that every class may have."""


@dataclass(frozen=True)
class Rules:
    """What the optimiser may choose from.

    Attributes:
        classes: at most so many.
        align: 8, or 16 for every class of 16 bytes and more.
        largest_bytes: the largest class, bytes.
        page_bytes: of the table.
        pages: most pages of a span.
        partial: spans charged for each class, as a part of one: 0.5 is half a span empty.
        prior: part of the weight that is spread evenly over the logarithm of the size, so that
            sizes which were never asked for are served as well.
        waste_percent: the most that a class may waste on the smallest request that it serves, seen
            or not, in percent of its slot, unless alignment forces more; 100: no bound.
        narrow: only spans that Go's 32-bit division serves.
    """

    classes: int
    align: int
    largest_bytes: int
    page_bytes: int
    pages: int
    partial: float
    prior: float
    waste_percent: int = 100
    narrow: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For table files."""
        return asdict(self)


class Solver:
    """The best tables of 1, 2, ... classes for a profile under rules.

    Raises:
        InvalidError: the rules can not be met, or the profile is empty.
    """

    def __init__(self, profile: SizeProfile, rules: Rules, span_weight: float) -> None:
        self.rules = rules
        options = ffi.new("sw_optimize_options *")
        lib.sw_optimize_options_init(options)
        options.classes = _lib.as_index(rules.classes, "classes", _UINT32)
        options.align = _lib.as_index(rules.align, "align", _UINT32)
        options.page_bytes = _lib.as_index(rules.page_bytes, "page_bytes", _UINT32)
        options.pages_max = _lib.as_index(rules.pages, "pages", _UINT32)
        options.max_bytes = _lib.as_index(rules.largest_bytes, "largest_bytes", _UINT32)
        options.narrow = int(rules.narrow)
        options.span_charge = span_weight * rules.partial
        weights = np.ascontiguousarray(_with_prior(profile, rules))
        out = ffi.new("sw_optimizer **")
        bound = _lib.as_index(rules.waste_percent, "waste_percent", _UINT32)
        if not 1 <= bound <= NO_BOUND:
            raise errors.InvalidError(
                f"waste_percent {bound}: must be 1 to 100; 100 bounds nothing"
            )
        check(lib.sw_optimizer_create_bounded(options, bound, pointer_to(weights), out))
        self._owned = Owned(out[0], lib.sw_optimizer_destroy)
        self.fewest = fewest_classes(rules)

    def table(self, classes: int, name: str, source: str, span_scale: int = 1) -> SizeClassTable:
        """The best table of at most so many classes.

        Args:
            classes: at most those of the rules count.
            name: of the table.
            source: where it comes from, for the table file.
            span_scale: every span is so many times as long, where the limits of tables allow.
        """
        specs = ffi.new("sw_class_spec[]", classes)
        count, result = ffi.new("uint32_t *"), ffi.new("sw_optimize_result *")
        check(lib.sw_optimizer_table(self._owned.c, classes, specs, count, result))
        page = self.rules.page_bytes
        pairs = [
            (int(s.size_bytes), _scaled(int(s.size_bytes), int(s.pages), page, span_scale))
            for s in specs[0 : count[0]]
        ]
        return rebuild(pairs, name, page, source, self.rules.to_dict())


def may_follow(rules: Rules, below: int, size: int) -> bool:
    """Whether a class of `size` bytes may follow one of `below` bytes (0: none) under the bound."""
    step = 8 if size <= rules.align else rules.align
    waste = size - below - 1
    return size - below <= step or 100 * waste <= rules.waste_percent * size


def fewest_classes(rules: Rules) -> int:
    """The fewest classes that keep the bound: each is as far above the last one as it may be."""
    sizes = [*range(8, rules.align, 8), *range(rules.align, rules.largest_bytes + 1, rules.align)]
    below = last = count = 0
    for size in sizes:
        if not may_follow(rules, below, size):
            below, count = last, count + 1
        last = size
    return count + 1


def _scaled(size: int, pages: int, page_bytes: int, scale: int) -> int:
    """The pages times the largest factor, at most the scale, that the limits of tables allow."""
    most = min(SPAN_BYTES_MAX, SLOTS_MAX * size) // page_bytes
    return pages * max(1, min(scale, most // pages))


def _with_prior(profile: SizeProfile, rules: Rules) -> NDArray[np.float64]:
    """The weights, a part of them spread so that each doubling of the size weighs equally much."""
    if not 0 <= rules.prior < 1:
        raise errors.InvalidError(f"prior {rules.prior}: must be at least 0 and below 1")
    if rules.prior == 0:
        return profile.weights
    spread = spread_weights(profile, rules.largest_bytes)
    mixed: NDArray[np.float64] = (1 - rules.prior) * profile.weights + rules.prior * spread
    return mixed


def spread_weights(profile: SizeProfile, largest_bytes: int) -> NDArray[np.float64]:
    """Weights of every size up to the largest, each doubling of the size as many bytes.

    They request as many bytes as the profile does of these sizes.
    """
    largest = min(largest_bytes, len(profile.weights) - 1)
    spread = np.zeros(len(profile.weights))
    spread[1 : largest + 1] = 1.0 / np.arange(1, largest + 1) ** 2
    sizes = np.arange(len(spread))
    served = float(profile.weights[: largest + 1] @ sizes[: largest + 1])
    spread *= served / float(spread @ sizes)
    return spread
