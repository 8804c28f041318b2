/* SPDX-License-Identifier: Apache-2.0 */
/* The quarantine (quarantine.h). */
#include "arena/quarantine.h"

enum { LIMIT = 64 << 20, CHUNKS_MAX = 8192, RUN_SHARE = 64 };

/* The lock covers all of it. bytes and count are those of the list. */
static struct {
    sw_os_lock lock;
    sw_chunk *oldest, *newest;
    uint64_t bytes, count;
    uint64_t limit;
    uint64_t unprotected;
} waiting = {.limit = LIMIT};

void sw_quarantine_lock(void) { sw_os_lock_acquire(&waiting.lock); }
void sw_quarantine_unlock(void) { sw_os_lock_release(&waiting.lock); }
void sw_quarantine_recover(void) { sw_os_lock_reset(&waiting.lock); }

/* Out of the list, which is not empty. */
static sw_chunk *take_oldest(void) {
    sw_chunk *chunk = waiting.oldest;
    waiting.oldest = chunk->next;
    waiting.bytes -= chunk->bytes;
    waiting.count--;
    return chunk;
}

static void append(sw_chunk *chunk) {
    chunk->next = NULL;
    if (waiting.oldest == NULL)
        waiting.oldest = chunk;
    else
        waiting.newest->next = chunk;
    waiting.newest = chunk;
    waiting.bytes += chunk->bytes;
    waiting.count++;
}

/* Takes the oldest chunk, and chunks that follow it in the list as in memory, up to a share of the limit: so one system call
 * gives all of them their access back. The last one is the first of the list. */
static sw_chunk *take_run(uint64_t *bytes) {
    sw_chunk *run = NULL;
    *bytes = 0;
    do {
        sw_chunk *chunk = take_oldest();
        *bytes += chunk->bytes;
        chunk->next = run;
        run = chunk;
    } while (waiting.oldest != NULL && waiting.oldest->base == run->base + run->bytes &&
             *bytes + waiting.oldest->bytes <= waiting.limit / RUN_SHARE);
    return run;
}

static void release(sw_chunk *chunk) {
    sw_arena_log_drop(chunk->log);
    __atomic_store_n(&chunk->log, NULL, __ATOMIC_RELEASE);
    sw_chunk_give(chunk);
}

/* Chunks that can not be made accessible again, because the system has too many mappings, wait on. The chunk with the
 * lowest address of a run is given last, and used first: then the chunks without access grow at one end, and split no mapping. */
static void release_oldest(void) {
    bool is_open = true;
    while (is_open && waiting.oldest != NULL &&
           (waiting.bytes > waiting.limit || waiting.count > CHUNKS_MAX)) {
        uint64_t bytes;
        sw_chunk *run = take_run(&bytes);
        is_open = sw_os_commit((void *)(run->base + run->bytes - bytes), bytes);
        while (run != NULL) {
            sw_chunk *chunk = run;
            run = chunk->next;
            if (is_open)
                release(chunk);
            else
                append(chunk);
        }
    }
}

void sw_quarantine_put(sw_chunk *chunk) {
    bool is_protected = sw_os_uncommit((void *)chunk->base, chunk->bytes);
    sw_quarantine_lock();
    if (!is_protected) waiting.unprotected++;
    append(chunk);
    release_oldest();
    sw_quarantine_unlock();
}

bool sw_quarantine_open(sw_chunk *chunk) {
    sw_quarantine_lock();
    sw_chunk **place = &waiting.oldest, *before = NULL;
    while (*place != NULL && *place != chunk) {
        before = *place;
        place = &before->next;
    }
    if (*place != NULL) {
        *place = (*place)->next;
        if (waiting.newest == chunk) waiting.newest = before;
        waiting.bytes -= chunk->bytes;
        waiting.count--;
    }
    sw_quarantine_unlock();
    return sw_os_commit((void *)chunk->base, chunk->bytes);
}

void sw_quarantine_set_limit(uint64_t bytes) {
    sw_quarantine_lock();
    waiting.limit = bytes;
    release_oldest();
    sw_quarantine_unlock();
}

void sw_quarantine_add_stats(sw_arena_pool_stats *stats) {
    sw_quarantine_lock();
    stats->quarantine_bytes += waiting.bytes;
    stats->used_chunk_bytes -= waiting.bytes;
    stats->unprotected += waiting.unprotected;
    sw_quarantine_unlock();
}
