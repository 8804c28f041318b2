# SPDX-License-Identifier: Apache-2.0
"""Checks arrays of operations, and runs them in the C runner until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise._lib import OPS_DTYPE, failure, ffi, lib, pointer
from spanwise.ledger.run_stats import RunStats
from spanwise.results.jobs import LOOK_SECONDS, ctrl_c_heard, raise_what_came
from spanwise.results.rows import Rows

_DIRECT_OPS = 1 << 18
"""Fewer operations than this run in the calling thread, because they take only milliseconds."""

_IDS_AT_LEAST = 4096
"""Ids that are always allowed."""

_TOUCHES = ("none", "ends")


def as_ops(ops: Any) -> NDArray[np.void]:
    """Return operations (array or `Rows`) as a contiguous array of OPS_DTYPE, copied if needed."""
    if isinstance(ops, Rows):
        ops = np.asarray(ops)
    if not isinstance(ops, np.ndarray) or ops.dtype != OPS_DTYPE:
        kind = ops.dtype if isinstance(ops, np.ndarray) else type(ops).__name__
        raise TypeError(f"ops must be a numpy array of spanwise.OPS_DTYPE, not {kind}")
    if ops.ndim != 1:
        raise errors.InvalidError(f"ops must have one dimension, not {ops.ndim}")
    return np.ascontiguousarray(ops)


def check_ids(runner: Any, ops: NDArray[np.void]) -> None:
    """Check that ids are dense, because the runner's memory grows with the largest id."""
    run_before = int(RunStats.read(runner).ops)
    bound = max(run_before + len(ops), _IDS_AT_LEAST)
    too_large = (ops["kind"] == lib.SW_OP_ALLOC) & (ops["object"] >= bound)
    if too_large.any():
        index = int(np.argmax(too_large))
        raise errors.InvalidError(
            f"operation {index}: object {ops['object'][index]} is not dense:"
            " ids must be below the number of operations"
        )


def run_ops(runner: Any, ops: NDArray[np.void], *, touch: str = "none") -> None:
    """Run operations; KeyboardInterrupt stops the run between two of them."""
    if touch not in _TOUCHES:
        raise errors.InvalidError(f"touch {touch!r}: use {' or '.join(_TOUCHES)}")
    cancel = ffi.new("int *")
    start = pointer(ops, "sw_op *")

    def call() -> errors.SpanwiseError | None:
        status = lib.sw_runner_run(runner, start, len(ops), touch == "ends", cancel, ffi.NULL)
        return failure(status) if status != 0 else None

    error = call() if len(ops) < _DIRECT_OPS else interruptible(call, cancel)
    if error is not None:
        raise error


def interruptible(
    call: Callable[[], errors.SpanwiseError | None],
    cancel: Any,
    look: Callable[[], object] = lambda: None,
) -> errors.SpanwiseError | None:
    """Run a long C call in a thread, while the main thread polls for Ctrl-C and sets `cancel`.

    If no thread can be created, the main thread makes the call, and Ctrl-C takes effect at its end.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    done = threading.Event()
    result: list[errors.SpanwiseError | None] = []

    def work() -> None:
        try:
            if not cancel[0]:
                result.append(call())
        finally:
            done.set()

    thread = threading.Thread(target=work, name="spanwise-run", daemon=True)
    with ctrl_c_heard():
        try:
            thread.start()
            while not done.wait(LOOK_SECONDS):
                raise_what_came()
                look()
        except BaseException:
            cancel[0] = 1
            # The arrays must live until the call ends. A thread that starts late sees `cancel`.
            while thread.is_alive() and not done.is_set():
                done.wait()
            raise
    return result[0] if result else None
