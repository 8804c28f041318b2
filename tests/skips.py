# SPDX-License-Identifier: Apache-2.0
"""Why tests are left out."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest


def skip_without_c(items: list[pytest.Item], folder: Path, compiler: str) -> None:
    """Marks the tests of a folder as skipped where they cannot be: no Linux, or no compiler."""
    if sys.platform == "linux" and shutil.which(compiler) is not None:
        return
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs Linux and a C compiler"))
