/* SPDX-License-Identifier: Apache-2.0 */
/* Objects in no chunk (own.h). */
#include "arena/own.h"

#include <stdlib.h>
#include <string.h>

#include "arena/track.h"
#include "base/bits.h"
#include "base/fail.h"

/* C11 wants a size that is a multiple of the alignment. */
static void *alloc_of_library(size_t size, size_t align, unsigned flags) {
    if (align < sizeof(void *)) align = sizeof(void *);
    size_t bytes = sw_align_up(size, align);
    void *object = bytes < size ? NULL : aligned_alloc(align, bytes);
    if (object != NULL && (flags & (SW_ZERO | SW_SCAN)) != 0) memset(object, 0, size);
    return object;
}

static void *alloc_object(sw_arena *arena, size_t size, size_t align, unsigned flags) {
    if (arena->mode == SW_ARENA_OFF) return alloc_of_library(size, align, flags);
    sw_heap *heap = arena->heap != NULL ? arena->heap : sw_heap_default();
    if ((flags & SW_SCAN) != 0) flags |= SW_ZERO;
    return heap == NULL ? NULL : sw_heap_alloc_aligned(heap, size, align, flags);
}

static void free_object(const sw_arena *arena, void *object) {
    if (arena->mode == SW_ARENA_OFF)
        free(object);
    else
        sw_heap_free(arena->heap != NULL ? arena->heap : sw_heap_default(), object);
}

void *sw_arena_own_alloc(sw_arena *arena, size_t size, size_t align, unsigned flags) {
    sw_arena_own *own = sw_chunk_new_record(sizeof *own);
    void *object = own == NULL ? NULL : alloc_object(arena, size, align, flags);
    if (object == NULL) {
        if (own != NULL) sw_chunk_drop_record(own, sizeof *own);
        (void)sw_fail(SW_NOMEM, "arena_alloc", "no memory for an object of %llu bytes",
                      (unsigned long long)size);
        return NULL;
    }
    *own = (sw_arena_own){
        .next = arena->own, .object = object, .bytes = size, .scan = (flags & SW_SCAN) != 0};
    arena->own = own;
    arena->own_objects++;
    arena->own_bytes += size;
    sw_track_add_own(arena, (int64_t)size);
    return object;
}

void sw_arena_own_free(sw_arena *arena, const sw_arena_own *last) {
    while (arena->own != last) {
        sw_arena_own *own = arena->own;
        arena->own = own->next;
        arena->own_objects--;
        arena->own_bytes -= own->bytes;
        sw_track_add_own(arena, -(int64_t)own->bytes);
        free_object(arena, own->object);
        sw_chunk_drop_record(own, sizeof *own);
    }
}
