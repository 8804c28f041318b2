/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, the registry of heaps, and fork.
 *
 * A thread has one record with a table of its caches, indexed by heap. The registry's lock covers
 * the lists of records, the array of heaps and how much of a table is in use; a thread reads its own
 * table without a lock. The record of a thread that has ended serves the next one: a thread's birth
 * and death ask nothing of the system.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "heap/heap.h"

/* A mapping of its own, of which most threads touch the first page only. */
typedef struct sw_thread {
    struct sw_thread *next, **back; /* back: of a thread that lives */
    size_t used;                    /* the entries behind are NULL, and have never been written */
    /* By heap index; the last entry is that of heaps that were destroyed, and is never written. */
    sw_cache *caches[SW_HEAPS_MAX + 1];
} sw_thread;

/* The cache of threads that have none of the default heap: no heap, no address, no free slot. */
enum { NO_CACHE_BINS = 2 * sizeof sw_fast_class_bytes / sizeof *sw_fast_class_bytes };
static sw_cache no_cache = {
    .bins = {[0 ... NO_CACHE_BINS - 1] = {.word = &sw_sentinel_word, .base = SW_NO_BASE}}};

_Thread_local SW_FAST_TLS sw_tls_record sw_tls = {.cache = &no_cache};
static sw_tls_fast sw_thread *tls_thread;
static _Thread_local SW_FAST_TLS bool tls_ended; /* end_thread ran */

static sw_os_lock registry_lock;
static sw_thread *threads;
static sw_thread *spare_threads; /* records of threads that have ended */
static uint32_t spare_count;
static sw_heap *heaps[SW_HEAPS_MAX]; /* by index; NULL: free */
static uint32_t heap_ids = 1;        /* given out so far; 1 is kept for the default heap */
static sw_heap *default_heap;        /* atomic */
static sw_os_lock default_lock;

/* --- registry of heaps ------------------------------------------------------------------------ */

bool sw_registry_add(sw_heap *heap) {
    bool added = false;
    sw_os_lock_acquire(&registry_lock);
    for (uint32_t i = 0; i < SW_HEAPS_MAX && !added; i++) {
        if (heaps[i] != NULL) continue;
        heap->index = i;
        heap->id = ++heap_ids;
        __atomic_store_n(&heaps[i], heap, __ATOMIC_RELEASE);
        added = true;
    }
    sw_os_lock_release(&registry_lock);
    return added;
}

void sw_registry_remove(sw_heap *heap) {
    sw_os_lock_acquire(&registry_lock);
    for (sw_thread *thread = threads; thread != NULL; thread = thread->next)
        if (heap->index < thread->used)
            __atomic_store_n(&thread->caches[heap->index], NULL, __ATOMIC_RELEASE);
    heaps[heap->index] = NULL;
    while (heap->closing != 0) { /* a thread that exits is about to let go of its cache */
        sw_os_lock_release(&registry_lock);
        sw_os_lock_acquire(&registry_lock);
    }
    heap->index = SW_HEAPS_MAX;
    sw_os_lock_release(&registry_lock);
}

/* Under default_lock, when there is none. */
static sw_status make_default(const sw_heap_options *options) {
    sw_heap *heap;
    sw_status status = sw_heap_create(options, &heap);
    if (status != SW_OK) return status;
    heap->id = 1;
    __atomic_store_n(&default_heap, heap, __ATOMIC_RELEASE);
    return SW_OK;
}

sw_heap *sw_heap_default(void) {
    sw_heap *heap = __atomic_load_n(&default_heap, __ATOMIC_ACQUIRE);
    if (sw_likely(heap != NULL)) return heap;
    sw_os_lock_acquire(&default_lock);
    if (default_heap == NULL) (void)make_default(NULL);
    heap = default_heap;
    sw_os_lock_release(&default_lock);
    return heap;
}

sw_status sw_heap_default_init(const sw_heap_options *options) {
    const char *op = "heap_default_init";
    if (options != NULL) {
        if (options->table != NULL && options->table != sw_table_default())
            return sw_fail(SW_INVALID, op, "table %s: the default heap has %s compiled in",
                           sw_table_name(options->table), sw_table_name(sw_table_default()));
        if (options->dry || options->tiny || options->manual_clock)
            return sw_fail(SW_INVALID, op,
                           "a default heap can not be dry, pack tiny objects or "
                           "have a manual clock");
    }
    sw_os_lock_acquire(&default_lock);
    sw_status status = default_heap == NULL
                           ? make_default(options)
                           : sw_fail(SW_STATE, op, "the default heap is in use already");
    sw_os_lock_release(&default_lock);
    return status;
}

