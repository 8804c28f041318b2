/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that stops the world sets `stopping`, which safe points read, and `due`, which sends
 * sw_gc_new to a safe point; then it waits until no thread that has joined is running. All of that
 * changes under the collector's lock, which nobody holds while waiting, so a fork may happen
 * meanwhile. */
#include "gc/stop.h"

#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "gc/events.h"
#include "gc/pace.h"
#include "gc/type.h"

enum { SLICE_NS = 1000000000 };

const char *sw_gc_thread_check(const sw_gc_thread *thread) {
    return SW_RULE(thread->at != 0 || !thread->is_away);
}

/* --- under the lock --------------------------------------------------------------------------- */

/* The record with that `at`; NULL: there is none. */
static sw_gc_thread *find(const sw_gc *gc, uintptr_t at) {
    sw_gc_thread *threads = gc->threads.items;
    for (uint32_t i = 0; i < gc->threads.count; i++) {
        sw_check2(sw_gc_thread_check(&threads[i]));
        if (threads[i].at == at) return &threads[i];
    }
    return NULL;
}

static void go_away(sw_gc *gc, sw_gc_thread *thread) {
    thread->is_away = true;
    __atomic_store_n(&gc->running, gc->running - 1, __ATOMIC_RELAXED);
    if (gc->stopping != 0) sw_os_wake(&gc->running);
}

static void come_back(sw_gc *gc, sw_gc_thread *thread) {
    thread->is_away = false;
    __atomic_store_n(&gc->running, gc->running + 1, __ATOMIC_RELAXED);
}

/* Waits, without the lock, until the word is written, which is `value` now, or the time is over. */
static void wait_at(sw_gc *gc, const uint32_t *word, uint32_t value, uint64_t ns) {
    sw_os_lock_release(&gc->lock);
    sw_os_wait(word, value, ns);
    sw_os_lock_acquire(&gc->lock);
}

static void wait_for_world(sw_gc *gc) {
    while (gc->stopping != 0) wait_at(gc, &gc->stopping, 1, SLICE_NS);
}

static void set_stopping(sw_gc *gc, uint32_t stopping) {
    __atomic_store_n(&gc->stopping, stopping, __ATOMIC_RELAXED);
    sw_gc_set_due(gc);
    if (stopping == 0) sw_os_wake(&gc->stopping);
}

static void set_joined(sw_gc *gc, uint32_t joined) {
    __atomic_store_n(&gc->joined, joined, __ATOMIC_RELAXED);
    sw_gc_set_due(gc);
}

/* --- the world -------------------------------------------------------------------------------- */

static void go_on(sw_gc *gc) {
    set_stopping(gc, 0);
    if (gc->stopper != 0) come_back(gc, (sw_gc_thread *)gc->threads.items + gc->stopper - 1);
    gc->stopper = 0;
}

/* Lets the world go on, and fails with the name of the first thread that has come to no safe
 * point. */
static sw_status name_late(sw_gc *gc, const char *op) {
    const sw_gc_thread *late = gc->threads.items;
    while (late->at == 0 || late->is_away) late++;
    go_on(gc);
    return sw_fail(SW_BUSY, op, "thread '%s' (%llu) has come to no safe point for %llu ms",
                   late->name, (unsigned long long)late->id,
                   (unsigned long long)(gc->stop_ns / 1000000));
}

sw_status sw_gc_stop_world(sw_gc *gc, const char *op) {
    sw_os_lock_acquire(&gc->lock);
    if (gc->joined == 0) return SW_OK;
    sw_gc_thread *own = find(gc, sw_gc_here());
    bool stops = own != NULL && !own->is_away;
    if (stops) go_away(gc, own); /* another thread may be waiting for this one */
    wait_for_world(gc);
    if (stops) own = find(gc, sw_gc_here()); /* the records may have moved */
    gc->stopper = stops ? (uint32_t)(own - (sw_gc_thread *)gc->threads.items) + 1 : 0;
    set_stopping(gc, 1);
    uint64_t asked = sw_os_now_ns(), end = asked + gc->stop_ns;
    while (gc->running != 0) {
        uint64_t now = sw_os_now_ns();
        if (now >= end) return name_late(gc, op);
        wait_at(gc, &gc->running, gc->running, end - now);
    }
    sw_gc_events_note(gc, SW_GC_EVENT_WAIT, asked);
    return SW_OK;
}

