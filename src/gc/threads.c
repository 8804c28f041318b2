/* SPDX-License-Identifier: Apache-2.0 */
/* Records of joined threads. A thread joins by a call, or automatically: in a heap with
 * conservative roots when its cache of the heap is opened, in others at its first sw_gc_new while
 * other threads have joined. Its record ends with its cache. */
#include <string.h>

#include "base/base.h"
#include "gc/mark.h"
#include "gc/pace.h"
#include "gc/stop.h"
#include "gc/type.h"
#include "heap/registry.h"
#include "spanwise/gc_fast.h"

static const char *sw_gc_thread_check(const sw_gc_thread *thread) {
    return SW_RULE(thread->at != 0 || !thread->is_away);
}

/* --- under the lock --------------------------------------------------------------------------- */

sw_gc_thread *sw_gc_thread_find(const sw_gc *gc, uintptr_t at) {
    sw_gc_thread *threads = gc->threads.items;
    for (uint32_t i = 0; i < gc->threads.count; i++) {
        sw_check2(sw_gc_thread_check(&threads[i]));
        if (threads[i].at == at) return &threads[i];
    }
    return NULL;
}

static void set_running(sw_gc_thread *thread, uintptr_t at) {
    if (thread->context != NULL)
        __atomic_store_n(&thread->context->running_at, at, __ATOMIC_RELEASE);
}

void sw_gc_save_context(const sw_gc *gc, sw_gc_thread *own) {
    if (sw_gc_is_conservative(gc)) sw_os_context_save(&own->context->saved);
}

void sw_gc_go_away(sw_gc *gc, sw_gc_thread *thread) {
    sw_gc_save_context(gc, thread);
    thread->is_away = true;
    set_running(thread, 0);
    __atomic_store_n(&gc->running, gc->running - 1, __ATOMIC_RELAXED);
    if (gc->stopping != 0) sw_os_wake(&gc->running);
}

void sw_gc_come_back(sw_gc *gc, sw_gc_thread *thread) {
    thread->is_away = false;
    set_running(thread, thread->at);
    __atomic_store_n(&gc->running, gc->running + 1, __ATOMIC_RELAXED);
}

void sw_gc_wait_at(sw_gc *gc, const uint32_t *word, uint32_t value, uint64_t ns) {
    sw_os_lock_release(&gc->lock);
    bool in_time = sw_os_wait(word, value, ns);
    sw_os_lock_acquire(&gc->lock);
    if (!in_time) __atomic_store_n(&gc->timeouts, gc->timeouts + 1, __ATOMIC_RELAXED);
}

void sw_gc_wait_for_world(sw_gc *gc) {
    gc->waiting++;
    while (gc->stopping != 0) sw_gc_wait_at(gc, &gc->stopping, 1, gc->sleep_ns);
    gc->waiting--;
}

static void set_joined(sw_gc *gc, uint32_t joined) {
    __atomic_store_n(&gc->joined, joined, __ATOMIC_RELAXED);
    sw_gc_set_due(gc);
}

void sw_gc_thread_clear(sw_gc_thread *thread) {
    set_running(thread, 0);
    if (thread->context != NULL)
        __atomic_store_n(&thread->context->is_halted, false, __ATOMIC_RELAXED);
    *thread = (sw_gc_thread){.context = thread->context};
}

void sw_gc_threads_end(sw_gc *gc) {
    for (sw_gc_context *context = gc->contexts, *next; context != NULL; context = next) {
        next = context->next;
        (void)sw_os_release(context, sizeof *context);
    }
    sw_gc_array_end(&gc->threads, sizeof(sw_gc_thread));
}

/* --- joining ---------------------------------------------------------------------------------- */

static bool add_context(sw_gc *gc, sw_gc_thread *thread) {
    thread->context = sw_os_map(sizeof *thread->context);
    if (thread->context == NULL) return false;
    thread->context->next = gc->contexts;
    __atomic_store_n(&gc->contexts, thread->context, __ATOMIC_RELEASE);
    return true;
}

/* Adds a record, unused or new, for the calling thread, which has none. NULL: no memory. */
static sw_gc_thread *add_thread(sw_gc *gc, const sw_os_context *context) {
    sw_gc_thread *own = sw_gc_thread_find(gc, 0);
    if (own == NULL) own = sw_gc_array_add(&gc->threads, sizeof *own);
    if (own == NULL) return NULL;
    if (sw_gc_is_conservative(gc)) {
        if (own->context == NULL && !add_context(gc, own)) return NULL;
        own->context->saved = *context;
    }
    own->at = sw_gc_here();
    own->id = sw_os_thread_id();
    own->by_itself = true;
    sw_gc_inbox_join(gc, own->at);
    set_joined(gc, gc->joined + 1);
    sw_gc_come_back(gc, own);
    return own;
}

/* Joins the calling thread. name: NULL if it joins automatically. SW_STATE: it has joined before. A
 * thread that joined automatically may still give its name. */
