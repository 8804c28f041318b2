# SPDX-License-Identifier: Apache-2.0
"""Cross-validation: what the choice of a table saves on parts that it was not made on.

Method: M. Stone, "Cross-validatory choice and assessment of statistical predictions", Journal of
the Royal Statistical Society B 36, 1974. Each part in turn is left out, the whole choice (search,
trial, verdict) is made on the others, and it is judged by the part that is left out. The interval
is that of a median by its order statistics: between the least and the most of n values it lies with
a probability of 1 - 2^(1 - n) (H. A. David and H. N. Nagaraja, "Order statistics", 2003, 7.1).
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
        ("stock_stays", np.bool_),
    ]
)
"""A part that was left out: its operations, the peak resident bytes under the stock table and
under the table that was chosen without it, the difference, whether the stock table was chosen."""

PARTS_MOST = 5
"""The number of parts that several recordings are dealt into by default: least and most of five
values are a 94 % interval of their median."""

Choice = tuple[SizeClassTable, SizeClassTable]
"""The stock table for some recordings, and the table to use for them, which may be the same."""

Choose = Callable[[list[Recording]], Choice | None]
"""What makes a choice on recordings; None: it was stopped."""


def leave_out(
    parts: Sequence[Sequence[Recording]], choose: Choose, progress: Step = no_step
) -> Rows | None:
    """Judges by each part in turn what is chosen on the others.

    Args:
        parts: at least two, each of at least one recording.
        choose: called with the recordings of all parts but one.
        progress: called with operations that were simulated to judge.

    Returns:
        Rows of FOLD_DTYPE, one for each part; None: a choice was stopped.
    """
    found = np.zeros(len(parts), FOLD_DTYPE)
    for number, (part, others) in enumerate(split(parts)):
        choice = choose(others)
        if choice is None:
            return None
        stock, chosen = Scores(part, progress).of(choice)
        saved = stock - chosen
        percent = 100 * saved / stock if stock else 0.0
        stays = choice[0] == choice[1]
        found[number] = (number, sum(map(len, part)), stock, chosen, saved, percent, stays)
    return as_rows(found)


def split(
    parts: Sequence[Sequence[Recording]],
) -> Iterator[tuple[Sequence[Recording], list[Recording]]]:
    """Each part, and the recordings of all others."""
    for part in parts:
        yield part, [one for other in parts if other is not part for one in other]


def dealt(recordings: Sequence[Recording]) -> list[list[Recording]]:
    """Deals the recordings into at most PARTS_MOST parts; a part may have several."""
    count = min(len(recordings), PARTS_MOST)
    return [list(recordings[first::count]) for first in range(count)]


def parts_of(recordings: list[Recording], folds: int) -> list[Recording]:
    """The recordings, or the parts of a single one.

    Raises:
        InvalidError: there are fewer than two parts, or one has no operation.
    """
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
    """The median of what is saved of the parts, percent of what is resident under the stock one."""
    return float(statistics.median(rows["saved_percent"].tolist()))


def told_folds(rows: Rows) -> str:
    """What cross-validation found, in words: the median of what is saved, its interval."""
    saved = sorted(rows["saved_percent"].tolist())
    stays = int(rows["stock_stays"].sum())
    sure = 100 * (1 - 2.0 ** (1 - len(saved)))
    said = (
        f"cross-validated over {len(saved)} parts, the choice saves {median_percent(rows):.1f} % of"
        f" the resident bytes of a part that was left out (median; {saved[0]:.1f} to"
        f" {saved[-1]:.1f} %, the {sure:.0f} % interval)"
    )
    return f"{said}; without {stays} of the parts the stock table stays" if stays else said


__all__ = ["FOLD_DTYPE", "dealt", "leave_out", "median_percent", "parts_of", "split", "told_folds"]
