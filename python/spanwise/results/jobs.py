# SPDX-License-Identifier: Apache-2.0
"""Work in threads: progress bars, signals, and systems that refuse threads."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, ClassVar, ParamSpec, TypeAlias, TypeVar

# --- progress bars --------------------------------------------------------------------------------

Step = Callable[[int], object]
"""Called with the number of steps done since the last call."""

Progress: TypeAlias = "bool | Step | None"
"""What the argument `progress` takes: a function to be called with the number of steps done since
its last call; True: a bar at once; False: none; None: a bar on a terminal or in a notebook, if the
work takes more than a second."""


def no_step(_count: int) -> None:
    """Shows no progress."""


@contextmanager
def progress_bar(progress: Progress, total: int | None, what: str, unit: str) -> Iterator[Step]:
    """Gives what is to be called with steps done.

    Args:
        progress: as the user gave it.
        total: number of steps; None: not known, so they are counted and no bar is filled. The
            estimate of the time that is left holds only if all steps take about equally long.
        what: is being done, before the bar.
        unit: plural noun of the steps.
    """
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
        bar = module.tqdm(  # it warns, too, where the system refuses its thread
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
# An exception that a signal's handler raises may come at any instruction of the main thread, also
# while that takes a lock of a thread pool or of an event. Nobody would ever release that lock, and
# threads that wait for it would never end. So a handler of `Signals` only notes the signal. Code
# that waits for threads calls `raise_what_came` at intervals; only there does Ctrl-C become a
# KeyboardInterrupt.

Made = TypeVar("Made")

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


def first_ended(futures: Collection[Future[Made]]) -> set[Future[Made]]:
    """Waits until one of some futures has ended at least; returns those that have.

    Raises:
        KeyboardInterrupt: as `raise_what_came`.
    """
    ended: set[Future[Made]] = set()
    while not ended:
        raise_what_came()
        ended = wait(futures, LOOK_SECONDS, FIRST_COMPLETED).done
    return ended


# --- threads --------------------------------------------------------------------------------------
#
# A process at its limit of threads (RLIMIT_NPROC, a cgroup's pids.max) has only those it has.

Args = ParamSpec("Args")
Returned = TypeVar("Returned")


def is_refused(error: BaseException) -> bool:
    """Whether an error of `Thread.start` is the system's refusal."""
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def starts(thread: threading.Thread) -> bool:
    """Starts a thread; False: the system refused.

    The caller holds the thread before it starts, so that it can wait for it whatever happens here:
    Ctrl-C may come when the thread has begun and this has not returned.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if not is_refused(error):
            raise
        return False
    return True


class Workers(ThreadPoolExecutor):
    """A pool of threads. When the system refuses a thread, `submit` itself does the work.

    While it does, Ctrl-C waits for the end of that piece of work.
    """

    def submit(
        self, fn: Callable[Args, Returned], /, *args: Args.args, **kwargs: Args.kwargs
    ) -> Future[Returned]:
        """As of `Executor`."""
        future: Future[Returned] = Future()
        untaken = threading.Lock()

        def work() -> None:
            # The pool keeps the work that it could not start a thread for, and threads that it
            # started before may take it, too.
            if untaken.acquire(blocking=False) and future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        try:
            super().submit(work)
        except RuntimeError as error:
            if not is_refused(error):
                raise
            work()
        return future
