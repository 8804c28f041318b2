/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of live heaps and of thread records. */
#include "heap/registry.h"

#include <string.h>

#include "base/base.h"
#include "spanwise/fast.h"

enum { SPARE_MAX = 256 }; /* records that wait for a thread; about 1 MiB of them is resident */

/* The caches of threads that have no cache of the default heap, and of threads that have ended (set
 * when the first one ends). They have no heap, no address and no free slot, so every call takes a
 * slow path, and no fast path has to compare with NULL. */
enum { NO_CACHE_BINS = 2 * sizeof sw_fast_class_bytes / sizeof *sw_fast_class_bytes };
enum { NO_CACHE_BYTES = sizeof(sw_cache) + NO_CACHE_BINS * sizeof(sw_cache_bin) };
static sw_cache no_cache = {
    .bins = {[0 ... NO_CACHE_BINS - 1] = {.word = &sw_sentinel_word, .base = SW_NO_BASE}}};
static sw_cache ended_cache = {.bins = {[0 ... NO_CACHE_BINS - 1] = {.word = NULL}}};

_Thread_local SW_FAST_TLS sw_tls_record sw_tls = {.cache = &no_cache};

static sw_os_lock registry_lock;
static sw_thread *threads;
static sw_thread_change
    *changing;                   /* threads that are beginning or ending; written under the lock */
static sw_thread *spare_threads; /* records of threads that have ended, for new threads */
static uint32_t spare_count;
static sw_heap *heaps[SW_HEAPS_MAX];           /* by index; NULL: free */
static uint32_t heap_ids = SW_DEFAULT_HEAP_ID; /* the last id given out */

/* --- heaps ------------------------------------------------------------------------------------ */

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
    while (heap->closing != 0) { /* waits for exiting threads that are closing their caches */
        sw_os_lock_release(&registry_lock);
        sw_os_lock_acquire(&registry_lock);
    }
    heap->index = SW_HEAPS_MAX;
    sw_os_lock_release(&registry_lock);
}

/* --- threads ---------------------------------------------------------------------------------- */

enum {
    SHOWN_AT = (sizeof(sw_thread) + SW_CACHE_LINE - 1) / SW_CACHE_LINE * SW_CACHE_LINE,
    RECORD_BYTES = SHOWN_AT + NO_CACHE_BYTES, /* a thread's record, and a cache without a heap */
};

static void copy_no_cache(sw_cache *to) {
    *to = no_cache;
    for (size_t i = 0; i < NO_CACHE_BINS; i++) to->bins[i] = no_cache.bins[i];
}

void sw_registry_drop_default(void) { sw_tls.cache = &no_cache; }

void sw_registry_set_ended(void) {
    sw_os_lock_acquire(&registry_lock);
    if (ended_cache.bins[0].word == NULL) copy_no_cache(&ended_cache);
    sw_os_lock_release(&registry_lock);
    sw_tls.cache = &ended_cache;
}

bool sw_registry_has_ended(void) { return sw_unlikely(sw_tls.cache == &ended_cache); }

void sw_registry_show(sw_thread *thread) {
    if (sw_tls.cache->thread == thread) return;
    sw_cache *shown = (sw_cache *)(void *)((char *)thread + SHOWN_AT);
    if (shown->thread == NULL) {
        copy_no_cache(shown);
        shown->thread = thread;
    }
    sw_tls.cache = shown;
}

void sw_registry_change_begin(sw_thread_change *change, sw_thread *thread) {
    *change = (sw_thread_change){.here = sw_os_here(), .thread = thread};
    sw_os_lock_acquire(&registry_lock);
    change->next = changing;
    __atomic_store_n(&changing, change, __ATOMIC_RELAXED);
    sw_os_lock_release(&registry_lock);
}

void sw_registry_change_end(sw_thread_change *change) {
    sw_os_lock_acquire(&registry_lock);
    sw_thread_change **link = &changing;
    while (*link != change) link = &(*link)->next;
    __atomic_store_n(link, change->next, __ATOMIC_RELAXED);
    sw_os_lock_release(&registry_lock);
}

