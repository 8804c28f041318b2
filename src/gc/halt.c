/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that gets the signal saves its context and waits in the handler until the world resumes.
 * It does so only outside the library, where it holds none of the library's locks. It may hold
 * others, so a stopped world calls no function that takes one, such as malloc. */
#include "gc/halt.h"

#include "os/os.h"

static sw_gc *halting;    /* atomic: the collector whose threads stop; NULL: none */
static uint32_t handlers; /* atomic: handlers that may refer to it */

/* Another stop may begin before the thread has left, so the thread counts itself out first and then
 * checks again. Its context has not changed. */
static void wait_halted(sw_gc *gc) {
    enum { SLEEP_NS = 1000000000 };
    do {
        __atomic_add_fetch(&gc->halted, 1, __ATOMIC_SEQ_CST);
        sw_os_wake(&gc->running);
        while (__atomic_load_n(&gc->stopping, __ATOMIC_SEQ_CST) != 0)
            (void)sw_os_wait(&gc->stopping, 1, SLEEP_NS);
        __atomic_sub_fetch(&gc->halted, 1, __ATOMIC_SEQ_CST);
    } while (__atomic_load_n(&gc->stopping, __ATOMIC_SEQ_CST) != 0);
}

/* The thread may hold one of these while the library calls a function of the program. */
static bool is_locked(const sw_gc *gc) {
    return __atomic_load_n(&gc->lock.state, __ATOMIC_RELAXED) != 0 ||
           __atomic_load_n(&gc->heap->lock.state, __ATOMIC_RELAXED) != 0;
}

/* Returns the calling thread's context while it is not away; NULL: it has none. The records of
 * threads may move now, if the stop has timed out and a thread joins, but contexts do not. */
static sw_gc_context *find_running(const sw_gc *gc) {
    sw_gc_context *at = __atomic_load_n(&gc->contexts, __ATOMIC_ACQUIRE);
    while (at != NULL && __atomic_load_n(&at->running_at, __ATOMIC_ACQUIRE) != sw_gc_here())
        at = at->next;
    return at;
}

static void halt(sw_gc *gc, const void *at) {
    sw_gc_context *own = find_running(gc);
    if (own == NULL || own->is_halted || is_locked(gc)) return;
    if (!sw_os_halts_outside(&own->saved, at)) return;
    sw_os_context_save(&own->saved);
    __atomic_store_n(&own->is_halted, true, __ATOMIC_RELAXED);
    wait_halted(gc);
    __atomic_store_n(&own->is_halted, false, __ATOMIC_RELAXED);
}

static void on_signal(const void *at) {
    __atomic_add_fetch(&handlers, 1, __ATOMIC_SEQ_CST);
    sw_gc *gc = __atomic_load_n(&halting, __ATOMIC_SEQ_CST);
    if (gc != NULL) halt(gc, at);
    __atomic_sub_fetch(&handlers, 1, __ATOMIC_SEQ_CST);
}

bool sw_gc_halt_begin(void) { return sw_os_at_halt(on_signal); }

void sw_gc_halt_threads(sw_gc *gc) {
    const sw_gc_thread *threads = gc->threads.items;
    sw_gc *other = NULL;
    if (!__atomic_compare_exchange_n(&halting, &other, gc, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST) &&
        other != gc)
        return; /* the threads of another collector stop now */
    for (uint32_t i = 0; i < gc->threads.count; i++)
        if (threads[i].at != 0 && !threads[i].is_away &&
            !__atomic_load_n(&threads[i].context->is_halted, __ATOMIC_RELAXED))
            sw_os_halt(threads[i].id);
}

void sw_gc_halt_end(sw_gc *gc) {
    (void)__atomic_compare_exchange_n(&halting, &gc, NULL, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST);
}

void sw_gc_halt_forked(void) {
    __atomic_store_n(&halting, NULL, __ATOMIC_SEQ_CST);
    __atomic_store_n(&handlers, 0, __ATOMIC_SEQ_CST);
}

void sw_gc_halt_settle(void) {
    enum { SLEEP_NS = 100000 };
    uint32_t now;
    while ((now = __atomic_load_n(&handlers, __ATOMIC_SEQ_CST)) != 0)
        (void)sw_os_wait(&handlers, now, SLEEP_NS);
}
