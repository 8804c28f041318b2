# SPDX-License-Identifier: Apache-2.0
"""Programs that try to crash Python through public names only."""

from __future__ import annotations

import textwrap

import pytest

from tests.python.helpers import python

BEGIN = "import gc, os, sys, threading\nimport numpy as np\nimport spanwise as sw\n"

ATTACKS = {
    "words that are no addresses in an array of pointers": """
        heap, arena = sw.CollectedHeap(), sw.Arena()
        words = arena.pointers(8)
        arena.attach(heap)
        small = heap.new(heap.add_type("small", 16, [0, 1]))
        large = heap.new(heap.add_type("large", 100_000, [0, 1]))
        words[:] = [8, 2**63, small.address + 4, small.address + 4096, 2**64 - 1, id(heap), 1, 0]
        words[7] = large.address + 50_000
        large.free()
        heap.collect()
        heap.collect()
        heap.verify()
    """,
    "threads collect while another closes": """
        def use(heap, kind):
            try:
                while True:
                    made = heap.new(kind)
                    made[0] = made
                    heap.weak(made)()
                    del made
                    heap.collect()
            except sw.HeapClosedError:
                pass

        for _ in range(10):
            heap = sw.CollectedHeap()
            kind = heap.add_type("node", 16, [0])
            threads = [threading.Thread(target=use, args=(heap, kind)) for _ in range(3)]
            for thread in threads:
                thread.start()
            heap.close()
            for thread in threads:
                thread.join()
    """,
    "the interpreter ends while daemon threads are in calls": """
        collected, heap = sw.CollectedHeap(), sw.Heap()
        graph = collected.build(collected.add_type("node", 16, [0, 1]), sw.random_graph(20_000, 2))
        begun = threading.Barrier(3)

        def collect():
            begun.wait()
            while True:
                collected.collect()

        def allocate():
            begun.wait()
            while True:
                heap.alloc(1000).view()[:] = 1

        for work in (collect, allocate):
            threading.Thread(target=work, daemon=True).start()
        begun.wait()
        for _ in range(20):
            heap.alloc(10).free()
    """,
    "a fork while another thread is inside of calls": """
        heap, stack, collected = sw.Heap(), sw.Stack(), sw.CollectedHeap()
        kind = collected.add_type("node", 16, [0])
        slabs = sw.TieredSlabs(heap)
        done = threading.Event()

        def use():
            while not done.is_set():
                stack.push(16)
                stack.release(0)
                heap.alloc(10).free()
                collected.new(kind)
                slabs.alloc(10).free()

        thread = threading.Thread(target=use)
        thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                heap.alloc(10).free()
                collected.new(kind)
                slabs.alloc(10)
                for it in (slabs, stack, collected, heap):
                    it.close()
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            assert status == 0, status
        done.set()
        thread.join()
    """,
    "edges that change while a graph is built": """
        heap = sw.CollectedHeap()
        kind = heap.add_type("node", 16, [0, 1])
        edges = sw.random_graph(100_000, 2)
        done = threading.Event()

        def change():
            while not done.is_set():
                edges[:] = 2**32 - 2
                edges[:] = 0

        thread = threading.Thread(target=change)
        thread.start()
        for _ in range(10):
            try:
                heap.build(kind, edges)
            except sw.InvalidError:
                pass
        done.set()
        thread.join()
        heap.collect()
        heap.verify()
    """,
    "operations that change while they run": """
        random = np.random.default_rng(1)
        ops = np.zeros(1 << 19, sw.OPS_DTYPE)
        done = threading.Event()

        def change():
            while not done.is_set():
                at = random.integers(0, len(ops), 1000)
                ops["kind"][at] = random.integers(0, 5, 1000)
                ops["object"][at] = random.integers(0, 1 << 20, 1000)
                ops["size"][at] = random.integers(0, 2000, 1000)
                ops["thread"][at] = random.integers(0, 9, 1000)
                ops["object"][at[:1]] = 2**32 - 1

        thread = threading.Thread(target=change)
        thread.start()
        for _ in range(10):
            with sw.Heap() as heap:
                try:
                    heap.run(ops, touch="ends")
                except sw.SpanwiseError:
                    pass
                heap.verify()
        done.set()
        thread.join()
    """,
    "the bytes of a registered pointer are overwritten": r"""
        stack = sw.Stack()
        low, high = stack.push(100), stack.push(64)
        pointer = stack.register(low, 4, kept_in=high, kept_at=8)
        view = high.view()
        view[8:16] = b"\xff" * 8
        del view
        stack.push(1 << 20)
        calls = [pointer.view, lambda: stack.release(0), lambda: pointer.address]
        for call in (*calls, pointer.unregister):
            try:
                call()
            except sw.StateError:
                pass
    """,
    "objects of __new__ alone": """
        for name in sw.__all__:
            cls = getattr(sw, name)
            if isinstance(cls, type) and not issubclass(cls, BaseException):
                try:
                    bare = cls.__new__(cls)
                except TypeError:  # a tuple
                    continue
                for one in set(dir(cls)) - {"__class__", "__new__", "__init_subclass__"}:
                    try:
                        found = getattr(bare, one)
                        found() if callable(found) else repr(found)
                    except Exception:
                        pass
    """,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_python_survives(name: str) -> None:
    program = BEGIN + textwrap.dedent(ATTACKS[name])
    done = python("-X", "faulthandler", "-c", program)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
