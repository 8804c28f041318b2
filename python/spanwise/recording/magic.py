# SPDX-License-Identifier: Apache-2.0
"""The %%record cell magic: `%load_ext spanwise`, then a cell that begins with %%record.

The cell runs as a program of its own in a fresh python3 with PYTHONMALLOC=malloc, because the
notebook's process allocates for itself all the time: it sees none of the notebook's variables. Its
output is shown below the cell; the recording is put into the variable `recording`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from spanwise.errors import SpanwiseError
from spanwise.recording.recorder import run_recorded
from spanwise.recording.recording import Recording


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise SpanwiseError(f"%%record: {message}", "INVALID")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%record", description=__doc__, add_help=False)
    parser.add_argument("name", nargs="?", default="recording", help="variable for the recording")
    parser.add_argument("-o", "--output", help="the recording's file")
    parser.add_argument("--stacks", type=int, default=1, help="return addresses kept of each call")
    parser.add_argument("--keep-pymalloc", action="store_true", help="keep CPython's allocator")
    return parser


def record_cell(line: str, cell: str, namespace: dict[str, Any]) -> Recording:
    """Records a cell's code and puts the recording into the namespace.

    Args:
        line: what stands after %%record: [NAME] [-o FILE] [--stacks N] [--keep-pymalloc].
        cell: Python source.
        namespace: where the recording goes, under NAME.

    Returns:
        The recording.

    Raises:
        SpanwiseError: wrong options; or as `spanwise.record`.
    """
    options = _parser().parse_args(shlex.split(line))
    with tempfile.TemporaryDirectory(prefix="spanwise-cell-") as folder:
        script = Path(folder) / "cell.py"
        script.write_text(cell, encoding="utf-8")
        output = Path(options.output) if options.output else _lasting_file()
        # The notebook's stdout is no file, so the program's output is passed on afterwards.
        with tempfile.TemporaryFile() as said:
            outcome = run_recorded(
                [sys.executable, str(script)],
                output,
                stacks=options.stacks,
                keep_pymalloc=options.keep_pymalloc,
                stdout=said,
            )
            said.seek(0)
            sys.stdout.write(said.read().decode("utf-8", "replace"))
    for told in outcome.lines():
        print(told)
    recording = Recording.open(outcome.path)
    namespace[options.name] = recording
    return recording


def _lasting_file() -> Path:
    return Path(tempfile.mkdtemp(prefix="spanwise-")) / "cell.swt"


def load_ipython_extension(shell: Any) -> None:
    """Registers the magic; called by %load_ext."""

    def record(line: str, cell: str) -> None:
        record_cell(line, cell, shell.user_ns)

    record.__doc__ = __doc__
    shell.register_magic_function(record, magic_kind="cell", magic_name="record")
