/* SPDX-License-Identifier: Apache-2.0 */
/* Stashes of threads (stash.h). */
#include "arena/stash.h"

#include <string.h>

#include "arena/node.h"
#include "base/assert.h"
#include "base/bits.h"

enum { KEPT_LIMIT = 1 << 20 };

static sw_tls_fast sw_arena_stash *own_stash;
static uint64_t kept_limit = KEPT_LIMIT; /* atomic */
static sw_arena_stash *newest; /* atomic: of all stashes ever made, by the order of their making */
/* Threads without a stash have this one, under the lock. */
static sw_arena_stash shared;

/* Stashes of threads that have exited, and records that wait for use. The lock covers all of it. */
static struct {
    sw_os_lock lock;
    sw_arena_stash *stashes;
    sw_arena *spares;
    uint64_t numbers; /* how many numbers threads were given */
} left;

void sw_arena_stash_lock(void) { sw_os_lock_acquire(&left.lock); }
void sw_arena_stash_unlock(void) { sw_os_lock_release(&left.lock); }
void sw_arena_stash_recover(void) { sw_os_lock_reset(&left.lock); }

void sw_arena_stash_set_limit(uint64_t bytes) {
    __atomic_store_n(&kept_limit, bytes, __ATOMIC_RELAXED);
}

/* --- life ------------------------------------------------------------------------------------- */

static void empty(sw_arena_stash *stash) {
    for (uint32_t i = 0; i < SW_CHUNK_SIZES; i++) {
        while (stash->chunks[i] != NULL) {
            sw_chunk *chunk = stash->chunks[i];
            stash->chunks[i] = chunk->next;
            sw_chunk_give(chunk);
        }
    }
    stash->kept_bytes = 0;
}

/* The records in the ring stay there, so that their handles are still recognised as ended. */
static void leave(void *arg) {
    sw_arena_stash *stash = arg;
    own_stash = NULL;
    empty(stash);
    sw_arena_stash_lock();
    stash->next = left.stashes;
    left.stashes = stash;
    sw_arena_stash_unlock();
}

static sw_arena_stash *make_record(void) {
    sw_arena_stash *stash = sw_chunk_new_record(sizeof *stash);
    if (stash == NULL) return NULL;
    sw_arena_stash_lock();
    stash->older = newest;
    __atomic_store_n(&newest, stash, __ATOMIC_RELEASE);
    sw_arena_stash_unlock();
    return stash;
}

static sw_noinline sw_arena_stash *make(void) {
    sw_arena_stash_lock();
    sw_arena_stash *stash = left.stashes;
    if (stash != NULL) left.stashes = stash->next;
    uint64_t number = ++left.numbers;
    sw_arena_stash_unlock();
    if (stash == NULL) stash = make_record();
    if (stash == NULL) return NULL;
    stash->number = number;
    own_stash = stash;
    if (sw_os_at_thread_exit(SW_OS_EXIT_ARENA, leave, stash)) return stash;
    leave(stash); /* no exit would empty it */
    return NULL;
}

sw_arena_stash *sw_arena_stash_own(void) {
    return sw_likely(own_stash != NULL) ? own_stash : make();
}

void sw_arena_stash_empty(void) {
    if (own_stash != NULL) empty(own_stash);
}

/* --- chunks ----------------------------------------------------------------------------------- */

/* Whether a chunk was made for another node than the one that the thread is on now. */
static bool is_far(const sw_chunk *chunk) {
    return sw_node_is_used() && chunk->node != sw_node_here();
}

sw_chunk *sw_arena_stash_take(uint32_t log2) {
    sw_arena_stash *stash = sw_arena_stash_own();
    sw_chunk **list = stash == NULL ? NULL : &stash->chunks[log2 - SW_CHUNK_LOG2_MIN];
    if (list == NULL || *list == NULL) return sw_chunk_take(log2);
    sw_chunk *chunk = *list;
    *list = chunk->next;
    stash->kept_bytes -= chunk->bytes;
    if (sw_likely(!is_far(chunk))) return chunk;
    sw_chunk_give(chunk);
    return sw_arena_stash_take(log2);
}

void sw_arena_stash_give(sw_chunk *chunk) {
    sw_arena_stash *stash = sw_arena_stash_own();
    uint64_t limit = __atomic_load_n(&kept_limit, __ATOMIC_RELAXED);
    if (stash == NULL || stash->kept_bytes + chunk->bytes > limit || is_far(chunk)) {
        sw_chunk_give(chunk);
        return;
    }
    sw_check2(sw_arena_stash_check(stash));
    sw_chunk **list = &stash->chunks[chunk->log2 - SW_CHUNK_LOG2_MIN];
    chunk->next = *list;
    *list = chunk;
    stash->kept_bytes += chunk->bytes;
}

/* --- records ---------------------------------------------------------------------------------- */

static void add_used(sw_arena_stash *stash, uint64_t by) {
    __atomic_store_n(&stash->used, stash->used + by, __ATOMIC_RELAXED);
}

static sw_arena *take_spare(void) {
    sw_arena_stash_lock();
    sw_arena *record = left.spares;
    if (record != NULL) left.spares = record->next;
    sw_arena_stash_unlock();
    return record;
}

/* The next record of the stash's block, or the first one of a new block. NULL: no memory. */
static sw_arena *take_fresh(sw_arena_stash *stash) {
    if (stash->fresh_count == 0) {
        stash->fresh = sw_chunk_new_record(SW_STASH_FRESH * sizeof *stash->fresh);
        if (stash->fresh == NULL) return NULL;
        stash->fresh_count = SW_STASH_FRESH;
    }
    stash->fresh_count--;
    return stash->fresh++;
}

/* A record for a thread without a stash. */
static sw_arena *take_unstashed(void) {
    sw_arena *record = take_spare();
    if (record == NULL) record = sw_chunk_new_record(sizeof *record);
    if (record == NULL) return NULL;
    sw_arena_stash_lock();
    add_used(&shared, 1);
    sw_arena_stash_unlock();
    return record;
}

sw_arena *sw_arena_stash_record(void) {
    sw_arena_stash *stash = sw_arena_stash_own();
    if (sw_unlikely(stash == NULL)) return take_unstashed();
    sw_arena *record = stash->spare;
    stash->spare = NULL;
    if (sw_unlikely(record == NULL)) record = take_spare();
    if (sw_unlikely(record == NULL)) record = take_fresh(stash);
    if (record != NULL) add_used(stash, 1);
    return record;
}

uint64_t sw_arena_stash_used(void) {
    uint64_t used = __atomic_load_n(&shared.used, __ATOMIC_RELAXED);
    const sw_arena_stash *stash = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    for (; stash != NULL; stash = stash->older)
        used += __atomic_load_n(&stash->used, __ATOMIC_RELAXED);
    return used;
}

/* Puts the record into the ring in place of the one that is there longest, which may now be used
 * again. */
void sw_arena_stash_retire(sw_arena *arena) {
    sw_arena_stash *own = sw_arena_stash_own(), *stash = own != NULL ? own : &shared;
    if (own == NULL) sw_arena_stash_lock();
    add_used(stash, UINT64_MAX);
    sw_arena **place = &stash->ended[stash->turn++ % SW_HANDLES_ENDED];
    sw_arena *oldest = *place;
    *place = arena;
    if (own == NULL) sw_arena_stash_unlock();
    if (oldest == NULL) return;
    if (own != NULL && own->spare == NULL) {
        own->spare = oldest;
        return;
    }
    sw_arena_stash_lock();
    oldest->next = left.spares;
    left.spares = oldest;
    sw_arena_stash_unlock();
}
