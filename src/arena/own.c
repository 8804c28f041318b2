/* SPDX-License-Identifier: Apache-2.0 */
/* Objects outside chunks (own.h). */
#include "arena/own.h"

#include <stdlib.h>
#include <string.h>

#include "arena/track.h"
#include "base/bits.h"
#include "base/fail.h"
#include "heap/arena_object.h"

/* C11 requires a size that is a multiple of the alignment. */
static void *alloc_of_library(size_t size, size_t align, unsigned flags) {
    if (align < sizeof(void *)) align = sizeof(void *);
    size_t bytes = sw_align_up(size, align);
    void *object = bytes < size ? NULL : aligned_alloc(align, bytes);
    if (object != NULL && (flags & (SW_ZERO | SW_SCAN)) != 0) memset(object, 0, size);
    return object;
}

/* --- blocks of the heap ----------------------------------------------------------------------- */

/* A block of the heap has whole pages, so objects of up to a page share blocks. The blocks of an
 * arena's first few objects are no longer than necessary. In a collected heap each object has its
 * own block, because a mark keeps the whole block and its referents alive. */
enum { SHARED_MAX = 8192, BLOCK_BYTES = 32768, FIRST_FEW = 4, SEARCHED = 8 };

/* Places the object after the newest one of its kind, if that one's block has room. Blocks are
 * freed in reverse order, so the space is free again when the objects of a savepoint end. */
static bool share_block(const sw_arena *arena, sw_arena_own *made, size_t align) {
    const sw_arena_own *own = arena->own;
    for (int i = 0; own != NULL && i < SEARCHED; own = own->next, i++)
        if (own->room_end != 0 && own->scan == made->scan) break;
    if (own == NULL || own->room_end == 0 || own->scan != made->scan) return false;
    uintptr_t at = sw_align_up((uintptr_t)own->object + own->bytes, align);
    if (at > own->room_end || own->room_end - at < made->bytes) return false;
    made->object = (void *)at;
    made->room_end = own->room_end;
    return true;
}

/* Allocates a new block for the object and, if it is short, for more. */
static void take_block(const sw_arena *arena, sw_arena_own *made, size_t align, unsigned flags) {
    sw_heap *heap = arena->heap != NULL ? arena->heap : sw_heap_default();
    if (heap == NULL) return;
    bool shared = made->bytes <= SHARED_MAX && align <= SHARED_MAX && !sw_heap_is_collected(heap);
    size_t size = shared && arena->own_objects >= FIRST_FEW ? BLOCK_BYTES : made->bytes, usable = 0;
    made->block = sw_arena_object_alloc(heap, size, align, flags, &usable);
    if (made->block == NULL && size > made->bytes)
        made->block = sw_arena_object_alloc(heap, made->bytes, align, flags, &usable);
    made->object = made->block;
    if (shared) made->room_end = (uintptr_t)made->block + usable;
}

/* --- objects ---------------------------------------------------------------------------------- */

/* Sets made->object; NULL: no memory. */
static void alloc_object(const sw_arena *arena, sw_arena_own *made, size_t align, unsigned flags) {
    if (arena->mode == SW_ARENA_OFF) {
        made->object = made->block = alloc_of_library(made->bytes, align, flags);
        return;
    }
    if ((flags & SW_SCAN) != 0) flags |= SW_ZERO;
    if (share_block(arena, made, align)) {
        if ((flags & SW_ZERO) != 0) memset(made->object, 0, made->bytes);
        return;
    }
    take_block(arena, made, align, flags);
}

static void free_block(const sw_arena *arena, void *block) {
    if (arena->mode == SW_ARENA_OFF)
        free(block);
    else if (block != NULL)
        sw_arena_object_free(arena->heap != NULL ? arena->heap : sw_heap_default(), block);
}

void *sw_arena_own_alloc(sw_arena *arena, size_t size, size_t align, unsigned flags) {
    sw_arena_own *own = sw_chunk_new_record(sizeof *own);
    if (own != NULL) {
        *own = (sw_arena_own){.next = arena->own, .bytes = size, .scan = (flags & SW_SCAN) != 0};
        alloc_object(arena, own, align, flags);
    }
    if (own == NULL || own->object == NULL) {
        if (own != NULL) sw_chunk_drop_record(own, sizeof *own);
        (void)sw_fail(SW_NOMEM, "arena_alloc", "no memory for an object of %llu bytes",
                      (unsigned long long)size);
        return NULL;
    }
    arena->own = own;
    arena->own_objects++;
    arena->own_bytes += size;
    sw_track_add_own(arena, (int64_t)size);
    return own->object;
}

void sw_arena_own_free(sw_arena *arena, const sw_arena_own *last) {
    while (arena->own != last) {
        sw_arena_own *own = arena->own;
        arena->own = own->next;
        arena->own_objects--;
        arena->own_bytes -= own->bytes;
        sw_track_add_own(arena, -(int64_t)own->bytes);
        free_block(arena, own->block);
        sw_chunk_drop_record(own, sizeof *own);
    }
}
