/* SPDX-License-Identifier: Apache-2.0 */
/* Owners of arenas, holds, references to objects of arenas, roots, forks and statistics. */
#include "arena/arena.h"
#include "arena/chunk_cache.h"
#include "arena/track.h"
#include "base/base.h"
#include "gc/type.h"

/* --- checks ----------------------------------------------------------------------------------- */

static const char *check_ends(const sw_arena *arena) {
    const sw_arena_ends *ends = arena->ends;
    const sw_chunk *chunk = arena->chunks;
    if (chunk == NULL) return SW_RULE(ends->front == 0 && ends->back == 0);
    return SW_RULE(ends->front >= chunk->base)
               ?: SW_RULE(ends->front <= ends->back)
               ?: SW_RULE(ends->back <= chunk->base + chunk->bytes);
}

const char *sw_arena_record_check(const sw_arena *arena) {
    bool is_open = arena->ends == &arena->open;
    return SW_RULE(is_open || arena->ends == &arena->hidden)
               ?: SW_RULE(is_open || (arena->open.front == 0 && arena->open.back == 0))
               ?: check_ends(arena)
               ?: SW_RULE(arena->mode >= 1 && arena->mode < SW_ARENA_MODE_COUNT)
               ?: SW_RULE((arena->own == NULL) == (arena->own_objects == 0))
               ?: SW_RULE(arena->log == NULL || (arena->own == NULL && !is_open))
               ?: SW_RULE(arena->reports_allocs == 0 || !is_open)
               ?: SW_RULE(arena->is_noted == 0 || arena->log != NULL)
               ?: SW_RULE(arena->is_noted == 0 || !sw_arena_is_observed(arena))
               ?: SW_RULE(arena->limit_bytes == 0 || arena->held_bytes <= arena->limit_bytes);
}

/* --- owners ----------------------------------------------------------------------------------- */

sw_status sw_arena_refuse_thread(const sw_arena *arena, const char *op) {
    const sw_arena_chunk_cache *chunk_cache = sw_arena_chunk_cache_own();
    uint64_t owner = __atomic_load_n(&arena->owner, __ATOMIC_RELAXED);
    if (owner == 0 || (chunk_cache != NULL && chunk_cache->number == owner)) return SW_OK;
    return sw_fail(SW_OWNER, op,
                   "the arena %p belongs to another thread: call it there, hand it over with "
                   "sw_arena_adopt, or make it with the option locked",
                   (const void *)arena);
}

sw_status sw_arena_adopt(sw_arena *arena) {
    sw_status status = sw_handle_status(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, "arena_adopt");
    if (status != SW_OK || __atomic_load_n(&arena->owner, __ATOMIC_RELAXED) == 0) return status;
    const sw_arena_chunk_cache *chunk_cache = sw_arena_chunk_cache_own();
    if (chunk_cache == NULL)
        return sw_fail(SW_NOMEM, "arena_adopt", "no memory for the number of a thread");
    __atomic_store_n(&arena->owner, chunk_cache->number, __ATOMIC_RELEASE);
    return SW_OK;
}

/* --- holds ------------------------------------------------------------------------------------ */

