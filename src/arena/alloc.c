/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates from arenas: objects, slices, copies, an allocator. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/chunk_cache.h"
#include "arena/track.h"
#include "base/base.h"
#include "heap/alloc.h"

/* --- objects outside chunks ------------------------------------------------------------------- */

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

/* Allocates an object from the arena's heap or, in mode OFF, the C library, zeroed if flags say
 * so. NULL: no memory; the last error is set. */
static void *sw_arena_own_alloc(sw_arena *arena, size_t size, size_t align, unsigned flags) {
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

/* --- objects ---------------------------------------------------------------------------------- */

enum { USUAL_ALIGN = 16, WATCHED_ALIGN = 8, WATCHED_GAP = 16 };

/* --- the ends --------------------------------------------------------------------------------- */

/* Cuts size bytes off an end. NULL: not enough is free. size is at most PTRDIFF_MAX. */
static sw_always_inline void *cut(sw_arena_ends *ends, size_t size, size_t align, unsigned flags) {
    uintptr_t front = ends->front, back = ends->back;
    if ((flags & SW_SCAN) != 0) {
        uintptr_t skipped = -front & (align - 1);
        if (sw_unlikely(back - front < skipped || back - front - skipped < size)) return NULL;
        ends->front = front + skipped + size;
        return (void *)(front + skipped);
    }
    if (sw_unlikely(back - front < size)) return NULL;
    uintptr_t at = sw_align_down(back - size, align);
    if (sw_unlikely(at < front || back == 0)) return NULL;
    ends->back = at;
    return (void *)at;
}

static sw_always_inline void *cleared(void *object, size_t size, unsigned flags) {
    if ((flags & (SW_SCAN | SW_ZERO)) != 0) memset(object, 0, size);
    return object;
}

/* Clears the bytes after an object that may hold pointers, because a collector reads them (hold.c).
 * A memory checker forbids them before and after. */
static void forbid_gap(char *gap, size_t bytes, unsigned flags) {
    if ((flags & SW_SCAN) == 0) return;
    sw_os_watch_allow(gap, bytes);
    memset(gap, 0, bytes);
    sw_os_watch_forbid(gap, bytes);
}

/* As cut. Under a memory checker a red zone follows the object. */
static void *cut_slow(sw_arena *arena, size_t size, size_t align, unsigned flags) {
    if (arena->is_watched == 0) return cut(arena->ends, size, align, flags);
    size_t wide = sw_align_up(size, WATCHED_ALIGN) + WATCHED_GAP;
    void *object = cut(arena->ends, wide, align < WATCHED_ALIGN ? WATCHED_ALIGN : align, flags);
    if (object == NULL) return NULL;
    forbid_gap((char *)object + size, wide - size, flags);
    sw_os_watch_object(arena, object, size);
    return object;
}

/* --- the slow path ---------------------------------------------------------------------------- */

static sw_cold void *refuse(size_t size, size_t align) {
    if (!sw_is_pow2(align)) {
        (void)sw_fail(SW_INVALID, "arena_alloc",
                      "alignment %llu: use a power of two, or 0 for the usual one",
                      (unsigned long long)align);
        errno = EINVAL;
    } else {
        (void)sw_fail(SW_NOMEM, "arena_alloc", "an object of %llu bytes aligned to %llu",
                      (unsigned long long)size, (unsigned long long)align);
        errno = ENOMEM;
    }
    return NULL;
}

/* The arguments of a call. */
typedef struct request {
    size_t size, align;
    unsigned flags;
    const char *type;
    uintptr_t caller;
} request;

/* Returns whether the object comes from the heap, or the C library, by the rules of the mode. */
static bool is_own(const sw_arena *arena, const request *ask) {
    uint64_t most = (UINT64_C(1) << arena->log2) / 4;
    return arena->mode == SW_ARENA_OFF || ask->size > most || ask->align > most - ask->size;
}

/* Allocates the object from the newest chunk, else from another one, else from the heap. */
static void *take(sw_arena *arena, const request *ask) {
    size_t size = ask->size, align = ask->align;
    void *object = cut_slow(arena, size, align, ask->flags);
    if (object != NULL) return cleared(object, size, ask->flags);
    if (is_own(arena, ask)) return sw_arena_own_alloc(arena, size, align, ask->flags);
    bool falls_back = arena->mode != SW_ARENA_FORCE;
    if ((falls_back ? sw_arena_try_refill(arena) : sw_arena_refill(arena)) == SW_OK)
        return cleared(cut_slow(arena, size, align, ask->flags), size, ask->flags);
    if (!falls_back) return NULL;
    object = sw_arena_own_alloc(arena, size, align, ask->flags);
    if (object != NULL) arena->fallbacks++;
    return object;
}

/* Allocates a big object of a safe arena in its own chunk. */
static void *take_big(sw_arena *arena, const request *ask) {
    sw_status status;
    size_t extra = ask->align > sw_os_page_bytes() ? ask->align : 0;
    sw_chunk *chunk = extra > PTRDIFF_MAX - ask->size
                          ? NULL
                          : sw_arena_take_big(arena, ask->size + extra, &status);
    if (chunk == NULL) return NULL;
    void *object = (void *)sw_align_up(chunk->base, ask->align);
    sw_os_watch_forbid((const void *)chunk->base, chunk->bytes);
    sw_os_watch_object(arena, object, ask->size);
    if ((ask->flags & SW_SCAN) != 0) chunk->front = (uintptr_t)object + ask->size;
    return cleared(object, ask->size, ask->flags);
}

/* Allocates an object of a safe arena and records it in the log. */
static void *take_noted(sw_arena *arena, const request *ask) {
    void *object = is_own(arena, ask) ? take_big(arena, ask) : take(arena, ask);
    sw_log_object note = {(uintptr_t)object, ask->size, ask->type, ask->caller};
    if (object == NULL || sw_arena_log_add(arena->log, &note)) return object;
    (void)sw_fail(SW_NOMEM, "arena_alloc", "no memory for the log of a safe arena");
    return NULL;
}

static sw_noinline void *alloc_slow(sw_arena *arena, request *ask) {
    if (ask->size == 0) ask->size = 1;
    if (!sw_is_pow2(ask->align) || ask->size > PTRDIFF_MAX || ask->align > PTRDIFF_MAX)
        return refuse(ask->size, ask->align);
    if (!sw_arena_has_entered(arena, "arena_alloc")) {
        errno = EINVAL;
        return NULL;
    }
    sw_check2(sw_arena_record_check(arena));
    void *object = arena->log != NULL ? take_noted(arena, ask) : take(arena, ask);
    if (object != NULL) sw_track_alloc(arena, object, ask->size);
    sw_arena_leave(arena);
    if (object == NULL) errno = ENOMEM;
    return object;
}

/* Fast path of a safe arena: serves its owner while the newest chunk and the newest page of the log
 * have room. NULL: take the slow path. */
static sw_noinline void *alloc_noted(sw_arena *arena, const request *ask) {
    const sw_arena_chunk_cache *chunk_cache = sw_arena_chunk_cache_own();
    sw_log_page *page = arena->log->pages;
    if (sw_unlikely(page == NULL) || page->count == SW_LOG_OBJECTS || chunk_cache == NULL ||
        chunk_cache->number != __atomic_load_n(&arena->owner, __ATOMIC_RELAXED) ||
        is_own(arena, ask))
        return NULL;
    sw_check2(sw_arena_record_check(arena));
    void *object = cut(arena->ends, ask->size, ask->align, ask->flags);
    if (object == NULL) return NULL;
    page->objects[page->count++] =
        (sw_log_object){(uintptr_t)object, ask->size, ask->type, ask->caller};
    return cleared(object, ask->size, ask->flags);
}

/* --- calls ------------------------------------------------------------------------------------ */

static sw_always_inline bool is_plain(const sw_arena *arena, size_t size, size_t align) {
    return sw_handle_lives(arena, SW_ARENA_MARK, SW_HANDLE_ARENA) && size - 1 < PTRDIFF_MAX &&
           sw_is_pow2(align);
}

/* Inlined into each public call, so that the return address is the program's. */
static sw_always_inline void *alloc(sw_arena *arena, size_t size, size_t align, unsigned flags,
                                    const char *type) {
    if (align == 0) align = USUAL_ALIGN;
    void *object = NULL;
    bool plain = is_plain(arena, size, align);
    if (sw_likely(plain)) object = cut(&arena->open, size, align, flags);
    if (sw_likely(object != NULL)) return cleared(object, size, flags);
    request ask = {size, align, flags, type, (uintptr_t)__builtin_return_address(0)};
    if (plain && arena->is_noted != 0) object = alloc_noted(arena, &ask);
    return object != NULL ? object : alloc_slow(arena, &ask);
}

void *sw_arena_alloc(sw_arena *arena, size_t size, size_t align, unsigned flags) {
    return alloc(arena, size, align, flags, NULL);
}

void *sw_arena_alloc_typed(sw_arena *arena, size_t size, size_t align, unsigned flags,
                           const char *type) {
    return alloc(arena, size, align, flags, type);
}

void *sw_arena_make_slice(sw_arena *arena, size_t count, size_t size, size_t align,
                          unsigned flags) {
    size_t bytes;
    if (sw_unlikely(sw_mul_overflow(count, size, &bytes))) {
        (void)sw_fail(SW_NOMEM, "arena_make_slice", "%llu elements of %llu bytes",
                      (unsigned long long)count, (unsigned long long)size);
        errno = ENOMEM;
        return NULL;
    }
    return alloc(arena, bytes, align, flags, NULL);
}

/* --- copies ----------------------------------------------------------------------------------- */

/* Returns whether the object belonged to a freed arena: its chunk has no arena. */
static bool is_gone(const void *object) {
    const sw_chunk *chunk = sw_chunk_find(object);
    return chunk != NULL && __atomic_load_n(&chunk->arena, __ATOMIC_ACQUIRE) == NULL;
}

void *sw_arena_clone(sw_arena *arena, const void *object, size_t size, unsigned flags) {
    if (!sw_handle_check(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, "arena_clone") ||
        (object == NULL && size != 0 && sw_fail_null("arena_clone", "object") != SW_OK)) {
        errno = EINVAL;
        return NULL;
    }
    if (is_gone(object)) {
        sw_arena_report_use("arena_clone", object);
        errno = EINVAL;
        return NULL;
    }
    sw_heap *heap = arena->heap != NULL ? arena->heap : sw_heap_default();
    void *copy = heap == NULL ? NULL : sw_heap_alloc(heap, size, flags);
    if (copy != NULL && size > 0) memcpy(copy, object, size);
    return copy;
}

/* --- an allocator ----------------------------------------------------------------------------- */

static void *allocate(void *context, size_t bytes, size_t align) {
    return sw_arena_alloc(context, bytes, align, SW_ZERO);
}

static void release(void *context, void *block, size_t bytes) {
    (void)context; /* the arena frees it */
    (void)block;
    (void)bytes;
}

sw_allocator sw_arena_allocator(sw_arena *arena) {
    sw_allocator allocator = {0};
    if (sw_handle_check(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, "arena_allocator"))
        allocator = (sw_allocator){allocate, release, arena};
    return allocator;
}
