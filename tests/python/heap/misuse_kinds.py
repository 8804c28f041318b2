# SPDX-License-Identifier: Apache-2.0
"""Commits mistakes with objects of heaps, pools, arenas and collected heaps.

Each is committed in a child process of its own. A line of JSON on standard output has the kind of
allocator, the mistake, the size, the profile, the child's status, and the first line that it
printed on standard error. test_misuse_kinds.py compares them with its list.

python misuse_kinds.py
"""

from __future__ import annotations

import itertools
import json
import os
import resource
from collections.abc import Callable
from typing import Any

from spanwise._lib import ffi, lib, options_of, output_of

SIZES = (24, 32, 3000, 100_000, 200_000)
"""With a tail of 8 bytes up to the next multiple of 16, without one, and of whole pages."""
PROFILES = ("default", "hardened", "paranoid")
COLLECTED_PROFILES = ("default",)
_REUSES = 20_000  # enough that freed objects of the size are reused
_keep: list[Any] = []  # C texts and options that must live


def at(p: Any) -> Any:
    """Return the bytes at an address."""
    return ffi.cast("unsigned char *", p)


def read(p: Any, offset: int) -> int:
    """Read a byte."""
    return int(at(p)[offset])


def text(value: str) -> Any:
    """Return a C string that is never freed."""
    _keep.append(ffi.new("char[]", value.encode()))
    return _keep[-1]


def heap_of(profile: str) -> Any:
    """Make a heap in which 96 objects were allocated and every third was freed."""
    options = options_of("sw_heap_options")
    options.protect = text(profile)
    heap = output_of(lib.sw_heap_create, options)
    objects = [lib.sw_heap_alloc(heap, 1 + i * 37 % 3000, 0) for i in range(96)]
    for p in objects[::3]:
        lib.sw_heap_free(heap, p)
    return heap


def filled(heap: Any, size: int) -> Any:
    """Allocate an object of the heap and write to each of its bytes."""
    p = lib.sw_heap_alloc(heap, size, 0)
    ffi.memmove(p, b"\1" * size, size)
    return p


def go_on(heap: Any, size: int) -> None:
    """Allocate and free until freed objects of the size have been reused."""
    for _ in range(_REUSES if size < 10_000 else 200):
        lib.sw_heap_free(heap, lib.sw_heap_alloc(heap, size, 0))


# --- heaps ----------------------------------------------------------------------------------------


def heap_overflow(count: int) -> Callable[[Any, int], None]:
    def commit(heap: Any, size: int) -> None:
        p = filled(heap, size)
        for i in range(count):
            at(p)[size + i] = 7
        lib.sw_heap_free(heap, p)

    return commit


def heap_overread(heap: Any, size: int) -> None:
    p = filled(heap, size)
    read(p, size)
    lib.sw_heap_free(heap, p)


def heap_underflow(heap: Any, size: int) -> None:
    objects = sorted(int(ffi.cast("uintptr_t", filled(heap, size))) for _ in range(200))
    gaps = [b - a for a, b in itertools.pairwise(objects)]
    lower = gaps.index(min(gaps))
    ffi.cast("unsigned char *", objects[lower + 1])[-1] = 7
    lib.sw_heap_free(heap, ffi.cast("void *", objects[lower]))
    lib.sw_heap_free(heap, ffi.cast("void *", objects[lower + 1]))


def heap_overflow_then_realloc(heap: Any, size: int) -> None:
    p = filled(heap, size)
    at(p)[size] = 7
    lib.sw_heap_free(heap, lib.sw_heap_realloc(heap, p, size + 100, 0))


def heap_overflow_then_verify(heap: Any, size: int) -> None:
    at(filled(heap, size))[size] = 7
    verify(heap)


def verify(heap: Any) -> None:
    """Print the error of sw_heap_verify as a fault, and end as one."""
    if lib.sw_heap_verify(heap) != 0:
        os.write(2, b"verify: " + ffi.string(lib.sw_last_error().message) + b"\n")
        os.abort()


