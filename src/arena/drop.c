/* SPDX-License-Identifier: Apache-2.0 */
/* Unreachable arenas: the finalizer of an object of a collected heap frees them, as in the Go
 * runtime. Records of arenas stay mapped, so a finalizer can detect an earlier free. */
#include "arena/enter.h"
#include "base/fail.h"

static const void *object_of(const sw_arena *arena) {
    return __atomic_load_n(&arena->dropped_with, __ATOMIC_ACQUIRE);
}

/* The finalizer. It may run in a thread other than the owner's. If the arena is held, it is not
 * freed, and the object gets the finalizer again, for the next cycle. */
static void free_dropped(void *object, void *arg) {
    sw_arena *arena = arg;
    if (!sw_handle_lives(arena, SW_ARENA_MARK, SW_HANDLE_ARENA) || object_of(arena) != object)
        return;
    sw_gc *gc = arena->dropped_by;
    uint64_t owner = __atomic_load_n(&arena->owner, __ATOMIC_RELAXED);
    (void)sw_arena_adopt(arena);
    if (sw_arena_free(arena) == SW_OK) return;
    __atomic_store_n(&arena->owner, owner, __ATOMIC_RELEASE);
    (void)sw_gc_set_finalizer(gc, object, free_dropped, arena);
}

sw_status sw_arena_free_with(sw_arena *arena, sw_gc *gc, const void *object) {
    sw_status status = sw_arena_enter(arena, "arena_free_with");
    if (status != SW_OK) return status;
    if (object != NULL) status = sw_gc_set_finalizer(gc, object, free_dropped, arena);
    if (status == SW_OK) {
        arena->dropped_by = object == NULL ? NULL : gc;
        __atomic_store_n(&arena->dropped_with, object, __ATOMIC_RELEASE);
    }
    sw_arena_leave(arena);
    return status;
}
