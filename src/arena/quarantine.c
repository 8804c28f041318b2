/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of safe arenas, the quarantine of their chunks, and reports of later uses. */
#include "arena/arena.h"
#include "base/base.h"
#include "gc/events.h"

/* --- checks ----------------------------------------------------------------------------------- */

static const char *sw_arena_log_check(const sw_arena_log *log) {
    return SW_RULE(__atomic_load_n(&log->uses, __ATOMIC_RELAXED) >= 1)
               ?: SW_RULE(log->made.count <= SW_LOG_FRAMES)
               ?: SW_RULE(log->pages == NULL || log->pages->count <= SW_LOG_OBJECTS);
}

/* --- logs of safe arenas ---------------------------------------------------------------------- */

void sw_arena_log_recover(void) { sw_os_forget_thread_id(); }

static void note_calls(sw_arena_calls *calls) {
    calls->thread = sw_os_known_thread_id();
    calls->count = sw_os_call_stack(calls->frames, SW_LOG_FRAMES);
}

sw_arena_log *sw_arena_log_new(const char *tag, uint64_t arena_id) {
    sw_arena_log *log = sw_chunk_new_record(sizeof *log);
    if (log == NULL) return NULL;
    *log = (sw_arena_log){.uses = 1, .tag = tag, .arena_id = arena_id};
    note_calls(&log->made);
    return log;
}

bool sw_arena_log_add(sw_arena_log *log, const sw_log_object *object) {
    sw_log_page *page = log->pages;
    if (page == NULL || page->count == SW_LOG_OBJECTS) {
        page = sw_chunk_new_record(sizeof *page);
        if (page == NULL) return false;
        page->count = 0;
        page->next = log->pages;
        log->pages = page;
    }
    page->objects[page->count++] = *object;
    return true;
}

void sw_arena_log_end(sw_arena_log *log) { note_calls(&log->freed); }

void sw_arena_log_use(sw_arena_log *log) {
    (void)__atomic_add_fetch(&log->uses, 1, __ATOMIC_RELAXED);
}

void sw_arena_log_drop(sw_arena_log *log) {
    sw_check2(sw_arena_log_check(log));
    if (__atomic_sub_fetch(&log->uses, 1, __ATOMIC_ACQ_REL) != 0) return;
    while (log->pages != NULL) {
        sw_log_page *page = log->pages;
        log->pages = page->next;
        sw_chunk_drop_record(page, sizeof *page);
    }
    sw_chunk_drop_record(log, sizeof *log);
}

/* Returns the object that contains p; NULL: none. */
static const sw_log_object *sw_arena_log_find(const sw_arena_log *log, uintptr_t p) {
    for (const sw_log_page *page = log->pages; page != NULL; page = page->next)
        for (uint64_t i = page->count; i-- > 0;)
            if (p - page->objects[i].at < page->objects[i].bytes) return &page->objects[i];
    return NULL;
}

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
    return SW_RULE((queue->oldest == NULL) == (queue->count == 0))
               ?: SW_RULE((queue->newest == NULL) == (queue->count == 0))
               ?: SW_RULE(queue->newest == NULL || queue->newest->next == NULL);
}

/* --- looks ------------------------------------------------------------------------------------ */

static void sw_quarantine_note_pointer(sw_chunk *chunk) {
    uint64_t look = __atomic_load_n(&waiting.looks, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&chunk->pointed_at, look, __ATOMIC_RELAXED);
}

static void sw_quarantine_end_look(void) {
    (void)__atomic_add_fetch(&waiting.looks, 1, __ATOMIC_RELEASE);
}

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

/* Unprotects a chunk and removes it. False: the system refuses. */
static bool sw_quarantine_open(sw_chunk *chunk) {
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

/* Reports uses of memory after its arena's end. All of it may run in a signal handler: it
 * allocates nothing, and takes only locks that are held for a few instructions. */

/* The details of a report. */
typedef struct report_details {
    uintptr_t at;
    const sw_arena_log *log;
    const sw_log_object *object; /* NULL: the address is between objects */
    const void *word;            /* where a cycle found the pointer; NULL: the address was used */
} report_details;

static void print_calls(const char *what, const sw_arena_calls *calls) {
    sw_emergency_print("spanwise: arena %s by thread %u at", what, calls->thread);
    for (uint64_t i = 0; i < calls->count && i < SW_LOG_FRAMES; i++)
        sw_emergency_print(" %p", (const void *)(uintptr_t)calls->frames[i]);
    sw_emergency_print("\n");
}

static void print_details(const void *arg) {
    const report_details *details = arg;
    const sw_log_object *object = details->object;
    const char *tag = details->log->tag;
    if (details->word != NULL) sw_emergency_print("spanwise: pointer found at %p\n", details->word);
    if (object != NULL)
        sw_emergency_print("spanwise: offset %u of %s, %u bytes, allocated at %p\n",
                           (uint64_t)(details->at - object->at),
                           object->type == NULL ? "an object" : object->type, object->bytes,
                           (const void *)object->caller);
    sw_emergency_print("spanwise: arena %u, tag %s\n", details->log->arena_id,
                       tag == NULL ? "none" : tag);
    print_calls("made", &details->log->made);
    print_calls("freed", &details->log->freed);
}

static void report(const char *op, const void *p, const sw_arena_log *log, const void *word) {
    report_details details = {.at = (uintptr_t)p, .log = log, .word = word};
    if (log != NULL) details.object = sw_arena_log_find(log, details.at);
    sw_fault fault = {.code = SW_MISUSE_FREED_ARENA,
                      .op = op,
                      .ptr = p,
                      .size = details.object == NULL ? 0 : details.object->bytes,
                      .thread = sw_os_thread_id()};
    sw_misuse_report_with(&fault, log == NULL ? NULL : print_details, &details);
}

static const sw_arena_log *log_of(const void *p) {
    const sw_chunk *chunk = sw_chunk_find(p);
    return chunk == NULL ? NULL : __atomic_load_n(&chunk->log, __ATOMIC_ACQUIRE);
}

void sw_arena_report_use(const char *op, const void *p) { report(op, p, log_of(p), NULL); }

/* If the program's fault handler continues, the chunk is unprotected for this and later uses. */
static bool on_fault(void *address, bool is_write) {
    sw_chunk *chunk = sw_chunk_find(address);
    if (chunk == NULL || __atomic_load_n(&chunk->arena, __ATOMIC_ACQUIRE) != NULL) return false;
    const sw_arena_log *log = __atomic_load_n(&chunk->log, __ATOMIC_ACQUIRE);
    if (log == NULL) return false;
    report(is_write ? "write" : "read", address, log, NULL);
    return sw_quarantine_open(chunk);
}

/* --- pointers that a collection finds --------------------------------------------------------- */

static bool has_ended(uintptr_t p) {
    sw_chunk *chunk = sw_chunk_locate(p);
    if (chunk == NULL || __atomic_load_n(&chunk->arena, __ATOMIC_ACQUIRE) != NULL ||
        __atomic_load_n(&chunk->log, __ATOMIC_ACQUIRE) == NULL)
        return false;
    sw_quarantine_note_pointer(chunk);
    return true;
}

static void report_pointer(const void *word, const void *p) { report("gc", p, log_of(p), word); }

bool sw_arena_report_install(void) {
    static const sw_gc_ended ended = {
        .has = has_ended, .end_look = sw_quarantine_end_look, .report = report_pointer};
    sw_gc_dangling_ask(&ended);
    return sw_os_at_fault(on_fault);
}