static sw_status join(sw_gc *gc, const char *name) {
    sw_os_context context = {0};
    char of_system[16] = "";
    if (sw_gc_is_conservative(gc) && !sw_os_context_begin(&context)) return SW_NOMEM;
    if (name == NULL) sw_os_thread_name(of_system, sizeof of_system);
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    if (own == NULL) sw_gc_wait_for_world(gc);
    bool is_new = own == NULL, is_named = !is_new && own->by_itself && name != NULL;
    if (is_new) own = add_thread(gc, &context);
    if (own != NULL && (is_new || is_named)) {
        own->by_itself = name == NULL;
        memset(own->name, 0, sizeof own->name);
        strncpy(own->name, name != NULL ? name : of_system, sizeof own->name - 1);
    }
    sw_os_lock_release(&gc->lock);
    return own == NULL ? SW_NOMEM : is_new || is_named ? SW_OK : SW_STATE;
}

static bool fail_to_join(const char *op) {
    sw_fail(SW_NOMEM, op, "no memory for a thread's record");
    return false;
}

bool sw_gc_attach(sw_gc *gc) {
    if (sw_thread_cache(gc->heap) == NULL) return false; /* its end makes the thread leave */
    sw_os_lock_acquire(&gc->lock);
    bool joined = sw_gc_thread_find(gc, sw_gc_here()) != NULL;
    sw_os_lock_release(&gc->lock);
    if (joined) return true;
    return join(gc, NULL) != SW_NOMEM || fail_to_join("gc_attach");
}

bool sw_gc_attach_late(sw_gc *gc) { return sw_gc_attaches(gc) && join(gc, NULL) == SW_OK; }

/* A thread with a cache of the heap has joined, so its stack is scanned. */
bool sw_gc_open_heap(sw_heap *heap) {
    sw_gc *gc = heap->collector;
    if (gc == NULL || !sw_gc_joins_all(gc)) return true;
    return join(gc, NULL) != SW_NOMEM || fail_to_join("heap");
}

void sw_gc_unopen_heap(sw_heap *heap) { sw_gc_thread_ended(heap->collector); }

/* --- calls ------------------------------------------------------------------------------------ */

sw_status sw_gc_join(sw_gc *gc, const char *name) {
    const char *op = "gc_join";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (name == NULL) return sw_fail(SW_INVALID, op, "the name is NULL");
    if (sw_thread_cache(gc->heap) == NULL) return SW_NOMEM; /* its end makes the thread leave */
    status = join(gc, name);
    if (status == SW_NOMEM) (void)fail_to_join(op);
    return status == SW_STATE ? sw_fail(SW_STATE, op, "the thread has joined before") : status;
}

/* Returns the record of the calling thread, with the lock held. NULL: the thread has not joined, or
 * is not in the state `is_away`; then *status is set, and the lock is free. */
static sw_gc_thread *enter(sw_gc *gc, const char *op, bool is_away, sw_status *status) {
    *status = SW_GC_STATUS(gc, op);
    if (*status != SW_OK) return NULL;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    if (own != NULL && own->is_away == is_away) return own;
    sw_os_lock_release(&gc->lock);
    *status = sw_fail(SW_STATE, op, "the thread has not joined, or is in %s blocking region",
                      is_away ? "no" : "a");
    return NULL;
}

/* Removes a thread's record, under the lock. */
static void drop_thread(sw_gc *gc, sw_gc_thread *own) {
    if (!own->is_away) sw_gc_go_away(gc, own);
    sw_gc_inbox_leave(gc, own->at);
    sw_gc_thread_clear(own);
    set_joined(gc, gc->joined - 1);
}

sw_status sw_gc_leave(sw_gc *gc) {
    sw_status status;
    sw_gc_thread *own = enter(gc, "gc_leave", false, &status);
    if (own == NULL) return status;
    drop_thread(gc, own);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

void sw_gc_thread_ended(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    if (own != NULL) drop_thread(gc, own);
    sw_os_lock_release(&gc->lock);
}

sw_status sw_gc_block(sw_gc *gc) {
    sw_status status;
    sw_gc_thread *own = enter(gc, "gc_block", false, &status);
    if (own == NULL) return status;
    sw_gc_go_away(gc, own);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

sw_status sw_gc_unblock(sw_gc *gc) {
    sw_status status;
    if (enter(gc, "gc_unblock", true, &status) == NULL) return status;
    sw_gc_wait_for_world(gc);
    sw_gc_come_back(gc, sw_gc_thread_find(gc, sw_gc_here()));
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

/* --- inline allocation ------------------------------------------------------------------------ */

/* A type without a fast path has span class 0, from whose bin no slot is ever taken, so sw_gc_new
 * allocates each of its objects. */
sw_status sw_gc_type_allocator_begin(sw_gc *gc, uint32_t type, sw_gc_type_allocator *allocator) {
    const char *op = "gc_type_allocator_begin";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (allocator == NULL) return sw_fail(SW_INVALID, op, "the allocator is NULL");
    if (!sw_gc_has_type(gc, type)) return sw_fail(SW_INVALID, op, "no type has number %u", type);
    if (sw_gc_attaches(gc) && !sw_gc_attach(gc)) return SW_NOMEM; /* the last error is set */
    sw_cache *cache = sw_thread_cache(gc->heap);
    if (cache == NULL) return SW_NOMEM;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_layout *layout = &gc->layouts[type];
    layout->has_type_allocators = true;
    *allocator = (sw_gc_type_allocator){
        .gc = gc,
        .bin = &cache->bins[layout->span_class],
        .fresh = &gc->fresh,
        .due = &gc->due,
        .bytes = layout->bytes,
        .bin_type = layout->bin_type,
        .clear_bytes = layout->scan ? cache->bins[layout->span_class].bytes : 0,
        .type = type,
        .phase = &gc->phase};
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}
