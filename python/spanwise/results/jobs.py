# SPDX-License-Identifier: Apache-2.0
"""Progress bars, and signals while threads work."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, ClassVar, TypeAlias, TypeVar

# --- progress bars --------------------------------------------------------------------------------

Step = Callable[[int], object]
"""Called with the number of steps done since the last call."""

Progress: TypeAlias = "bool | Step | None"
"""The argument `progress`: a function to call with the number of steps done since its last call;
True: a bar at once; False: none; None: a bar on a terminal or in a notebook, if the work takes more
than a second."""


def no_step(_count: int) -> None:
    """Does nothing."""


@contextmanager
def progress_bar(progress: Progress, total: int | None, what: str, unit: str) -> Iterator[Step]:
    """Yield the function to call with the number of steps done."""
    if callable(progress):
        yield progress
        return
    notebook = "ipykernel" in sys.modules
    wanted = (notebook or sys.stderr.isatty()) if progress is None else progress
    if not wanted:
        yield no_step
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns of widgets that are not installed
        module = importlib.import_module("tqdm.auto" if notebook else "tqdm")
        bar = module.tqdm(  # also warns if the system refuses its thread
            total=total,
            desc=what,
            unit=f" {unit}",
            unit_scale=total is None or total >= 10_000,
            delay=0 if progress else 1,
            leave=bool(progress),
            file=sys.stderr,
        )
    with bar:
        yield bar.update


# --- signals --------------------------------------------------------------------------------------
#
# A signal handler may raise an exception at any instruction of the main thread, even while it
# acquires a lock of a thread pool or of an event. Nobody would release that lock, and threads that
# wait for it would never end. So a handler of `Signals` only notes the signal. Code that waits for
# threads calls `raise_what_came` at intervals, and only that call raises KeyboardInterrupt for
# Ctrl-C.

Made = TypeVar("Made")

LOOK_SECONDS = 0.2
"""Seconds between two checks for a signal while waiting: a signal delivered to another thread
does not wake the wait."""


class Signals:
    """Defers Ctrl-C, SIGTERM and SIGHUP while threads work, to where raising is safe.

    Within `heard`, the first signal becomes a KeyboardInterrupt, raised by `raise_what_came` where
    no lock is held, or at the end of `heard`. Other signals are kept until the end of the `with`
    block. Then SIGTERM and SIGHUP end the process as usual, and so does a Ctrl-C that was not
    raised yet.

    It does nothing outside the main thread, or for a signal that the caller handles or ignores.
    """

    _DEFAULTS: ClassVar[dict[signal.Signals, Any]] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }

    def __init__(self, numbers: Sequence[signal.Signals] = tuple(_DEFAULTS)) -> None:
        self._numbers = numbers
        self._first: int | None = None
        self._raised = False
        self._taken: list[signal.Signals] = []

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) == self._DEFAULTS[number]:
                    signal.signal(number, self._came)
                    self._taken.append(number)
        return self

    def __exit__(self, *_: object) -> None:
        # Restore the handler of Ctrl-C last, since it may raise at once.
        for number in reversed(self._taken):
            signal.signal(number, self._DEFAULTS[number])
        if self._first is not None and not (self._raised and self._first == signal.SIGINT):
            signal.raise_signal(self._first)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Raise KeyboardInterrupt for the first signal, at the end of the block at the latest.

        Signals of enclosing `heard` blocks still count.
        """
        before = _HEARD.set((*_HEARD.get(), self))
        try:
            raise_what_came()
            yield
            raise_what_came()
        finally:
            _HEARD.reset(before)

    def raise_what_came(self) -> None:
        """Raises KeyboardInterrupt once, if a signal has come."""
        if self._first is not None and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def _came(self, number: int, _: FrameType | None) -> None:
        if self._first is None:
            self._first = number


_HEARD: ContextVar[tuple[Signals, ...]] = ContextVar("_HEARD", default=())
"""The `Signals` whose `heard` blocks this thread is in."""


def raise_what_came() -> None:
    """Raises KeyboardInterrupt once, if a signal came within a `heard` block."""
    for signals in _HEARD.get():
        signals.raise_what_came()


@contextmanager
def ctrl_c_heard() -> Iterator[None]:
    """Let only `raise_what_came` or the end of the block raise KeyboardInterrupt."""
    with Signals([signal.SIGINT]) as signals, signals.heard():
        yield


def first_ended(futures: Collection[Future[Made]]) -> set[Future[Made]]:
    """Wait until at least one future has ended; return those that have."""
    ended: set[Future[Made]] = set()
    while not ended:
        raise_what_came()
        ended = wait(futures, LOOK_SECONDS, FIRST_COMPLETED).done
    return ended


def is_refused(error: BaseException) -> bool:
    """Return whether the system refused a thread: a limit (RLIMIT_NPROC, pids.max) is reached."""
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)
