# SPDX-License-Identifier: Apache-2.0
"""Limits of address space that a Python program sets after it has made a heap.

Only the package is imported; nothing is preloaded. So the program's own mappings and threads meet
the limit first, and the library must not have used it up.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("resource")

PROGRAM = """
import mmap, resource, threading
import spanwise as sw

MIB = 1 << 20
heap = sw.Heap()
early = heap.alloc(10)
collected, dry, slabs = {kinds}

def mapped():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize:"))

def limit_to(more):
    soft = resource.RLIM_INFINITY if more is None else mapped() + more
    resource.setrlimit(resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))

limit_to(256 * MIB)
assert sw.Heap().alloc(100) is not None
assert sw.CollectedHeap() is not None
dry_too = sw.Heap(dry=True)
dry_too.alloc(1 << 33)
assert sw.TieredSlabs(heap).alloc(300) is not None
said = []
thread = threading.Thread(target=lambda: said.append(heap.alloc(1000)))
thread.start()
thread.join()
assert len(said) == 1
assert len(bytearray(50 * MIB)) == 50 * MIB
assert len(mmap.mmap(-1, MIB)) == MIB
large = heap.alloc(100 * MIB)
view = large.view()
view[::4096] = 7
assert view[0] == view[100 * MIB - 4096] == 7
del view
for refused in (bytearray, heap.alloc):
    try:
        refused(300 * MIB)
    except MemoryError:
        continue
    raise AssertionError(refused)
large.free()
limit_to(None)
assert heap.alloc(300 * MIB).view()[-1] is not None
early.free()
heap.verify()
print("ok")
"""


@pytest.mark.parametrize(
    "kinds",
    ["None, None, None", "sw.CollectedHeap(), sw.Heap(dry=True), sw.TieredSlabs(heap)"],
    ids=["one heap", "every kind"],
)
def test_limit_after_heap(kinds: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{kinds}", kinds)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
