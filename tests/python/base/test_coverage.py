# SPDX-License-Identifier: Apache-2.0
"""Python reaches the functions of the public headers, or a reason says why it does not."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "python/spanwise"
RECORD = ROOT / "tests/data/interface.txt"
"""The functions of include/spanwise/*.h; scripts/check_interface.py compares it with them."""

UNREACHED = {
    "a slow path of an inline function": (
        "sw_alloc_slow sw_free_slow sw_cache_emptied sw_memory_push_slow sw_reader_be_slow"
        " sw_reader_leb_slow sw_reader_skip_slow sw_range_find_thread sw_gc_type_allocator_begin"
    ),
    "the process's malloc; Python has `Heap`": (
        "sw_malloc sw_calloc sw_realloc sw_aligned_alloc sw_free_sized sw_usable_size"
        " sw_heap_default sw_heap_default_init"
    ),
    "calls a function inside the library, with its locks held; Python code could call back": (
        "sw_heap_set_limit_hook sw_heap_each_object sw_pool_set_constructor sw_slabs_set_alert"
        " sw_gc_set_type_finalizer sw_set_fault_handler sw_arena_set_nodes"
    ),
    "another function that Python calls includes it": (
        "sw_heap_options_fill sw_heap_ledger_read sw_optimizer_create sw_runner_address"
        " sw_gc_safepoint sw_allocator_libc sw_allocator_system sw_table_go sw_table_c16"
        " sw_range_free_size sw_stack_release"
    ),
    "the Python object knows it": (
        "sw_heap_is_dry sw_heap_table sw_backing_name sw_range_backend_name sw_misuse_name"
        " sw_misuse_text sw_version_number sw_trace_meta_find sw_trace_rewind"
    ),
    "Python objects free, own or check themselves, so that nothing dangles": (
        "sw_arena_adopt sw_scalable_adopt sw_scalable_reset sw_gc_ref_set sw_pool_watch_puts"
    ),
    "`Memory`, `Reader` and `RecyclableMemory` do it on Python's buffers": (
        "sw_memory_append sw_memory_copy_from sw_memory_drop_front sw_memory_equal"
        " sw_memory_read_from sw_memory_to_bytes sw_reader_current sw_reader_write_to"
        " sw_recyclable_add sw_recyclable_clip_front sw_recyclable_clone sw_recyclable_end"
        " sw_recyclable_init sw_recyclable_next sw_recyclable_recycle sw_scalable_read"
    ),
    "for C structures": "sw_arena_allocator sw_arena_alloc_typed",
}


def exported() -> set[str]:
    """Return the functions, without variables, that the headers declare."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()[1:]
    return {found[1] for line in lines if (found := re.match(r"name (\w+): .*\)$", line))}


def reached() -> set[str]:
    """Return the C functions that the package names."""
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py")))
    filled = re.findall(r'options_of\(\s*"(\w+)"', text)  # it calls the `_init` function
    return {*re.findall(r"\blib\.(sw_\w+)", text), *(f"{name}_init" for name in filled)}


def test_each_public_function_is_reached_or_has_a_reason() -> None:
    excepted = [name for names in UNREACHED.values() for name in names.split()]
    assert len(set(excepted)) == len(excepted)
    assert sorted(exported() - reached()) == sorted(excepted)
