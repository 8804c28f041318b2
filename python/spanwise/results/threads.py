# SPDX-License-Identifier: Apache-2.0
"""Threads where the system may refuse to start one: then the work is done in the caller's thread.

A process at its limit of threads (RLIMIT_NPROC, a cgroup's pids.max) has only those it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Args = ParamSpec("Args")
Made = TypeVar("Made")


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
        self, fn: Callable[Args, Made], /, *args: Args.args, **kwargs: Args.kwargs
    ) -> Future[Made]:
        """As of `Executor`."""
        future: Future[Made] = Future()
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


__all__ = ["Workers", "is_refused", "starts"]
