/* SPDX-License-Identifier: Apache-2.0 */
/* The quarantine (quarantine.h). */
#include "arena/quarantine.h"

#include "base/assert.h"

enum { LIMIT = 64 << 20, CHUNKS_MAX = 8192, POINTED_MAX = CHUNKS_MAX / 4, RUN_SHARE = 64 };

/* A FIFO of chunks; bytes and count are sums over the list.
 *   (oldest == NULL) == (newest == NULL) == (count == 0);  newest->next == NULL */
typedef struct sw_chunk_queue {
    sw_chunk *oldest, *newest;
    uint64_t bytes, count;
} sw_chunk_queue;

/* The lock protects every field except `looks`. */
static struct {
    sw_os_lock lock;
    sw_chunk_queue all;     /* every quarantined chunk that is not in `pointed` */
    sw_chunk_queue pointed; /* chunks that were due but had a pointer into them */
    uint64_t limit;         /* maximum bytes of each of the two */
    uint64_t unprotected;
    uint64_t looks;     /* atomic: number of completed scans of collectors */
    uint64_t looks_had; /* the value of `looks` when `pointed` was last processed */
} waiting = {.limit = LIMIT};

void sw_quarantine_lock(void) { sw_os_lock_acquire(&waiting.lock); }
void sw_quarantine_unlock(void) { sw_os_lock_release(&waiting.lock); }
void sw_quarantine_recover(void) { sw_os_lock_reset(&waiting.lock); }

static const char *sw_chunk_queue_check(const sw_chunk_queue *queue) {
    const char *broken = SW_RULE((queue->oldest == NULL) == (queue->count == 0));
    broken = broken ? broken : SW_RULE((queue->newest == NULL) == (queue->count == 0));
    return broken ? broken : SW_RULE(queue->newest == NULL || queue->newest->next == NULL);
}

/* --- looks ------------------------------------------------------------------------------------ */

void sw_quarantine_note_pointer(sw_chunk *chunk) {
    uint64_t look = __atomic_load_n(&waiting.looks, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&chunk->pointed_at, look, __ATOMIC_RELAXED);
}

void sw_quarantine_end_look(void) { (void)__atomic_add_fetch(&waiting.looks, 1, __ATOMIC_RELEASE); }

/* Returns whether the last scan, or the running one, has found a pointer into the chunk. */
static bool is_pointed(const sw_chunk *chunk) {
    uint64_t look = __atomic_load_n(&chunk->pointed_at, __ATOMIC_RELAXED);
    return look != 0 && look >= __atomic_load_n(&waiting.looks, __ATOMIC_ACQUIRE);
}

/* --- queues ----------------------------------------------------------------------------------- */

/* Removes the oldest chunk of a nonempty queue. */
static sw_chunk *take_oldest(sw_chunk_queue *queue) {
    sw_chunk *chunk = queue->oldest;
    queue->oldest = chunk->next;
    if (queue->oldest == NULL) queue->newest = NULL;
    queue->bytes -= chunk->bytes;
    queue->count--;
    return chunk;
}

static void append(sw_chunk_queue *queue, sw_chunk *chunk) {
    chunk->next = NULL;
    if (queue->oldest == NULL)
        queue->oldest = chunk;
    else
        queue->newest->next = chunk;
    queue->newest = chunk;
    queue->bytes += chunk->bytes;
    queue->count++;
}

static void prepend(sw_chunk_queue *queue, sw_chunk *chunk) {
    chunk->next = queue->oldest;
    queue->oldest = chunk;
    if (queue->newest == NULL) queue->newest = chunk;
    queue->bytes += chunk->bytes;
    queue->count++;
}

static void take_out(sw_chunk_queue *queue, const sw_chunk *chunk) {
    sw_chunk **place = &queue->oldest, *before = NULL;
    while (*place != NULL && *place != chunk) {
        before = *place;
        place = &before->next;
    }
    if (*place == NULL) return;
    *place = chunk->next;
    if (queue->newest == chunk) queue->newest = before;
    queue->bytes -= chunk->bytes;
    queue->count--;
}

/* --- release ---------------------------------------------------------------------------------- */