/* Adds a hold. SW_STATE: the arena is being freed or reset. */
static sw_status add_hold(sw_arena *arena, const char *op) {
    uint32_t holds = __atomic_load_n(&arena->holds, __ATOMIC_RELAXED);
    do {
        if ((holds & SW_ARENA_ENDING) != 0)
            return sw_fail(SW_STATE, op, "the arena is being freed or reset");
        if (holds + 1 == SW_ARENA_ENDING)
            return sw_fail(SW_LIMIT, op, "the arena is held 2^31 - 1 times: unhold it");
    } while (!__atomic_compare_exchange_n(&arena->holds, &holds, holds + 1, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    return SW_OK;
}

sw_status sw_arena_hold(sw_arena *arena) {
    sw_status status = sw_handle_status(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, "arena_hold");
    return status == SW_OK ? add_hold(arena, "arena_hold") : status;
}

sw_status sw_arena_unhold(sw_arena *arena) {
    sw_status status = sw_handle_status(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, "arena_unhold");
    if (status != SW_OK) return status;
    uint32_t holds = __atomic_load_n(&arena->holds, __ATOMIC_RELAXED);
    do {
        if (holds == 0 || (holds & SW_ARENA_ENDING) != 0)
            return sw_fail(SW_STATE, "arena_unhold", "the arena is not held: hold it before");
    } while (!__atomic_compare_exchange_n(&arena->holds, &holds, holds - 1, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    return SW_OK;
}

/* Records of arenas stay mapped, so the record can be read even if another thread frees it. */
sw_arena *sw_arena_pin(const void *object) {
    const sw_chunk *chunk = sw_chunk_find(object);
    sw_arena *arena = chunk == NULL ? NULL : __atomic_load_n(&chunk->arena, __ATOMIC_ACQUIRE);
    if (arena != NULL && sw_handle_lives(arena, SW_ARENA_MARK, SW_HANDLE_ARENA) &&
        add_hold(arena, "arena_pin") == SW_OK) {
        if (__atomic_load_n(&chunk->arena, __ATOMIC_ACQUIRE) == arena) return arena;
        (void)sw_arena_unhold(arena);
    }
    (void)sw_fail(SW_STATE, "arena_pin", "%p is in no chunk of a live arena", object);
    return NULL;
}

/* --- references ------------------------------------------------------------------------------- */

sw_arena_ref sw_arena_make_ref(sw_arena *arena, void *object) {
    sw_arena_ref ref = {0};
    if (!sw_handle_check(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, "arena_make_ref")) return ref;
    uint64_t generation = __atomic_load_n(&arena->generation, __ATOMIC_ACQUIRE);
    return (sw_arena_ref){arena, object, generation};
}

void *sw_arena_get(sw_arena_ref ref) {
    if (ref.arena == NULL) return NULL;
    bool same = __atomic_load_n(&ref.arena->generation, __ATOMIC_ACQUIRE) == ref.generation;
    return same ? ref.object : NULL;
}

/* --- roots ------------------------------------------------------------------------------------ */

/* Passes an arena's roots to a collector: the front part of each chunk, which has the objects with
 * pointers, and own objects. */

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

/* --- forks ------------------------------------------------------------------------------------ */

static sw_os_lock lock;  /* protects the list of locked arenas; the outermost lock */
static sw_arena *locked; /* all locked arenas */

static void prepare(void) {
    sw_os_lock_acquire(&lock);
    for (sw_arena *arena = locked; arena != NULL; arena = arena->next_locked)
        sw_os_lock_acquire(&arena->lock);
    sw_track_lock();
    sw_arena_chunk_cache_lock();
    sw_quarantine_lock();
    sw_chunk_lock();
}

static void parent(void) {
    sw_chunk_unlock();
    sw_quarantine_unlock();
    sw_arena_chunk_cache_unlock();
    sw_track_unlock();
    for (sw_arena *arena = locked; arena != NULL; arena = arena->next_locked)
        sw_os_lock_release(&arena->lock);
    sw_os_lock_release(&lock);
}

static void child(void) {
    sw_arena_log_recover();
    sw_chunk_reset_lock();
    sw_quarantine_recover();
    sw_arena_chunk_cache_recover();
    sw_track_recover();
    for (sw_arena *arena = locked; arena != NULL; arena = arena->next_locked)
        sw_os_lock_reset(&arena->lock);
    sw_os_lock_reset(&lock);
}

/* Registers after the heap's own handlers, which the library registers when it is loaded. So
 * `prepare` runs before that of the heap, which lets this thread bypass all locks, and `parent`
 * runs after that of the heap. */
void sw_arena_fork_register(void) {
    static bool registered; /* atomic */
    if (__atomic_load_n(&registered, __ATOMIC_ACQUIRE)) return;
    if (!__atomic_exchange_n(&registered, true, __ATOMIC_ACQ_REL))
        (void)sw_os_at_fork(prepare, parent, child);
}

void sw_arena_fork_add(sw_arena *arena) {
    sw_os_lock_acquire(&lock);
    arena->next_locked = locked;
    arena->back_locked = &locked;
    if (locked != NULL) locked->back_locked = &arena->next_locked;
    locked = arena;
    sw_os_lock_release(&lock);
}

void sw_arena_fork_remove(sw_arena *arena) {
    sw_os_lock_acquire(&lock);
    *arena->back_locked = arena->next_locked;
    if (arena->next_locked != NULL) arena->next_locked->back_locked = arena->back_locked;
    sw_os_lock_release(&lock);
}

/* --- statistics ------------------------------------------------------------------------------- */

sw_status sw_arena_get_stats(sw_arena *arena, sw_arena_stats *out) {
    if (out == NULL) return sw_fail_null("arena_stats", "out");
    sw_status status = sw_arena_enter(arena, "arena_stats");
    if (status != SW_OK) return status;
    *out = (sw_arena_stats){.chunks = arena->chunk_count,
                            .chunk_bytes = arena->chunk_bytes,
                            .slack_bytes = arena->slack_bytes,
                            .own_objects = arena->own_objects,
                            .own_bytes = arena->own_bytes,
                            .fallbacks = arena->fallbacks,
                            .resets = arena->resets};
    out->used_bytes = out->chunk_bytes - out->slack_bytes - sw_arena_room(arena);
    sw_arena_leave(arena);
    return SW_OK;
}
