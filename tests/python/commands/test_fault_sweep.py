# SPDX-License-Identifier: Apache-2.0
"""Commands whose calls of the C library fail; ./dev stress command_faults runs every case."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="a library of LD_PRELOAD")
def test_no_traceback_signal_or_partial_file() -> None:
    program = Path(__file__).with_name("fault_sweep.py")
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=600, check=False
    )
    last = (done.stdout.splitlines() or [""])[-1]
    found = re.fullmatch(r"(\d+) runs, 0 failures", last)
    assert found is not None, done.stdout + done.stderr
    assert int(found[1]) >= 30