/* --- thread records --------------------------------------------------------------------------- */

enum { SPARE_MAX = 256 }; /* records that wait for a thread: about 1 MiB is resident */

/* Takes cache i out of the thread's table; its heap can not be destroyed until it is let go. */
static sw_cache *take_cache(sw_thread *thread, size_t i) {
    sw_os_lock_acquire(&registry_lock);
    sw_cache *cache = thread->caches[i];
    thread->caches[i] = NULL;
    if (cache != NULL) cache->heap->closing++;
    sw_os_lock_release(&registry_lock);
    return cache;
}

static void let_go(sw_heap *heap) {
    sw_os_lock_acquire(&registry_lock);
    heap->closing--;
    sw_os_lock_release(&registry_lock);
}

/* Another thread may destroy a heap at the same time: an exit is no call on it. True: there was a
 * cache to close. */
static bool close_caches(sw_thread *thread) {
    bool closed = false;
    sw_tls.cache = &no_cache;
    for (size_t i = 0; i < thread->used; i++) {
        if (__atomic_load_n(&thread->caches[i], __ATOMIC_RELAXED) == NULL) continue;
        sw_cache *cache = take_cache(thread, i);
        if (cache == NULL) continue;
        sw_heap *heap = cache->heap;
        sw_cache_shut(cache);
        let_go(heap);
        closed = true;
    }
    return closed;
}

/* Under the registry's lock. False: enough records wait already. */
static bool keep_record(sw_thread *thread) {
    if (spare_count >= SPARE_MAX) return false;
    thread->next = spare_threads;
    spare_threads = thread;
    spare_count++;
    return true;
}

/* A cache that closes may find a double free, whose handler may open one again. */
static void end_thread(void *record) {
    sw_thread *thread = record;
    tls_ended = true;
    while (close_caches(thread)) {
    }
    tls_thread = NULL;
    sw_os_lock_acquire(&registry_lock);
    if (thread->next != NULL) thread->next->back = thread->back;
    *thread->back = thread->next;
    bool kept = keep_record(thread);
    sw_os_lock_release(&registry_lock);
    if (!kept) (void)sw_os_release(thread, sizeof *thread);
}

/* A record with an empty table, in no list; NULL: no memory. What a forked child inherits of its
 * parent's other threads still names their caches. */
static sw_thread *take_record(void) {
    sw_os_lock_acquire(&registry_lock);
    sw_thread *thread = spare_threads;
    if (thread != NULL) {
        spare_threads = thread->next;
        spare_count--;
    }
    sw_os_lock_release(&registry_lock);
    if (thread == NULL) return sw_os_map(sizeof *thread);
    memset(thread->caches, 0, thread->used * sizeof *thread->caches);
    return thread;
}

static sw_thread *make_thread(void) {
    sw_thread *thread = take_record();
    if (thread == NULL) return NULL;
    sw_os_lock_acquire(&registry_lock);
    thread->next = threads;
    thread->back = &threads;
    if (threads != NULL) threads->back = &thread->next;
    threads = thread;
    sw_os_lock_release(&registry_lock);
    tls_thread = thread;
    /* A refusal means that this thread's spans stay its own after it ends: lost to reuse, not
     * harmful. */
    (void)sw_os_at_thread_exit(end_thread, thread);
    return thread;
}

/* After a refusal: whether the heap's free pages make up for the record of a thread. */
static bool relieved(sw_heap *heap) {
    sw_os_lock_acquire(&heap->lock);
    bool done = sw_central_relieve(heap);
    sw_os_lock_release(&heap->lock);
    return done;
}

/* Before the entry is written: whoever destroys the heap looks at those in use. */
static void use_entry(sw_thread *thread, uint32_t index) {
    if (index < thread->used) return;
    sw_os_lock_acquire(&registry_lock);
    thread->used = index + 1;
    sw_os_lock_release(&registry_lock);
}

