# SPDX-License-Identifier: Apache-2.0
"""Ten million steps of ranges and buddies against a map of bytes, drawn by Hypothesis, in batches.

A batch has examples of every backend with every placement, and of the buddy allocator; its number
is the seed. After each batch the totals are written to a file, and the next run continues there. A
difference ends the run with the shortest steps that reproduce it.

Example:
    ./dev stress python_models
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.python.ranges.models import (
    BUDDY_SIZES,
    MANY_STEPS,
    PLACED,
    Step,
    run_buddy,
    run_ranges,
)

STATE = Path("build/report/python_models.json")


def run_batch(number: int, examples: int) -> int:
    """Run one batch; return its number of steps."""
    steps_done = 0

    def drawn(run: Callable[..., None], which: st.SearchStrategy[tuple[Any, ...]]) -> None:
        def counted(which: tuple[Any, ...], steps: list[Step]) -> None:
            nonlocal steps_done
            steps_done += sum(kind != "r" for kind, _, _ in steps)  # most resets are passed over
            run(*which, steps)

        limited = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        seed(number)(limited(given(which, MANY_STEPS)(counted)))()

    for backend, placement in PLACED:
        drawn(run_ranges, st.just((backend, placement)))
    drawn(run_buddy, st.tuples(st.sampled_from(BUDDY_SIZES), st.integers(0, 2)))
    return steps_done


def main(words: Sequence[str] | None = None) -> int:
    """Run batches until the given number of steps is done, over all runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=10_000_000, help="steps over all runs")
    parser.add_argument("--examples", type=int, default=100, help="of each combination in a batch")
    parser.add_argument("--state", type=Path, default=STATE, help="the file with the sums")
    options = parser.parse_args(words)
    state = {"operations": 0, "batches": 0}
    if options.state.is_file():
        state = json.loads(options.state.read_text(encoding="utf-8"))
    while state["operations"] < options.operations:
        state["operations"] += run_batch(state["batches"], options.examples)
        state["batches"] += 1
        options.state.parent.mkdir(parents=True, exist_ok=True)
        options.state.write_text(json.dumps(state), encoding="utf-8")
        print(f"{state['operations']:,} steps in {state['batches']:,} batches", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