def heap_write_after_free(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_free(heap, p)
    at(p)[size // 2] = 3
    go_on(heap, size)


def heap_write_after_free_then_verify(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_free(heap, p)
    at(p)[size // 2] = 3
    verify(heap)


def heap_read_after_free(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_free(heap, p)
    read(p, size // 2)


def heap_double_free(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_free(heap, p)
    lib.sw_heap_free(heap, p)


def heap_double_free_later(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_free(heap, p)
    for _ in range(8):
        lib.sw_heap_free(heap, filled(heap, size))
    lib.sw_heap_free(heap, p)


def heap_free_inside(heap: Any, size: int) -> None:
    lib.sw_heap_free(heap, at(filled(heap, size)) + 16)


def heap_free_of_stack(heap: Any, size: int) -> None:
    lib.sw_heap_free(heap, ffi.new("char[]", size) + 8)


def heap_free_in_other_heap(heap: Any, size: int) -> None:
    lib.sw_heap_free(heap_of("default"), filled(heap, size))


def heap_free_with_larger_size(heap: Any, size: int) -> None:
    lib.sw_heap_free_sized(heap, filled(heap, size), 2 * size)


def heap_free_with_size_of_class(heap: Any, size: int) -> None:
    lib.sw_heap_free_sized(heap, filled(heap, size), size - 1)


def heap_realloc_after_free(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_free(heap, p)
    lib.sw_heap_realloc(heap, p, size + 1, 0)


def heap_free_after_realloc(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_realloc(heap, p, 3 * size + 4096, 0)
    lib.sw_heap_free(heap, p)


def heap_usable_after_free(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_free(heap, p)
    lib.sw_heap_usable_size(heap, p)


def heap_write_to_size_0(heap: Any, size: int) -> None:
    at(lib.sw_heap_alloc(heap, 0, 0))[0] = 1


def heap_write_to_size_0_and_arena(heap: Any, size: int) -> None:
    arena_object(arena_of(heap, safe=True), size)  # which handles faults, too
    heap_write_to_size_0(heap, size)


def heap_alloc_after_destroy(heap: Any, size: int) -> None:
    lib.sw_heap_destroy(heap)
    lib.sw_heap_alloc(heap, size, 0)


def heap_free_after_destroy(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_heap_destroy(heap)
    lib.sw_heap_free(heap, p)


def heap_alloc_of_closed_cache(heap: Any, size: int) -> None:
    cache = output_of(lib.sw_cache_open, heap)
    lib.sw_cache_close(cache)
    lib.sw_cache_alloc(cache, size, 0)


def heap_free_by_closed_cache(heap: Any, size: int) -> None:
    cache = output_of(lib.sw_cache_open, heap)
    lib.sw_cache_close(cache)
    lib.sw_cache_free(cache, filled(heap, size))


# --- pools ----------------------------------------------------------------------------------------


def pool_of(heap: Any, size: int, watched: bool = False) -> Any:
    pool = output_of(lib.sw_pool_create, options_of("sw_pool_options", heap=heap, item_bytes=size))
    if watched:
        lib.sw_pool_watch_puts(pool)
    return pool


def pool_overflow(heap: Any, size: int) -> None:
    pool = pool_of(heap, size)
    item = lib.sw_pool_get(pool)
    at(item)[size] = 7
    lib.sw_pool_put(pool, item, size)
    lib.sw_pool_destroy(pool)


def pool_double_put(heap: Any, size: int) -> None:
    pool = pool_of(heap, size)
    item = lib.sw_pool_get(pool)
    lib.sw_pool_put(pool, item, size)
    lib.sw_pool_put(pool, item, size)
    lib.sw_pool_destroy(pool)


def pool_double_put_watched(heap: Any, size: int) -> None:
    pool = pool_of(heap, size, watched=True)
    item = lib.sw_pool_get(pool)
    lib.sw_pool_put(pool, item, size)
    lib.sw_pool_put(pool, item, size)


def pool_free_of_idle_item(heap: Any, size: int) -> None:
    pool = pool_of(heap, size)
    item = lib.sw_pool_get(pool)
    lib.sw_pool_put(pool, item, size)
    lib.sw_heap_free(heap, item)
    lib.sw_pool_destroy(pool)


def pool_put_inside(heap: Any, size: int) -> None:
    pool = pool_of(heap, size)
    lib.sw_pool_put(pool, at(lib.sw_pool_get(pool)) + 8, size)
    lib.sw_pool_destroy(pool)


def pool_put_of_stack(heap: Any, size: int) -> None:
    pool = pool_of(heap, size)
    lib.sw_pool_put(pool, text("x" * size), size)
    lib.sw_pool_destroy(pool)


def pool_write_after_put(heap: Any, size: int) -> None:
    pool = pool_of(heap, size)
    item = lib.sw_pool_get(pool)
    lib.sw_pool_put(pool, item, size)
    at(item)[size // 2] = 3
    lib.sw_pool_destroy(pool)


def pool_write_after_destroy(heap: Any, size: int) -> None:
    pool = pool_of(heap, size)
    item = lib.sw_pool_get(pool)
    lib.sw_pool_put(pool, item, size)
    lib.sw_pool_destroy(pool)
    at(item)[size // 2] = 3
    go_on(heap, size)


def pool_get_after_destroy(heap: Any, size: int) -> None:
    pool = pool_of(heap, size)
    lib.sw_pool_destroy(pool)
    lib.sw_pool_get(pool)


# --- arenas ---------------------------------------------------------------------------------------


def arena_of(heap: Any, safe: bool = False) -> Any:
    options = options_of("sw_arena_options", heap=heap, safe=int(safe), mode=lib.SW_ARENA_AUTO)
    return output_of(lib.sw_arena_create, options)


def arena_object(arena: Any, size: int) -> Any:
    p = lib.sw_arena_alloc(arena, size, 8, 0)
    ffi.memmove(p, b"\1" * size, size)
    return p


def arena_overflow(heap: Any, size: int) -> None:
    arena = arena_of(heap)
    arena_object(arena, size)  # the next one is before it
    at(arena_object(arena, size))[size] = 7
    lib.sw_arena_free(arena)


def arena_free_of_object(heap: Any, size: int) -> None:
    lib.sw_heap_free(heap, arena_object(arena_of(heap), size))


def arena_read_after_free(heap: Any, size: int) -> None:
    arena = arena_of(heap)
    p = arena_object(arena, size)
    lib.sw_arena_free(arena)
    read(p, 0)


def arena_write_after_reset(heap: Any, size: int) -> None:
    arena = arena_of(heap)
    p = arena_object(arena, size)
    lib.sw_arena_reset(arena)
    at(p)[0] = 7
    lib.sw_arena_free(arena)


def arena_double_free(heap: Any, size: int) -> None:
    arena = arena_of(heap)
    arena_object(arena, size)
    lib.sw_arena_free(arena)
    lib.sw_arena_free(arena)


def arena_alloc_after_free(heap: Any, size: int) -> None:
    arena = arena_of(heap)
    lib.sw_arena_free(arena)
    lib.sw_arena_alloc(arena, size, 8, 0)


def safe_read_after_free(heap: Any, size: int) -> None:
    arena = arena_of(heap, safe=True)
    p = arena_object(arena, size)
    lib.sw_arena_free(arena)
    read(p, 0)


def safe_write_after_reset(heap: Any, size: int) -> None:
    arena = arena_of(heap, safe=True)
    p = arena_object(arena, size)
    lib.sw_arena_reset(arena)
    at(p)[0] = 7


def safe_read_after_free_and_heap(heap: Any, size: int) -> None:
    arena = arena_of(heap, safe=True)
    p = arena_object(arena, size)
    heap_of("hardened")  # which handles faults, too
    lib.sw_arena_free(arena)
    read(p, 0)


def safe_overflow(heap: Any, size: int) -> None:
    arena = arena_of(heap, safe=True)
    arena_object(arena, size)
    at(arena_object(arena, size))[size] = 7
    lib.sw_arena_free(arena)


# --- collected heaps ------------------------------------------------------------------------------


def collected_use_after_destroy(heap: Any, size: int) -> None:
    lib.sw_gc_destroy(_keep[-1])
    lib.sw_heap_alloc(heap, size, 0)


def collected_double_destroy(heap: Any, size: int) -> None:
    lib.sw_gc_destroy(_keep[-1])
    lib.sw_gc_destroy(_keep[-1])


def collected_use_after_collection(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_gc_collect(_keep[-1], ffi.NULL)
    read(p, 0)


def collected_free_after_collection(heap: Any, size: int) -> None:
    p = filled(heap, size)
    lib.sw_gc_collect(_keep[-1], ffi.NULL)
    lib.sw_heap_free(heap, p)


def collected_of(profile: str) -> Any:
    del profile
    gc = output_of(lib.sw_gc_create, ffi.NULL)
    _keep.append(gc)
    return lib.sw_gc_heap(gc)


# --- running --------------------------------------------------------------------------------------

MISTAKES: dict[str, dict[str, Callable[[Any, int], None]]] = {
    "heap": {
        "nothing": lambda heap, size: lib.sw_heap_free(heap, filled(heap, size)),
        "overflow_1": heap_overflow(1),
        "overflow_8": heap_overflow(8),
        "overflow_32": heap_overflow(32),
        "overflow_found_by_realloc": heap_overflow_then_realloc,
        "overflow_found_by_verify": heap_overflow_then_verify,
        "underflow_1": heap_underflow,
        "overread": heap_overread,
        "write_after_free": heap_write_after_free,
        "write_after_free_found_by_verify": heap_write_after_free_then_verify,
        "read_after_free": heap_read_after_free,
        "double_free": heap_double_free,
        "double_free_later": heap_double_free_later,
        "free_inside": heap_free_inside,
        "free_of_stack": heap_free_of_stack,
        "free_in_other_heap": heap_free_in_other_heap,
        "free_with_larger_size": heap_free_with_larger_size,
        "free_with_size_of_class": heap_free_with_size_of_class,
        "realloc_after_free": heap_realloc_after_free,
        "free_after_realloc": heap_free_after_realloc,
        "usable_after_free": heap_usable_after_free,
        "write_to_size_0": heap_write_to_size_0,
        "write_to_size_0_and_safe_arena": heap_write_to_size_0_and_arena,
        "alloc_after_destroy": heap_alloc_after_destroy,
        "free_after_destroy": heap_free_after_destroy,
        "alloc_of_closed_cache": heap_alloc_of_closed_cache,
        "free_by_closed_cache": heap_free_by_closed_cache,
    },
    "pool": {
        "overflow_1": pool_overflow,
        "double_put": pool_double_put,
        "double_put_watched": pool_double_put_watched,
        "free_of_idle_item": pool_free_of_idle_item,
        "put_inside": pool_put_inside,
        "put_of_stack": pool_put_of_stack,
        "write_after_put": pool_write_after_put,
        "write_after_destroy": pool_write_after_destroy,
        "get_after_destroy": pool_get_after_destroy,
    },
    "arena": {
        "overflow_1": arena_overflow,
        "free_of_object": arena_free_of_object,
        "read_after_free": arena_read_after_free,
        "write_after_reset": arena_write_after_reset,
        "double_free": arena_double_free,
        "alloc_after_free": arena_alloc_after_free,
        "safe_read_after_free": safe_read_after_free,
        "safe_read_after_free_and_heap": safe_read_after_free_and_heap,
        "safe_write_after_reset": safe_write_after_reset,
        "safe_overflow_1": safe_overflow,
    },
    "collected": {
        "nothing": lambda heap, size: lib.sw_heap_free(heap, filled(heap, size)),
        "overflow_1": heap_overflow(1),
        "double_free": heap_double_free,
        "write_after_free": heap_write_after_free,
        "free_inside": heap_free_inside,
        "free_of_stack": heap_free_of_stack,
        "free_with_larger_size": heap_free_with_larger_size,
        "realloc_after_free": heap_realloc_after_free,
        "use_after_collection": collected_use_after_collection,
        "free_after_collection": collected_free_after_collection,
        "alloc_after_destroy": collected_use_after_destroy,
        "double_destroy": collected_double_destroy,
    },
}
"""By kind of allocator: what commits each mistake, with a heap and a size."""


def profiles_of(kind: str) -> tuple[str, ...]:
    """Return the profiles that heaps of the kind may have."""
    return COLLECTED_PROFILES if kind == "collected" else PROFILES


def run(kind: str, mistake: str, size: int, profile: str) -> tuple[int, str]:
    """Commit a mistake in a child; return its status and its first line on standard error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        heap = collected_of(profile) if kind == "collected" else heap_of(profile)
        MISTAKES[kind][mistake](heap, size)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        said = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, (said.splitlines() or [""])[0]


def main() -> None:
    """Run each case."""
    for kind, mistakes in MISTAKES.items():
        for mistake in mistakes:
            for profile in profiles_of(kind):
                for size in SIZES:
                    status, line = run(kind, mistake, size, profile)
                    print(json.dumps([kind, mistake, profile, size, status, line]), flush=True)


if __name__ == "__main__":
    main()
