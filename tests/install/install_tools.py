# SPDX-License-Identifier: Apache-2.0
"""What the install tests share: the project's root and running programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LEDGER_PARTS = (
    "requested_bytes",
    "roundup_bytes",
    "tail_bytes",
    "free_slot_bytes",
    "cached_bytes",
    "metadata_bytes",
    "large_rounding_bytes",
    "arena_slack_bytes",
    "quarantine_bytes",
    "free_page_bytes",
)

needs_pkg_config = pytest.mark.skipif(
    shutil.which("pkg-config") is None, reason="pkg-config is not installed"
)
"""For tests that ask pkg-config, which `./dev` wishes for but does not demand."""


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 900,
) -> str:
    """Runs a program that must succeed and returns its standard output.

    Args:
        command: program and arguments.
        cwd: working folder; None: the current one.
        env: variables added to the environment.
        timeout: seconds.

    Raises:
        AssertionError: exit status other than 0; the message holds what the program printed.
    """
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**clean_environment(), **(env or {})},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )
    line = " ".join(str(word) for word in command)
    assert result.returncode == 0, (
        f"{line}: exit {result.returncode}\n{result.stdout}{result.stderr}"
    )
    return result.stdout


def clean_environment() -> dict[str, str]:
    """The environment without what would let a checkout or an outer environment leak in."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_PRELOAD", "LD_LIBRARY_PATH")
    return {
        key: value
        for key, value in os.environ.items()
        if key not in hidden and not key.startswith(("CMAKE_", "PKG_CONFIG_"))
    }
