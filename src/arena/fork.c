/* SPDX-License-Identifier: Apache-2.0 */
/* Fork handlers of arenas (fork.h). */
#include "arena/fork.h"

#include "arena/chunk_cache.h"
#include "arena/log.h"
#include "arena/quarantine.h"
#include "arena/track.h"

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
