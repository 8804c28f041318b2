# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of sweeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import spanwise as sw
from spanwise.sweeps import tasks

TABLES = ["go", "c16", "pow2", "geometric-1.2", "geometric-1.4"]
MANY = [f"geometric-{1.1 + i / 20:.2f}" for i in range(12)]
CHANGING = ("seconds", "worker")


def settled(rows: Any) -> list[dict[str, Any]]:
    """Return rows without the fields that differ from run to run."""
    return [{key: v for key, v in row.items() if key not in CHANGING} for row in rows]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def expected(files: list[str]) -> list[dict[str, Any]]:
    """Return the rows of one thread, which other rows must equal."""
    return settled(sw.sweep(files, TABLES, workers=1))


def hide(folder: str) -> None:
    """In a worker, hide the files of a folder, as on a machine with another disk."""
    real = tasks.file_sha256

    def sha256(path: str) -> str:
        if path.startswith(folder):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path)

    tasks.file_sha256 = sha256
