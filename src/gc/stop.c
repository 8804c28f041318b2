/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that stops the world sets `stopping`, which safepoints read, and `due`, which sends
 * sw_gc_new to a safepoint; then it waits until no joined thread is running. All of this changes
 * under the collector's lock, which no thread holds while waiting, so that a fork is possible
 * during the wait. */
#include "gc/stop.h"

#include "base/base.h"
#include "gc/events.h"
#include "gc/pace.h"
#include "os/os.h"

/* --- halting threads by a signal -------------------------------------------------------------- */

/* A thread that gets the signal saves its context and waits in the handler until the world resumes.
 * It does so only outside the library, where it holds none of the library's locks. It may hold
 * others, so a stopped world calls no function that takes one, such as malloc. */

static sw_gc *halting;    /* atomic: the collector whose threads stop; NULL: none */
static uint32_t handlers; /* atomic: handlers that may refer to it */

/* Another stop may begin before the thread has left the handler, so the thread first decrements the
 * count and then checks again. Its context has not changed. */
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

/* Under the collector's lock, while the world is to stop: sends the signal to each running thread.
 * Threads inside the library do not stop, so it is sent again. */
static void sw_gc_halt_threads(sw_gc *gc) {
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

/* Ends the stop by signals: a handler that begins now does nothing. */
static void sw_gc_halt_end(sw_gc *gc) {
    (void)__atomic_compare_exchange_n(&halting, &gc, NULL, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST);
}

/* in the child */
static void sw_gc_halt_forked(void) {
    __atomic_store_n(&halting, NULL, __ATOMIC_SEQ_CST);
    __atomic_store_n(&handlers, 0, __ATOMIC_SEQ_CST);
}

void sw_gc_halt_settle(void) {
    enum { SLEEP_NS = 100000 };
    uint32_t now;
    while ((now = __atomic_load_n(&handlers, __ATOMIC_SEQ_CST)) != 0)
        (void)sw_os_wait(&handlers, now, SLEEP_NS);
}

/* --- stopping the world ----------------------------------------------------------------------- */

/* --- the world -------------------------------------------------------------------------------- */

static void set_stopping(sw_gc *gc, uint32_t stopping) {
    __atomic_store_n(&gc->stopping, stopping, __ATOMIC_SEQ_CST); /* before reads of `changing` */
    sw_gc_set_due(gc);
    if (stopping == 0 && (gc->waiting != 0 || sw_gc_halted(gc) != 0)) sw_os_wake(&gc->stopping);
}

static void go_on(sw_gc *gc) {
    set_stopping(gc, 0);
    if (gc->stopper != 0) sw_gc_come_back(gc, (sw_gc_thread *)gc->threads.items + gc->stopper - 1);
    gc->stopper = 0;
}

static bool is_halted(const sw_gc_thread *thread) {
    return thread->context != NULL &&
           __atomic_load_n(&thread->context->is_halted, __ATOMIC_RELAXED);
}

/* Resumes the world, and fails with the name of the first thread that has reached no safepoint. */
static sw_status name_late(sw_gc *gc, const char *op) {
    const sw_gc_thread *late = gc->threads.items;
    if (gc->running == sw_gc_halted(gc)) {
        go_on(gc);
        return sw_fail(SW_BUSY, op, "a thread that has not joined is inside a call on the heap");
    }
    while (late->at == 0 || late->is_away || is_halted(late)) late++;
    go_on(gc);
    return sw_fail(SW_BUSY, op, "thread '%s' (%llu) has reached no safepoint for %llu ms",
                   late->name, (unsigned long long)late->id,
                   (unsigned long long)(gc->stop_ns / 1000000));
}

/* Returns the count of threads to wait for; NULL: none. */
static const uint32_t *late_word(const sw_gc *gc) {
    if (gc->slices != 0) return &gc->slices;
    if (gc->running != sw_gc_halted(gc)) return &gc->running;
    if (gc->inside) return NULL;
    return __atomic_load_n(&gc->changing, __ATOMIC_SEQ_CST) != 0 ? &gc->changing : NULL;
}

/* Waits until all others have stopped. Threads that do not reach a safepoint soon get signals
 * repeatedly, because threads inside the library continue. */
static sw_status wait_for_others(sw_gc *gc, const char *op, bool by_signal) {
    enum { FIRST_NS = 100000, AGAIN_NS = 500000 };
    uint64_t end = 0, again = UINT64_MAX;
    const uint32_t *late;
    while ((late = late_word(gc)) != NULL) {
        uint64_t now = gc->clock();
        if (end == 0 && by_signal) again = now + FIRST_NS;
        if (end == 0) end = now + gc->stop_ns;
        if (now >= end || gc->is_ending) return name_late(gc, op);
        if (now >= again) {
            sw_gc_halt_threads(gc);
            again = now + AGAIN_NS;
        }
        uint32_t seen = __atomic_load_n(late, __ATOMIC_SEQ_CST);
        if (seen != 0) sw_gc_wait_at(gc, late, seen, sw_min_u64(end, again) - now);
    }
    return SW_OK;
}

sw_status sw_gc_stop_world(sw_gc *gc, const char *op, bool by_signal) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    bool stops = own != NULL && !own->is_away;
    if (stops)
        sw_gc_go_away(gc, own); /* another thread may be waiting for this one */
    else if (own != NULL)
        sw_gc_save_context(gc, own); /* in a blocking region */
    sw_gc_wait_for_world(gc);
    if (stops) own = sw_gc_thread_find(gc, sw_gc_here()); /* the records may have moved */
    gc->stopper = stops ? (uint32_t)(own - (sw_gc_thread *)gc->threads.items) + 1 : 0;
    set_stopping(gc, 1);
    uint64_t asked = gc->joined != 0 ? gc->clock() : 0;
    gc->asked_ns = asked;
    sw_status status = wait_for_others(gc, op, by_signal);
    if (by_signal) sw_gc_halt_end(gc);
    if (asked != 0 && status == SW_OK) sw_gc_events_note(gc, SW_GC_EVENT_WAIT, asked);
    return status;
}

