# SPDX-License-Identifier: Apache-2.0
"""Rows of the scoreboard that a script of bench/ measures and judges by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.errors import BenchError
from runner.stats import Interval, order_rank

from scoreboard.judge import MET, MISSED, REPORTED, Rules, bar_of
from scoreboard.scores import Score
from scoreboard.targets import Target

BENCH = Path(__file__).resolve().parents[1]


def measure(script: str, options: Sequence[str]) -> dict[str, Any]:
    """Runs a script of this folder with --json, as a process of its own; standard error is ours.

    Raises:
        BenchError: it failed, or printed something else.
    """
    words = [sys.executable, "-m", f"scoreboard.{Path(script).stem}", "--json", *options]
    where = {**os.environ, "PYTHONPATH": str(BENCH)}
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, env=where)
    try:
        if done.returncode not in (0, 1):
            raise ValueError(f"exit {done.returncode}")
        told: dict[str, Any] = json.loads(done.stdout)
        told["rows"] = {row["name"]: row for row in told["rows"]}
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{script} told no figures: {error}") from None
    return told


def score(target: Target, told: dict[str, Any], rules: Rules) -> Score:
    """The row as the script judged it, if that was by the rules.

    Raises:
        BenchError: the script does not have the row.
    """
    row = told["rows"].get(target.bench)
    if row is None:
        raise BenchError(
            f"{target.script} has no row '{target.bench}'; see bench/scoreboard/targets.toml"
        )
    found = None
    if row["ratio"] is not None:
        rounds = told["rounds"]
        found = Interval(row["ratio"], row["low"], row["high"], order_rank(rounds)[1], rounds)
    bar = bar_of(target, rules, told["rounds"])
    reached, note = row["verdict"], row["note"]
    if bar.refusal and reached in (MET, MISSED):
        reached, note = REPORTED, "; ".join(filter(None, (bar.refusal, note)))
    return Score(target, bar, row["ours"], row["peer_name"], row["peer"], found, reached, note)


def measure_all(
    targets: Sequence[Target], rounds: int, rules: Rules, *, quick: bool
) -> tuple[dict[str, Any], list[Score]]:
    """What each script told, and the scores; a script runs once for all of its rows.

    Args:
        targets: rows with a script.
        rounds: repetitions of a row.
        rules: what was fixed before.
        quick: small inputs, once: that it runs, not how fast.

    Raises:
        BenchError: a script failed, or does not have a row.
    """
    told: dict[str, Any] = {}
    for script in dict.fromkeys(row.script for row in targets):
        words = ["--quick"] if quick else ["--rounds", str(rounds)]
        for row in targets:
            words += ["--rows", row.bench] if row.script == script else []
        told[script] = measure(script, words)
    return told, [score(row, told[row.script], rules) for row in targets]
