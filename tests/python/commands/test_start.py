# SPDX-License-Identifier: Apache-2.0
"""A command loads what it needs: what takes long is loaded while a recorded program runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The recorder is not told what to start: the words of it are printed, with what is loaded by then.
WITNESS = """
import subprocess, sys
sys.argv = ["spanwise", "record", "-o", "x.swt", "--", "true"]
def told(*_, **__):
    print(sorted({"numpy", "spanwise.recordings.recording", "spanwise.plots"} & set(sys.modules)))
    sys.exit(0)
subprocess.Popen = told
from spanwise.__main__ import command
command()
"""


def run(text: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_a_program_does_not_wait_for_numpy(tmp_path: Path) -> None:
    done = run(WITNESS, tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_types_of_rows_are_there_when_they_are_asked_for(tmp_path: Path) -> None:
    text = """
from spanwise import _lib
from spanwise._lib import OPS_DTYPE, RUN_SAMPLE_DTYPE
assert _lib.OPS_DTYPE is OPS_DTYPE and _lib.RUN_SAMPLE_DTYPE is RUN_SAMPLE_DTYPE
print(OPS_DTYPE.itemsize, [OPS_DTYPE.fields[n][1] for n in OPS_DTYPE.names])
try:
    _lib.no_such_name
except AttributeError as error:
    print(error)
"""
    done = run(text, tmp_path)
    offsets = "32 [0, 8, 16, 20, 24, 28, 29, 30]"  # of sw_op, by include/spanwise/ops.h
    assert done.stdout == f"{offsets}\nmodule 'spanwise._lib' has no attribute 'no_such_name'\n"


@pytest.mark.parametrize("words", [["--help"], ["record", "--help"], ["fly"], []])
def test_help_and_errors_are_those_of_all_commands(words: list[str], tmp_path: Path) -> None:
    """The parser of one command says what the parser of all of them says."""
    alone = [sys.executable, "-m", "spanwise", *words]
    both = f"""
import sys
from spanwise.__main__ import make_parser
make_parser().parse_args({words!r})
"""
    environment = {**os.environ, "COLUMNS": "80"}
    first, second = (
        subprocess.run(
            one, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        for one in (alone, [sys.executable, "-c", both])
    )
    assert (first.returncode, first.stdout, first.stderr) == (
        second.returncode,
        second.stdout,
        second.stderr,
    )