void sw_gc_resume_world(sw_gc *gc) {
    if (gc->stopping != 0) go_on(gc);
    sw_os_lock_release(&gc->lock);
}

/* Returns false if the calling thread has not joined, or is away. */
static bool stop_here(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    bool runs = own != NULL && !own->is_away;
    if (runs && gc->stopping != 0) {
        sw_gc_go_away(gc, own);
        sw_gc_wait_for_world(gc);
        sw_gc_come_back(gc, sw_gc_thread_find(gc, sw_gc_here()));
    }
    sw_os_lock_release(&gc->lock);
    return runs;
}

static sw_cold void report_not_joined(const sw_gc *gc, const char *op) {
    sw_misuse_report(&(sw_fault){.code = SW_MISUSE_NOT_JOINED,
                                 .op = op,
                                 .ptr = gc,
                                 .heap_id = gc->heap->id,
                                 .thread = sw_os_thread_id()});
}

void sw_gc_stop_here(sw_gc *gc) { (void)stop_here(gc); }

void sw_gc_stop_in_call(sw_gc *gc) {
    if (stop_here(gc)) return;
    if (sw_gc_attach_late(gc)) return; /* it has waited */
    sw_os_lock_acquire(&gc->lock);
    sw_gc_wait_for_world(gc);
    sw_os_lock_release(&gc->lock);
    report_not_joined(gc, "gc_new");
}

void sw_gc_stop_forked(sw_gc *gc) {
    sw_gc_thread *threads = gc->threads.items;
    gc->joined = gc->running = gc->stopper = gc->changing = gc->waiting = gc->halted = 0;
    sw_gc_halt_forked();
    for (uint32_t i = 0; i < gc->threads.count; i++) {
        if (threads[i].at != sw_gc_here())
            sw_gc_thread_clear(&threads[i]);
        else
            threads[i].id = sw_os_thread_id();
        gc->joined += threads[i].at != 0;
        gc->running += threads[i].at != 0 && !threads[i].is_away;
    }
    set_stopping(gc, 0);
}

/* --- inside of the heap ----------------------------------------------------------------------- */

static void leave_heap(sw_gc *gc) {
    uint32_t left = __atomic_sub_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST);
    if (left == 0 && __atomic_load_n(&gc->stopping, __ATOMIC_SEQ_CST) != 0)
        sw_os_wake(&gc->changing);
}

/* Waits until the world resumes. True: the thread has joined and is running, so the world has not
 * stopped yet, and the thread may continue. */
static bool wait_outside(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    const sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    bool runs = own != NULL && !own->is_away;
    if (runs)
        __atomic_add_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST);
    else
        sw_gc_wait_for_world(gc);
    sw_os_lock_release(&gc->lock);
    return runs;
}

void sw_gc_enter_heap(sw_heap *heap, bool reports) {
    sw_gc *gc = heap->collector;
    for (;;) {
        __atomic_add_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST); /* before the read of `stopping` */
        if (sw_likely(__atomic_load_n(&gc->stopping, __ATOMIC_SEQ_CST) == 0)) return;
        leave_heap(gc);
        if (wait_outside(gc)) return;
        if (reports) report_not_joined(gc, "heap");
    }
}

void sw_gc_leave_heap(sw_heap *heap) { leave_heap(heap->collector); }

/* --- calls ------------------------------------------------------------------------------------ */

void sw_gc_safepoint(sw_gc *gc) {
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_safepoint")) return;
    if (sw_unlikely(sw_gc_is_stopping(gc))) sw_gc_stop_here(gc);
}

sw_status sw_gc_set_stop_ns(sw_gc *gc, uint64_t ns) {
    const char *op = "gc_set_stop_ns";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (ns == 0 || ns > INT64_MAX)
        return sw_fail(SW_INVALID, op, "the time is 1 to 2^63 - 1 nanoseconds");
    sw_os_lock_acquire(&gc->lock);
    gc->stop_ns = ns;
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}