static sw_noinline sw_cache *open_for_thread(sw_heap *heap) {
    if (!sw_heap_check(heap, "heap"))
        return NULL; /* whichever call: nothing is kept for its name */
    sw_thread *thread = tls_thread;
    if (thread == NULL) thread = make_thread();
    if (thread == NULL && relieved(heap)) thread = make_thread();
    if (thread == NULL) {
        sw_fail(SW_NOMEM, "cache", "heap %u: no memory for a thread's record", heap->id);
        return NULL;
    }
    /* Registering the record may have allocated, where this heap serves malloc. */
    if (thread->caches[heap->index] != NULL) return thread->caches[heap->index];
    sw_cache *cache;
    if (sw_cache_make(heap, SW_CACHE_OF_THREAD, &cache) != SW_OK) return NULL;
    use_entry(thread, heap->index);
    __atomic_store_n(&thread->caches[heap->index], cache, __ATOMIC_RELEASE);
    return cache;
}

sw_cache *sw_thread_open_cache(const sw_heap *heap) {
    sw_thread *thread = tls_thread;
    if (sw_unlikely(thread == NULL)) return NULL;
    return __atomic_load_n(&thread->caches[heap->index], __ATOMIC_RELAXED);
}

sw_cache *sw_thread_cache(sw_heap *heap) {
    sw_cache *cache = sw_unlikely(heap == NULL) ? NULL : sw_thread_open_cache(heap);
    return sw_likely(cache != NULL) ? cache : open_for_thread(heap);
}

void *sw_thread_no_cache(void) {
    errno = sw_last_error()->status == SW_INVALID ? EINVAL : ENOMEM;
    return NULL;
}

/* The inline paths, which begin at sw_tls.cache, are for plain heaps: with another one it stays the
 * cache without a heap, and every call comes here. */
sw_cache *sw_thread_default_cache(void) {
    if (sw_likely(sw_tls.cache->heap != NULL)) return sw_tls.cache;
    sw_heap *heap = sw_heap_default();
    sw_cache *cache = heap == NULL ? NULL : sw_thread_cache(heap);
    if (cache != NULL && heap->mode == 0) sw_tls.cache = cache;
    return cache;
}

bool sw_thread_has_ended(void) { return sw_unlikely(tls_ended) && tls_thread == NULL; }

/* --- fork --------------------------------------------------------------------------------------
 * Before a fork every lock is taken, in order, so that what they cover is whole in the child. Other
 * threads may be in the middle of a lock-free step: the child trusts nothing of their caches but
 * the words of their spans, and moves every such span to the central lists. So it does with caches
 * made by sw_cache_open, which any thread may have been in; these stay open, without a span. A slot
 * that was being taken at that instant is lost; nothing else is.
 *
 * Handlers that were registered before ours run between them. They may allocate, in the parent and
 * in the child: the locks are held for them.
 */

static void each_heap(void (*fn)(sw_heap *)) {
    for (uint32_t i = 0; i < SW_HEAPS_MAX; i++)
        if (heaps[i] != NULL) fn(heaps[i]);
}

static void lock_heap(sw_heap *heap) { sw_os_lock_acquire(&heap->lock); }
static void unlock_heap(sw_heap *heap) { sw_os_lock_release(&heap->lock); }

static void fork_prepare(void) {
    sw_os_lock_acquire(&default_lock);
    sw_os_lock_acquire(&registry_lock);
    each_heap(lock_heap);
    sw_space_live_lock();
    sw_os_lock_pass(true);
}

static void fork_parent(void) {
    sw_os_lock_pass(false);
    sw_space_live_unlock();
    each_heap(unlock_heap);
    sw_os_lock_release(&registry_lock);
    sw_os_lock_release(&default_lock);
}

/* Whether another thread may have been inside the cache: every open one but the forking thread's
 * own. */
static bool is_torn(const sw_cache *cache) {
    return cache->cold->closed == 0 && cache != sw_thread_open_cache(cache->heap);
}

/* A bit for each word of the half that has frees by other threads, announced or not: the announcer
 * may be lost. */
static uint64_t pending_words(const sw_span *span, uint32_t half) {
    uint32_t count = sw_span_word_count(span);
    uint64_t words = 0;
    for (uint32_t k = half * 64; k < count && k < half * 64 + 64; k++)
        if (sw_word_remote(&span->words[k]) != 0) words |= 1ull << (k % 64);
    return words;
}

