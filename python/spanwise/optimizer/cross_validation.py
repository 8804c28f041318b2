# SPDX-License-Identifier: Apache-2.0
"""Cross-validation by itself: a whole search for each part. Method: `folds`."""

from __future__ import annotations

from typing import Any

from spanwise.optimizer.fit import RESIDENT
from spanwise.optimizer.folds import Choice, leave_out, parts_of
from spanwise.optimizer.search import optimize
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import Recordings, as_recordings
from spanwise.results.jobs import Progress, progress_bar
from spanwise.results.rows import Rows
from spanwise.tables.table import SizeClassTable


def cross_validate(
    recordings: Recordings,
    classes: int = 32,
    objective: str = RESIDENT,
    *,
    folds: int = 5,
    progress: Progress = None,
    **rules: Any,
) -> Rows:
    """What the choice of a table saves on what it has not seen, by leaving out a part at a time.

    The parts are the recordings; a single recording is cut into parts of as many operations each,
    which begin with an allocation of whatever lives then. It takes `folds` searches.

    Args:
        recordings: of one program, as for `optimize`.
        classes: as of `optimize`, and so `objective` and `rules`, all but `holdout`.
        objective: what the tables are fitted to.
        folds: parts of a single recording, at least 2; of several recordings each is a part.
        progress: as of `optimize`; the steps are parts.
        rules: more arguments of `optimize`.

    Returns:
        Rows of FOLD_DTYPE (`folds`), one for each part.

    Raises:
        InvalidError: fewer than two parts, a part without operations, or as of `optimize`.
        TypeError: an argument that `optimize` does not have, or `holdout`, which each part is.
    """
    if "holdout" in rules:
        raise TypeError("holdout: each part is held out in turn; leave it away")
    parts = parts_of(as_recordings(recordings), folds)
    with progress_bar(progress, len(parts), "cross-validation", "parts") as tell:

        def choose(others: list[Recording]) -> Choice:
            best = optimize(others, classes, objective, folds=0, progress=False, **rules)
            tell(1)
            stock = SizeClassTable.named(best.stock)
            return stock, best.table if best.holds else stock

        rows = leave_out([[part] for part in parts], choose)
    assert rows is not None
    return rows


__all__ = ["cross_validate"]
