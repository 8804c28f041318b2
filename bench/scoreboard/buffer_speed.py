# SPDX-License-Identifier: Apache-2.0
"""How fast readers, multi-buffer memory and stacks are: ours over a plain reference in C.

Both are inline code of one program, bench_buffers. Stacks stand beside a fixed one without a guard,
and growth by copy beside a chain. A value is the ratio of two CPU times of a run;
the limit of targets.toml is the ratio asked for. Exit 1: a limit is missed.

Examples:
    ./dev bench --scoreboard --rows 'buffer*'           all rows, less than a minute
    ./dev bench --scoreboard --rows 'buffer*' --quick   short, once: that it runs, not how fast

It is a module, which `bench/scoreboard/scripted.py` starts as a process of its own:
    PYTHONPATH=bench .venv/bin/python -m scoreboard.buffer_speed --json
"""

from __future__ import annotations

import sys
from pathlib import Path

from scoreboard.beside_reference import Bench
from scoreboard.loop_speed import Row

BENCH = Bench("buffer")


def _row(name: str, row: str) -> Row:
    return BENCH.row(name, row, ("spanwise",), "reference")


ROWS = (
    _row("read_byte x 1024", "read_byte"),
    _row("read_be x 256", "read_be"),
    _row("LEB128 x 1024", "leb128"),
    _row("push x 100", "push"),
    _row("append, 10 x 100 buffers", "append"),
    _row("to_bytes, 100 KiB", "to_bytes"),
    _row("scalable pair", "scalable_pair"),
    _row("batch of ten 1 KiB", "batch"),
    _row("copy_to, 100 KiB", "copy_to"),
    BENCH.row("stack by copy, 32 calls", "stack_calls", ("copy",), "fixed"),
    BENCH.row("stack of a chain, 32 calls", "stack_calls", ("chain",), "fixed"),
    BENCH.row("stack by copy, fill 1 MiB", "stack_fill", ("copy",), "chain"),
)


if __name__ == "__main__":
    sys.exit(BENCH.main(ROWS, Path(__file__).name, __doc__))