void sw_gc_resume_world(sw_gc *gc) {
    if (gc->stopping != 0) go_on(gc);
    sw_os_lock_release(&gc->lock);
}

void sw_gc_stop_here(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = find(gc, sw_gc_here());
    if (own != NULL && !own->is_away && gc->stopping != 0) {
        go_away(gc, own);
        wait_for_world(gc);
        come_back(gc, find(gc, sw_gc_here()));
    }
    sw_os_lock_release(&gc->lock);
}

void sw_gc_stop_forked(sw_gc *gc) {
    sw_gc_thread *threads = gc->threads.items;
    gc->joined = gc->running = gc->stopper = 0;
    for (uint32_t i = 0; i < gc->threads.count; i++) {
        if (threads[i].at != sw_gc_here()) threads[i] = (sw_gc_thread){0};
        gc->joined += threads[i].at != 0;
        gc->running += threads[i].at != 0 && !threads[i].is_away;
    }
    set_stopping(gc, 0);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Makes a record for the calling thread, which has none: an unused one, or a new one. False: no
 * memory. */
static bool add_thread(sw_gc *gc, const char *name) {
    sw_gc_thread *own = find(gc, 0);
    if (own == NULL) own = sw_gc_array_add(&gc->threads, sizeof *own);
    if (own == NULL) return false;
    *own = (sw_gc_thread){.at = sw_gc_here(), .id = sw_os_thread_id()};
    strncpy(own->name, name, sizeof own->name - 1);
    set_joined(gc, gc->joined + 1);
    come_back(gc, own);
    return true;
}

sw_status sw_gc_join(sw_gc *gc, const char *name) {
    const char *op = "gc_join";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (name == NULL) return sw_fail(SW_INVALID, op, "the name is NULL");
    sw_os_lock_acquire(&gc->lock);
    wait_for_world(gc);
    bool joined = find(gc, sw_gc_here()) != NULL, added = !joined && add_thread(gc, name);
    sw_os_lock_release(&gc->lock);
    if (joined) return sw_fail(SW_STATE, op, "the thread has joined before");
    return added ? SW_OK : sw_fail(SW_NOMEM, op, "no memory for a thread's record");
}

/* Returns the record of the calling thread, with the lock held. NULL: the thread has not joined, or
 * is not in the state `is_away`; then *status says so, and the lock is free. */
static sw_gc_thread *enter(sw_gc *gc, const char *op, bool is_away, sw_status *status) {
    *status = SW_GC_STATUS(gc, op);
    if (*status != SW_OK) return NULL;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = find(gc, sw_gc_here());
    if (own != NULL && own->is_away == is_away) return own;
    sw_os_lock_release(&gc->lock);
    *status = sw_fail(SW_STATE, op, "the thread has not joined, or is in %s blocking region",
                      is_away ? "no" : "a");
    return NULL;
}

sw_status sw_gc_leave(sw_gc *gc) {
    sw_status status;
    sw_gc_thread *own = enter(gc, "gc_leave", false, &status);
    if (own == NULL) return status;
    go_away(gc, own);
    *own = (sw_gc_thread){0};
    set_joined(gc, gc->joined - 1);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

sw_status sw_gc_block(sw_gc *gc) {
    sw_status status;
    sw_gc_thread *own = enter(gc, "gc_block", false, &status);
    if (own == NULL) return status;
    go_away(gc, own);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

sw_status sw_gc_unblock(sw_gc *gc) {
    sw_status status;
    if (enter(gc, "gc_unblock", true, &status) == NULL) return status;
    wait_for_world(gc);
    come_back(gc, find(gc, sw_gc_here()));
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

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
