# SPDX-License-Identifier: Apache-2.0
"""Python threads that have joined a collector."""

from __future__ import annotations

import threading

import pytest
import spanwise as sw
from spanwise._lib import ffi, lib


def run(*works: object) -> list[BaseException]:
    """All at once in threads; what they raise."""
    raised: list[BaseException] = []

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_joined_threads_collect_by_turns() -> None:
    with sw.CollectedHeap() as heap:
        heap.set_debug(checkmark=True, clobber=True)
        heap.set_stop_ms(20_000)
        kind = heap.add_type("pair", 16, [0, 1])

        def works() -> None:
            with heap.joined("worker"):
                top = heap.new(kind)
                for i in range(60):
                    made = heap.new(kind)
                    made[0] = top
                    top = made
                    if i % 5 == 0:
                        heap.collect()
                seen, at = 0, top.address
                while at:
                    seen, at = seen + 1, int(ffi.cast("uintptr_t *", at)[0])
                assert seen == 61

        assert run(works, works, works) == []
        assert heap.collect().marked_objects == 0
        heap.verify()


def test_nobody_waits_for_a_thread_outside_of_its_calls() -> None:
    inside, go_on = threading.Event(), threading.Event()
    with sw.CollectedHeap() as heap:
        heap.set_stop_ms(1)
        kind = heap.add_type("pair", 16, [0, 1])

        def sleeps() -> None:
            with heap.joined("sleeper"):
                kept = heap.new(kind)
                inside.set()
                go_on.wait(60)
                kept[0] = None

        thread = threading.Thread(target=sleeps)
        thread.start()
        assert inside.wait(60)
        assert heap.collect().marked_objects == 1
        go_on.set()
        thread.join(60)
        assert heap.collect().marked_objects == 0


def test_a_late_thread_is_named() -> None:
    """A thread of another language, as far as the collector can tell."""
    inside, go_on = threading.Event(), threading.Event()
    with sw.CollectedHeap() as heap:
        heap.set_stop_ms(5)

        def is_late() -> None:
            with heap._handle as c_gc:
                lib.sw_gc_join(c_gc, b"a late one")
            inside.set()
            go_on.wait(60)
            with heap._handle as c_gc:
                lib.sw_gc_leave(c_gc)

        thread = threading.Thread(target=is_late)
        thread.start()
        assert inside.wait(60)
        with pytest.raises(sw.BlockBusyError, match="'a late one'"):
            heap.collect()
        go_on.set()
        thread.join(60)
        heap.collect()


def test_states_of_joining() -> None:
    heap = sw.CollectedHeap()
    with heap.joined("main"):
        with pytest.raises(sw.StateError, match="joined before"), heap.joined("main"):
            pass
        heap.collect()
    with pytest.raises(ValueError, match="out"), heap.joined("again"):
        raise ValueError("out")
    with pytest.raises(sw.InvalidError):
        heap.set_stop_ms(0)
    with heap.joined("closes"):
        heap.close()
    with pytest.raises(sw.HeapClosedError), heap.joined("late"):
        pass
