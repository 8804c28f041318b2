# SPDX-License-Identifier: Apache-2.0
"""Operations through the C runner: checked, cancellable, counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, errors
from spanwise._lib import OPS_DTYPE, failure, ffi, lib, pointer

_DIRECT_OPS = 1 << 18
"""Fewer operations than this run in the calling thread: they take some milliseconds."""

_IDS_AT_LEAST = 4096
"""Ids that the runner has room for from the start."""

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class RunStats:
    """What a runner saw so far. Sizes are in bytes.

    Attributes:
        ops: operations executed; allocs, frees, reallocs of them.
        failed: allocations that the heap refused (its limit, the system's memory).
        skipped: operations on objects that were not live, or on ids that were taken, and ends of
            threads that have no cache.
        requested_bytes: asked for by what is live now; live_objects of them.
        allocated_bytes: asked for, over all allocations.
        peak_requested_bytes: most requested bytes live at once, first after peak_op operations.
        peak_live_objects: most objects live at once.
        held_bytes: held by the heap now; peak_held_bytes at most.
        held_at_peak: held when requested bytes were at their peak.
        requested_at_peak_held: requested when held bytes were at their peak.
        mean_held_over_requested: mean over all operations after which anything was live.
        shared_frees: of a heap with tiny=True: frees and resizes of objects that share a block,
            which stays with the heap.
        thread_ends: caches that closed because their thread ended; of a run, 0.
    """

    ops: int
    allocs: int
    frees: int
    reallocs: int
    failed: int
    skipped: int
    requested_bytes: int
    live_objects: int
    allocated_bytes: int
    peak_requested_bytes: int
    peak_op: int
    peak_live_objects: int
    held_bytes: int
    peak_held_bytes: int
    held_at_peak: int
    requested_at_peak_held: int
    mean_held_over_requested: float | None
    shared_frees: int = 0
    thread_ends: int = 0

    @property
    def events(self) -> int:
        """Operations without the ends of threads."""
        return self.ops - self.thread_ends

    @classmethod
    def read(cls, runner: Any) -> RunStats:
        """The counts of a C runner."""
        out = ffi.new("sw_run_stats *")
        lib.sw_runner_stats(runner, out)
        count = out.held_over_requested_count
        mean = out.held_over_requested_sum / count if count else None
        names = [n for n in cls.__dataclass_fields__ if n != "mean_held_over_requested"]
        return cls(**{n: getattr(out, n) for n in names}, mean_held_over_requested=mean)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [
            ("operations", _format.number(self.events)),
            ("allocations", _format.number(self.allocs)),
            ("frees", _format.number(self.frees)),
            ("reallocations", _format.number(self.reallocs)),
            ("refused", _format.number(self.failed)),
            ("skipped", _format.number(self.skipped)),
            ("live objects", _format.number(self.live_objects)),
            ("requested", _format.size(self.requested_bytes)),
            ("requested, peak", _format.size(self.peak_requested_bytes)),
            ("held", _format.size(self.held_bytes)),
            ("held, peak", _format.size(self.peak_held_bytes)),
        ]
        if self.shared_frees:
            rows.append(("left in shared blocks", _format.number(self.shared_frees)))
        return _format.table(rows)


def as_ops(ops: Any) -> NDArray[np.void]:
    """Operations as a contiguous array of OPS_DTYPE, copied only where needed.

    Raises:
        TypeError: it is no array of that type.
        InvalidError: it has more than one dimension.
    """
    if not isinstance(ops, np.ndarray) or ops.dtype != OPS_DTYPE:
        kind = ops.dtype if isinstance(ops, np.ndarray) else type(ops).__name__
        raise TypeError(f"ops must be a numpy array of spanwise.OPS_DTYPE, not {kind}")
    if ops.ndim != 1:
        raise errors.InvalidError(f"ops must have one dimension, not {ops.ndim}")
    return np.ascontiguousarray(ops)


def check_ids(runner: Any, ops: NDArray[np.void]) -> None:
    """Checks that no ALLOC has an id that decides alone how much memory the runner needs.

    Raises:
        InvalidError: an id is not below the number of operations run, these included.
    """
    run_before = int(RunStats.read(runner).ops)
    bound = max(run_before + len(ops), _IDS_AT_LEAST)
    too_large = (ops["kind"] == lib.SW_OP_ALLOC) & (ops["object"] >= bound)
    if too_large.any():
        index = int(np.argmax(too_large))
        raise errors.InvalidError(
            f"operation {index}: object {ops['object'][index]} is not dense:"
            " ids must be below the number of operations"
        )


def run_ops(runner: Any, ops: NDArray[np.void], *, touch: bool = False) -> None:
    """Runs operations of `as_ops`; KeyboardInterrupt stops them between two.

    Raises:
        InvalidError: naming the operation that is impossible.
    """
    cancel = ffi.new("int *")
    start = pointer(ops, "sw_op *")

    def call() -> errors.SpanwiseError | None:
        status = lib.sw_runner_run(runner, start, len(ops), touch, cancel, ffi.NULL)
        return failure(status) if status != 0 else None

    error = call() if len(ops) < _DIRECT_OPS else interruptible(call, cancel)
    if error is not None:
        raise error


def interruptible(
    call: Callable[[], errors.SpanwiseError | None], cancel: Any
) -> errors.SpanwiseError | None:
    """Runs a long C call beside the main thread, which alone hears Ctrl-C and may set `cancel`."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    done = threading.Event()
    result: list[errors.SpanwiseError | None] = []

    def work() -> None:
        try:
            result.append(call())
        finally:
            done.set()

    threading.Thread(target=work, name="spanwise-run", daemon=True).start()
    try:
        # A signal that the system hands to another thread does not wake this one: it looks up.
        while not done.wait(_LOOK_SECONDS):
            pass
    except BaseException:
        cancel[0] = 1
        while not done.is_set():  # the arrays must not go before the call has ended
            try:
                done.wait()
            except KeyboardInterrupt:
                continue
        raise
    return result[0] if result else None
