# SPDX-License-Identifier: Apache-2.0
"""Conservative roots, and threads that join by themselves."""

from __future__ import annotations

import ctypes
import threading

import pytest
import spanwise as sw
from spanwise._lib import lib

from tests.python.helpers import in_threads

OBJECTS = 2000


def word_of_c() -> ctypes.c_void_p:
    """Return a variable of the C library, which this process does not use otherwise."""
    return ctypes.c_void_p.in_dll(ctypes.CDLL(None), "optarg")


@pytest.mark.parametrize("conservative", [False, True])
def test_static_data_of_c_is_a_root(conservative: bool) -> None:
    word = word_of_c()
    with sw.CollectedHeap(conservative=conservative) as heap:
        heap.set_debug(checkmark=True)
        node = heap.add_type("node", 16, [0])
        tail = heap.new(node)
        for _ in range(OBJECTS - 1):
            head = heap.new(node)
            head[0] = tail
            tail = head
        word.value = head.address
        del head, tail
        kept = heap.collect().marked_objects
        word.value = None
        left = heap.collect().marked_objects
        heap.verify()
    assert kept == (OBJECTS if conservative else 0)
    assert left <= kept


def test_words_of_the_interpreter_retain_little() -> None:
    with sw.CollectedHeap(conservative=True) as heap:
        leaf = heap.add_type("leaf", 32, [0])
        for _ in range(OBJECTS):
            heap.new(leaf)
        assert heap.collect().marked_objects <= OBJECTS // 100


def test_threads_join_at_their_first_call_and_wait_outside() -> None:
    inside, go_on = threading.Event(), threading.Event()
    with sw.CollectedHeap(conservative=True) as heap:
        heap.set_stop_ms(20_000)
        node = heap.add_type("node", 16, [0])

        def sleeps() -> None:
            kept = heap.new(node)
            inside.set()
            go_on.wait(60)
            kept[0] = heap.new(node)

        def works(_: int) -> None:
            for i in range(100):
                kept = heap.new(node)
                kept[0] = heap.new(node)
                if i % 10 == 0:
                    heap.collect()
                assert kept[0] is not None

        thread = threading.Thread(target=sleeps)
        thread.start()
        assert inside.wait(60)
        in_threads(works, 3)
        with heap.joined("main"):
            with pytest.raises(sw.StateError, match="joined before"), heap.joined("main"):
                pass
            heap.collect()
        go_on.set()
        thread.join(60)
        heap.collect()
        heap.verify()


def test_a_thread_that_joins_by_itself_waits_outside() -> None:
    """It does so because a thread of another language has joined."""
    with sw.CollectedHeap() as heap:
        heap.set_stop_ms(100)
        node = heap.add_type("node", 16, [0])
        with heap._handle as c_gc:
            assert lib.sw_gc_join(c_gc, b"other") == lib.SW_OK
        inside, go_on = threading.Event(), threading.Event()

        def allocates() -> None:
            heap.new(node)
            inside.set()
            go_on.wait(60)
            heap.new(node)
            with heap.joined("named"):
                heap.collect()

        thread = threading.Thread(target=allocates)
        thread.start()
        assert inside.wait(60)
        heap.collect()
        with heap._handle as c_gc:
            assert lib.sw_gc_leave(c_gc) == lib.SW_OK
        go_on.set()
        thread.join(60)
        heap.collect()


def test_conservative_is_a_bool() -> None:
    with pytest.raises(TypeError, match="conservative"):
        sw.CollectedHeap(conservative=1)  # type: ignore[arg-type]
