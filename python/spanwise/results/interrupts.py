# SPDX-License-Identifier: Apache-2.0
"""Signals that come while threads work: noted by a handler, and answered where no lock is held.

An exception that a signal's handler raises may come at any instruction of the main thread, also
while that takes a lock of a thread pool or of an event. Nobody would ever release that lock, and
threads that wait for it would never end. So a handler of `Signals` only notes the signal. Code that
waits for threads calls `raise_what_came` at intervals; only there does Ctrl-C become a
KeyboardInterrupt.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, ClassVar, TypeVar

Result = TypeVar("Result")

LOOK_SECONDS = 0.2
"""Seconds between two checks for a signal while waiting: a signal that the system hands to another
thread wakes no wait."""


class Signals:
    """Ctrl-C and others while threads work: the first one ends the work where that is safe.

    Only within `heard` does the first signal become a KeyboardInterrupt, which `raise_what_came`
    raises where no lock is held, or else the end of `heard`. Later signals, and those that come
    outside of `heard`, are kept until the end of the `with` block. Then SIGTERM and SIGHUP end the
    process as usual, and so does a Ctrl-C that was not raised yet.

    In other threads than the main one this does nothing; nor for a signal that the caller handles
    itself or ignores.

    Args:
        numbers: the signals; the default: all that end a process from outside and can be caught.
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
        # The handler of Ctrl-C comes last, since it may raise at once.
        for number in reversed(self._taken):
            signal.signal(number, self._DEFAULTS[number])
        if self._first is not None and not (self._raised and self._first == signal.SIGINT):
            signal.raise_signal(self._first)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Within it, the first signal becomes a KeyboardInterrupt; at its end at the latest.

        What is heard around it goes on being heard.
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
"""The signals that are heard in this thread now."""


def raise_what_came() -> None:
    """Raises KeyboardInterrupt once, if a signal has come that is heard here."""
    for signals in _HEARD.get():
        signals.raise_what_came()


@contextmanager
def ctrl_c_heard() -> Iterator[None]:
    """Inside, only `raise_what_came`, or the end of the block, raises KeyboardInterrupt."""
    with Signals([signal.SIGINT]) as signals, signals.heard():
        yield


def first_ended(futures: Collection[Future[Result]]) -> set[Future[Result]]:
    """Waits until one of some futures has ended at least; returns those that have.

    Raises:
        KeyboardInterrupt: as `raise_what_came`.
    """
    ended: set[Future[Result]] = set()
    while not ended:
        raise_what_came()
        ended = wait(futures, LOOK_SECONDS, FIRST_COMPLETED).done
    return ended


__all__ = ["LOOK_SECONDS", "Signals", "ctrl_c_heard", "first_ended", "raise_what_came"]
