/* SPDX-License-Identifier: Apache-2.0 */
/* Passes an arena's roots to a collector: the front part of each chunk, which has the objects with
 * pointers, and own objects. */
#include "arena/enter.h"
#include "base/bits.h"
#include "base/fail.h"
#include "gc/type.h"

/* Lends the whole words of [start, end). */
static bool lend(sw_gc_array *ranges, uintptr_t start, uintptr_t end) {
    start = sw_align_up(start, sizeof(uintptr_t));
    return start >= end || sw_gc_lend(ranges, (const void *)start, end - start);
}

static bool lend_chunks(const sw_arena *arena, sw_gc_array *ranges) {
    bool has_all = true;
    for (const sw_chunk *chunk = arena->chunks; chunk != NULL; chunk = chunk->next) {
        uintptr_t front = chunk == arena->chunks ? arena->ends->front : chunk->front;
        if (arena->is_watched != 0)
            sw_os_watch_allow((const void *)chunk->base, front - chunk->base);
        has_all = lend(ranges, chunk->base, front) && has_all;
    }
    return has_all;
}

/* Lends a reference to each own object, which may be one of the collector's heap, and the words of
 * those that may hold pointers. */
static bool lend_own(const sw_arena *arena, sw_gc_array *ranges) {
    bool has_all = true;
    for (const sw_arena_own *own = arena->own; own != NULL; own = own->next) {
        uintptr_t at = (uintptr_t)own->object;
        has_all = sw_gc_lend(ranges, &own->object, sizeof own->object) && has_all;
        if (own->scan != 0) has_all = lend(ranges, at, at + own->bytes) && has_all;
    }
    return has_all;
}

/* The world is stopped, so no other thread uses the arena. */
static bool lend_all(sw_gc_source *source, sw_gc_array *ranges) {
    const sw_arena *arena =
        (const sw_arena *)(const void *)((const char *)source - offsetof(sw_arena, source));
    bool has_chunks = lend_chunks(arena, ranges);
    return lend_own(arena, ranges) && has_chunks;
}

sw_status sw_arena_attach(sw_arena *arena, sw_gc *gc) {
    sw_status status = sw_arena_enter(arena, "arena_attach");
    if (status != SW_OK) return status;
    if (gc == NULL) {
        sw_gc_remove_source(&arena->source);
    } else if (arena->source.gc != NULL && arena->source.gc != gc) {
        status = sw_fail(SW_STATE, "arena_attach",
                         "another collector sees the arena: attach it to NULL first");
    } else {
        status = SW_GC_STATUS(gc, "arena_attach");
        if (status == SW_OK && arena->source.gc == NULL) {
            arena->source.lend = lend_all;
            sw_gc_add_source(gc, &arena->source);
        }
    }
    sw_arena_leave(arena);
    return status;
}
