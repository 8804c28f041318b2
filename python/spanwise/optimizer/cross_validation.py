# SPDX-License-Identifier: Apache-2.0
"""Cross-validation: the saving of a table on parts that it was not chosen on.

Method: M. Stone, "Cross-validatory choice and assessment of statistical predictions", Journal of
the Royal Statistical Society B 36, 1974. Each part is held out in turn. The whole choice (search,
evaluation, verdict) is made on the others and evaluated on that part. The interval is that of a
median by order statistics: it spans all n values with a probability of 1 - 2^(1 - n)
(H. A. David and H. N. Nagaraja, "Order statistics", 2003, 7.1).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from spanwise import _format, errors
from spanwise.optimizer.scores import Scores
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import Step, no_step
from spanwise.results.rows import Rows, as_rows
from spanwise.tables.table import SizeClassTable

FOLD_DTYPE = np.dtype(
    [
        ("fold", np.uint32),
        ("events", np.uint64),
        ("stock_bytes", np.uint64),
        ("chosen_bytes", np.uint64),
        ("saved_bytes", np.int64),
        ("saved_percent", np.float64),
        ("stock_chosen", np.bool_),
    ]
)
"""A held-out part: its operations, the peak resident bytes under the stock table and under the
table that was chosen without the part, the difference, whether the stock table was chosen."""

PARTS_MAX = 5
"""The parts into which several recordings are grouped by default: the range of five values is a
94 % interval of their median."""

Choice = tuple[SizeClassTable, SizeClassTable]
"""The best stock table for some recordings, and the table to use, which may be the same."""


def leave_out(
    parts: Sequence[Sequence[Recording]],
    choose: Callable[[list[Recording]], Choice | None],
    progress: Step = no_step,
) -> Rows | None:
    """Evaluate on each part the choice that was made on the others.

    Returns:
        Rows of FOLD_DTYPE, one per part; None if a choice was stopped.
    """
    found = np.zeros(len(parts), FOLD_DTYPE)
    for number, (part, others) in enumerate(split(parts)):
        choice = choose(others)
        if choice is None:
            return None
        stock, chosen = Scores(part, progress).of(choice)
        saved = stock - chosen
        percent = 100 * saved / stock if stock else 0.0
        same = choice[0] == choice[1]
        found[number] = (number, sum(map(len, part)), stock, chosen, saved, percent, same)
    return as_rows(found)


def split(
    parts: Sequence[Sequence[Recording]],
) -> Iterator[tuple[Sequence[Recording], list[Recording]]]:
    """Yield each part with the recordings of all others."""
    for part in parts:
        yield part, [one for other in parts if other is not part for one in other]


def grouped(recordings: Sequence[Recording]) -> list[list[Recording]]:
    """Group the recordings into at most PARTS_MAX parts of about equal size."""
    count = min(len(recordings), PARTS_MAX)
    return [list(recordings[first::count]) for first in range(count)]


def parts_of(recordings: list[Recording], folds: int) -> list[Recording]:
    """Return the recordings themselves, or `folds` parts of a single one."""
    if len(recordings) > 1:
        return recordings
    if folds < 2:
        raise errors.InvalidError(f"folds {folds}: must be at least 2")
    if not recordings:
        raise errors.InvalidError("no recording to fit a table to; give at least one")
    (whole,) = recordings
    count = len(whole)
    if count < folds:
        operations = _format.plural(count, "operation")
        raise errors.InvalidError(
            f"{whole.name}: {operations} cannot be cut into {folds} parts; give fewer folds"
        )
    edges = [count * number // folds for number in range(folds + 1)]
    return [whole[first:last] for first, last in itertools.pairwise(edges)]


def median_percent(rows: Rows) -> float:
    """Return the median saving over the parts, in percent of the stock table's bytes."""
    return float(statistics.median(rows["saved_percent"].tolist()))


def describe_folds(rows: Rows) -> str:
    """Describe the median saving and its interval."""
    saved = sorted(rows["saved_percent"].tolist())
    kept = int(rows["stock_chosen"].sum())
    probability = 100 * (1 - 2.0 ** (1 - len(saved)))
    text = (
        f"cross-validation over {len(saved)} parts: the chosen table saves"
        f" {median_percent(rows):.1f} % of the resident bytes of a held-out part (median;"
        f" {saved[0]:.1f} to {saved[-1]:.1f} %, the {probability:.0f} % interval)"
    )
    return f"{text}; {kept} of the choices kept the stock table" if kept else text
