# SPDX-License-Identifier: Apache-2.0
"""The plain answer: do size classes matter?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from spanwise import SizeClassTable, _format
from spanwise.measure.field_result import Field
from spanwise.optimizer.search import FAMILIES
from spanwise.optimizer.trial import CAUSES
from spanwise.results.intervals import interval_of

from studies.tables_save.saved import Program, limit_share, saved_of, share, signed, split_share
from studies.tables_save.simulated import COUNTS

LOSS_MAX = 1.0
"""The most that the upper end of a loss's interval may be, percent of peak RSS."""

MATTERS = 1.0
"""Percent of resident bytes from which on a saving is said to matter."""


def answer(found: Field, programs: Sequence[Program]) -> list[str]:
    """Do size classes matter?"""
    causes = {
        cause: statistics.mean(split_share(one, 1, cause) for one in programs) for cause in CAUSES
    }
    classes = causes["classes"]
    matter = f"Size classes {'do' if abs(classes) >= MATTERS else 'hardly'} matter"
    split = ", ".join(f"{cause} {value:+.1f} %" for cause, value in causes.items())
    return [
        f"**{matter}.** {_measured(found, programs)}",
        "",
        f"Of the peak resident of the heap, simulated, the mean saving is split into {split}: what"
        " the boundaries of classes save, longer and shorter spans, spans that a few objects keep"
        " which outlived their neighbours, what caches keep, metadata, and the rest, which no table"
        " decides.",
        "",
        _other_tables(programs),
    ]


def _other_tables(programs: Sequence[Program]) -> str:
    """What Go's table, the families and more or fewer classes save, simulated, held out."""
    mean = {
        name: statistics.mean(share(one, 1, name) for one in programs)
        for name in programs[0].simulated.resident
    }
    families = ", ".join(f"{name} {signed(mean[name])}" for name in FAMILIES)
    best = ", ".join(f"{count}: {signed(mean[f'best {count}'])}" for count in COUNTS)
    limit = statistics.mean(map(limit_share, programs))
    return (
        "Beside the table c16, of the heap's peak resident on the input held out, simulated, mean"
        f" of the programs: Go's {len(SizeClassTable.named('go'))} classes save"
        f" {signed(mean['go'])}; the families {families}; the best table of at most so many"
        f" classes, fitted to the other input, {best}. Perfect packing would save {signed(limit)}."
    )


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 90 % interval by the bootstrap.

    Of 10,000 samples that are drawn with replacement the means of the middle 90 % (B. Efron,
    "Bootstrap methods: another look at the jackknife", Annals of Statistics 7(1), 1979).
    """
    drawn = np.random.default_rng(1).choice(np.array(values), (10_000, len(values)))
    low, high = np.quantile(drawn.mean(axis=1), (0.05, 0.95))
    return statistics.mean(values), float(low), float(high)


def _measured(found: Field, programs: Sequence[Program]) -> str:
    """What was measured on the input that was held out; a table that holds must be built for it."""
    counted = [one for one in programs if one.fit.folder is not None or not one.fit.holds]
    if not counted:
        return "Nothing was built, so nothing is measured."
    every = [saved_of(found, one, 1)[0] for one in counted]
    saved, (mean, low, high) = interval_of(every), mean_interval(every)
    stays = sum(not one.fit.holds for one in counted)
    losers = [one.name for one in counted if -saved_of(found, one, 1)[1] > LOSS_MAX]
    who = "each program" if not losers else f"all but {', '.join(losers)}"
    number = _format.plural(len(counted), "program")
    return (
        "On the input that was held out, what `optimize` chose saves"
        f" {saved.median:.1f} % of the peak RSS (median of {number};"
        f" {saved.low:.1f} to {saved.high:.1f} %, the {100 * saved.sure:.0f} % interval), and"
        f" {mean:.1f} % on average ({low:.1f} to {high:.1f} %, the 90 % interval of the mean). In"
        f" {stays or 'none'} of them c16 stays, which counts as 0. The upper end of the interval"
        f" of the loss is at most {LOSS_MAX:.0f} % of peak RSS for {who}."
    )