/* Removes the oldest chunk, and the chunks that follow it both in the queue and in memory, up to a
 * share of the limit, so that one system call unprotects all of them. The returned list begins with
 * the last one. */
static sw_chunk *take_run(uint64_t *bytes) {
    sw_chunk_queue *all = &waiting.all;
    sw_chunk *run = NULL;
    *bytes = 0;
    do {
        sw_chunk *chunk = take_oldest(all);
        *bytes += chunk->bytes;
        chunk->next = run;
        run = chunk;
    } while (all->oldest != NULL && all->oldest->base == run->base + run->bytes &&
             *bytes + all->oldest->bytes <= waiting.limit / RUN_SHARE && !is_pointed(all->oldest));
    return run;
}

static void release(sw_chunk *chunk) {
    sw_arena_log_drop(chunk->log);
    __atomic_store_n(&chunk->log, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&chunk->pointed_at, 0, __ATOMIC_RELAXED);
    sw_chunk_give(chunk);
}

/* Returns whether the oldest chunk stays although it is due. */
static bool is_kept(const sw_chunk *chunk) {
    const sw_chunk_queue *pointed = &waiting.pointed;
    return is_pointed(chunk) && pointed->count < POINTED_MAX &&
           pointed->bytes + chunk->bytes <= waiting.limit;
}

/* Unprotects a run of chunks and frees them. False: the process has too many mappings, and the
 * chunks stay. The chunk with the lowest address is freed last, so it is reused first: then the
 * protected chunks grow at one end, and split no mapping. */
static bool release_run(void) {
    uint64_t bytes;
    sw_chunk *run = take_run(&bytes);
    bool is_open = sw_os_commit((void *)(run->base + run->bytes - bytes), bytes);
    while (run != NULL) {
        sw_chunk *chunk = run;
        run = chunk->next;
        if (is_open)
            release(chunk);
        else
            append(&waiting.all, chunk);
    }
    return is_open;
}

static void release_oldest(void) {
    sw_chunk_queue *all = &waiting.all;
    bool goes_on = true;
    sw_check2(sw_chunk_queue_check(all));
    sw_check2(sw_chunk_queue_check(&waiting.pointed));
    while (goes_on && all->oldest != NULL &&
           (all->bytes > waiting.limit || all->count > CHUNKS_MAX)) {
        if (is_kept(all->oldest))
            append(&waiting.pointed, take_oldest(all));
        else
            goes_on = release_run();
    }
}

/* Moves the chunks of `pointed` back to the queue, after another scan or with another limit. */
static void look_again(void) {
    waiting.looks_had = __atomic_load_n(&waiting.looks, __ATOMIC_ACQUIRE);
    while (waiting.pointed.oldest != NULL) prepend(&waiting.all, take_oldest(&waiting.pointed));
}

void sw_quarantine_put(sw_chunk *chunk) {
    bool is_protected = sw_os_uncommit((void *)chunk->base, chunk->bytes);
    sw_quarantine_lock();
    if (!is_protected) waiting.unprotected++;
    append(&waiting.all, chunk);
    if (waiting.looks_had != __atomic_load_n(&waiting.looks, __ATOMIC_RELAXED)) look_again();
    release_oldest();
    sw_quarantine_unlock();
}

bool sw_quarantine_open(sw_chunk *chunk) {
    sw_quarantine_lock();
    take_out(&waiting.all, chunk);
    take_out(&waiting.pointed, chunk);
    sw_quarantine_unlock();
    return sw_os_commit((void *)chunk->base, chunk->bytes);
}

void sw_quarantine_set_limit(uint64_t bytes) {
    sw_quarantine_lock();
    waiting.limit = bytes;
    look_again();
    release_oldest();
    sw_quarantine_unlock();
}

void sw_quarantine_add_stats(sw_arena_pool_stats *stats) {
    sw_quarantine_lock();
    uint64_t bytes = waiting.all.bytes + waiting.pointed.bytes;
    stats->quarantine_bytes += bytes;
    stats->used_chunk_bytes -= bytes;
    stats->unprotected += waiting.unprotected;
    sw_quarantine_unlock();
}
