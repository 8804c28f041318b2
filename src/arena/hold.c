/* SPDX-License-Identifier: Apache-2.0 */
/* Owners of arenas, holds, and references to objects of arenas. */
#include "arena/chunk_cache.h"
#include "arena/enter.h"
#include "base/fail.h"

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