static sw_thread *find_changing(void) {
    const void *here = sw_os_here();
    for (const sw_thread_change *change = changing; change != NULL; change = change->next)
        if (change->here == here) return change->thread;
    return NULL;
}

sw_thread *sw_registry_find_changing(void) {
    if (__atomic_load_n(&changing, __ATOMIC_RELAXED) == NULL) return NULL;
    sw_os_lock_acquire(&registry_lock);
    sw_thread *thread = find_changing();
    sw_os_lock_release(&registry_lock);
    return thread;
}

/* Takes a record that is in no list, and empties its table; NULL: no memory. A spare record may
 * still refer to caches: in a forked child, those of the parent's other threads. */
static sw_thread *take_record(void) {
    sw_os_lock_acquire(&registry_lock);
    sw_thread *thread = spare_threads;
    if (thread != NULL) {
        spare_threads = thread->next;
        spare_count--;
    }
    sw_os_lock_release(&registry_lock);
    if (thread == NULL) return sw_os_map(RECORD_BYTES);
    memset(thread->caches, 0, thread->used * sizeof *thread->caches);
    return thread;
}

sw_thread *sw_registry_enter(void) {
    sw_thread *thread = take_record();
    if (thread == NULL) return NULL;
    sw_os_lock_acquire(&registry_lock);
    thread->next = threads;
    thread->back = &threads;
    if (threads != NULL) threads->back = &thread->next;
    threads = thread;
    sw_check2(sw_thread_check(thread));
    sw_os_lock_release(&registry_lock);
    return thread;
}

/* Under the registry's lock: keeps a record for a new thread. False: there are enough spare
 * records. */
static bool keep_record(sw_thread *thread) {
    if (spare_count >= SPARE_MAX) return false;
    thread->next = spare_threads;
    spare_threads = thread;
    spare_count++;
    return true;
}

void sw_registry_leave(sw_thread *thread) {
    sw_os_lock_acquire(&registry_lock);
    sw_check2(sw_thread_check(thread));
    if (thread->next != NULL) thread->next->back = thread->back;
    *thread->back = thread->next;
    bool kept = keep_record(thread);
    sw_os_lock_release(&registry_lock);
    if (!kept) (void)sw_os_release(thread, RECORD_BYTES);
}

void sw_registry_use_entry(sw_thread *thread, uint32_t index) {
    if (index < thread->used) return;
    sw_os_lock_acquire(&registry_lock);
    thread->used = index + 1;
    sw_check2(sw_thread_check(thread));
    sw_os_lock_release(&registry_lock);
}

sw_cache *sw_registry_take_cache(sw_thread *thread, size_t i) {
    if (__atomic_load_n(&thread->caches[i], __ATOMIC_RELAXED) == NULL) return NULL;
    sw_os_lock_acquire(&registry_lock);
    sw_cache *cache = thread->caches[i];
    thread->caches[i] = NULL;
    if (cache != NULL) cache->heap->closing++;
    sw_os_lock_release(&registry_lock);
    return cache;
}

void sw_registry_release_heap(sw_heap *heap) {
    sw_os_lock_acquire(&registry_lock);
    heap->closing--;
    sw_os_lock_release(&registry_lock);
}

/* --- fork ------------------------------------------------------------------------------------- */

void sw_registry_lock(void) { sw_os_lock_acquire(&registry_lock); }
void sw_registry_unlock(void) { sw_os_lock_release(&registry_lock); }

void sw_registry_each_heap(void (*fn)(sw_heap *)) {
    for (uint32_t i = 0; i < SW_HEAPS_MAX; i++)
        if (heaps[i] != NULL) fn(heaps[i]);
}

/* Makes the records of all threads but this one spare. Their list is prepended to the spare ones
 * unchanged, so that the child copies hardly any of their pages. */
static void recover_threads(void) {
    sw_thread *own = sw_registry_own(), **link = &threads;
    while (changing != NULL && changing->here != sw_os_here()) changing = changing->next;
    if (changing != NULL) changing->next = NULL;
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

void sw_registry_recover(void) {
    sw_os_lock_reset(&registry_lock);
    recover_threads();
}
