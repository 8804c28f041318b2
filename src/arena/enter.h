/* SPDX-License-Identifier: Apache-2.0 */
/* Prologue and epilogue of calls on an arena: checks of the handle and the thread, and the lock.
 * Records are never unmapped, so a call that waited for the lock can detect that the arena was
 * freed. Callers: the files with public functions. */
#ifndef SW_ARENA_ENTER_H
#define SW_ARENA_ENTER_H

#include "arena/arena.h"
#include "base/assert.h"
#include "base/attributes.h"
#include "ds/handle.h"

#define SW_ARENA_MARK offsetof(sw_arena, mark)

/* SW_OWNER, with the last error set: a safe arena belongs to another thread. */
sw_status sw_arena_refuse_thread(const sw_arena *arena, const char *op);

static inline sw_status sw_arena_check_thread(const sw_arena *arena, const char *op) {
    if (sw_likely(__atomic_load_n(&arena->owner, __ATOMIC_RELAXED) == 0)) return SW_OK;
    return sw_arena_refuse_thread(arena, op);
}

static inline void sw_arena_leave(sw_arena *arena) {
    if (sw_unlikely(arena->is_locked != 0)) sw_os_lock_release(&arena->lock);
}

/* Takes the lock, if the arena has one. False: the arena was freed; the lock is not held. */
static inline bool sw_arena_enter_live(sw_arena *arena) {
    if (sw_likely(arena->is_locked == 0)) return true;
    sw_os_lock_acquire(&arena->lock);
    if (sw_handle_lives(arena, SW_ARENA_MARK, SW_HANDLE_ARENA)) return true;
    sw_os_lock_release(&arena->lock);
    return false;
}

/* For calls that return a status. */
static inline sw_status sw_arena_enter(sw_arena *arena, const char *op) {
    sw_status status = sw_handle_status(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, op);
    if (status == SW_OK) status = sw_arena_check_thread(arena, op);
    if (status != SW_OK) return status;
    if (sw_likely(sw_arena_enter_live(arena))) return SW_OK;
    return sw_handle_refuse(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, op);
}

/* For calls that return no status: a bad handle is reported, also NULL. */
static inline bool sw_arena_has_entered(sw_arena *arena, const char *op) {
    if (!sw_handle_check(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, op)) return false;
    if (sw_arena_check_thread(arena, op) != SW_OK) return false;
    if (sw_likely(sw_arena_enter_live(arena))) return true;
    sw_handle_report(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, op);
    return false;
}

#endif