/* Drains every pending word; puts the spans of torn caches into central lists. A span that has an
 * owner and nothing pending is left alone: its state is right. */
static void drain_all(sw_heap *heap, sw_span *span) {
    if (sw_span_owner(span) != NULL && is_torn(sw_span_owner(span))) {
        sw_span_set_owner(span, NULL, SW_MARK_NONE);
        sw_span_enter(span, SW_SPAN_CENTRAL_FULL); /* in no list yet */
        span->kept = 0;
        sw_span_list_push(&heap->central_full[span->span_class], heap->space, span);
    }
    for (uint32_t half = 0; half < 2 && span->state != SW_SPAN_UNUSED; half++) {
        uintptr_t doubled; /* a drain may give the span up: its record is then unused */
        uint64_t *announced = &sw_space_cold(heap->space, span)->remote_words[half];
        *announced = pending_words(span, half);
        sw_cache *owner = sw_span_owner(span);
        if (owner == NULL) {
            sw_central_drain(heap, span, half, &doubled);
        } else if (*announced != 0) {
            sw_span_drain(heap->space, span, half, &doubled);
            sw_cache_unmark(owner, span);
            sw_cache_emptied(owner, span);
        }
    }
}

static void recover_spans(sw_heap *heap) {
    for (uint32_t i = 0; i < heap->pages.window_count; i++) {
        const sw_window *window = &heap->pages.windows[i];
        uint32_t step;
        for (uint32_t n = 0; n < window->frontier; n += step) {
            sw_span *span = sw_heap_span_at(heap, window, n, &step);
            if (span == NULL) continue;
            if (span->state == SW_SPAN_LARGE)
                sw_large_recover(heap, span);
            else
                drain_all(heap, span);
        }
    }
}

static void recover_cache(sw_heap *heap, sw_cache *cache) {
    struct sw_cache_cold *cold = cache->cold;
    cold->remote_head = 0; /* every span is drained */
    cold->hazard_id = 0;
    cache->hazard = NULL;
    if (!is_torn(cache)) return;
    sw_cache_reset_bins(cache);
    for (uint32_t i = 0; i < heap->span_classes; i++) {
        cold->partial[i] = cold->full[i] = (sw_span_list){0};
        cold->kept[i] = 0;
    }
    cold->tiny_block = 0;
    cold->tiny_used = 0;
    if (cold->holder != SW_CACHE_OF_THREAD) return; /* its user may be the forking thread */
    sw_cache_set_closed(cache);
}

static void recover_heap(sw_heap *heap) {
    sw_os_lock_reset(&heap->lock);
    heap->closing = 0;
    for (sw_cache *cache = heap->caches; cache != NULL; cache = cache->cold->next)
        memset(cache->cold->shelves, 0,
               sizeof cache->cold->shelves); /* or they are given up twice */
    recover_spans(heap);
    for (sw_cache *cache = heap->caches; cache != NULL; cache = cache->cold->next)
        recover_cache(heap, cache);
}

/* The records of the threads that the child does not have wait for its next ones. They are chained
 * as they are, so that the child copies no page for them. */
static void recover_threads(void) {
    sw_thread *own = tls_thread, **link = &threads;
    if (own != NULL) {
        if (own->next != NULL) own->next->back = own->back;
        *own->back = own->next;
    }
    for (; *link != NULL; link = &(*link)->next) spare_count++;
    *link = spare_threads;
    spare_threads = threads;
    threads = own;
    if (own == NULL) return;
    own->next = NULL;
    own->back = &threads;
}

static void fork_child(void) {
    sw_os_lock_pass(false);
    sw_space_live_reset();
    sw_os_lock_reset(&registry_lock);
    sw_os_lock_reset(&default_lock);
    each_heap(recover_heap);
    recover_threads();
}

/* At load time, before there are threads: registering allocates in some C libraries, so it must not
 * happen under a lock of ours. A refusal leaves only the children of multi-threaded parents
 * unprotected. */
__attribute__((constructor)) void sw_thread_register_fork(void) {
    static bool registered; /* atomic */
    if (!__atomic_exchange_n(&registered, true, __ATOMIC_ACQ_REL))
        (void)sw_os_at_fork(fork_prepare, fork_parent, fork_child);
}
