/* SPDX-License-Identifier: Apache-2.0 */
/* Due finalizers are linked into a queue through their entries, so the end of marking needs no
 * memory. All of one cycle become due at once and in no order, so a chain or a ring of objects with
 * finalizers is finalized in one cycle. A collector that calls the finalizer of an object before
 * those of the objects that it points to needs a cycle per link, and never finalizes a ring (Boehm,
 * "Destructors, finalizers, and synchronization", 2003, argues for that order). */
#include "gc/finalizer.h"

#include "base/fail.h"
#include "gc/events.h"
#include "gc/refs.h"
#include "gc/stop.h"

/* --- the queue -------------------------------------------------------------------------------- */

static void append_due(sw_gc_refs *refs, sw_gc_ref_entry *entry, uint32_t number) {
    entry->state = SW_GC_ENTRY_DUE;
    entry->due_next = 0;
    if (refs->due_last == 0)
        refs->due_first = number;
    else
        sw_gc_refs_entry(refs, refs->due_last - 1)->due_next = number;
    refs->due_last = number;
}

/* Takes the next due entry, and marks it as being called. Returns its number; 0: none is due.
 * Entries whose objects were freed meanwhile are dropped. */
static uint32_t take_due(sw_gc_refs *refs) {
    while (refs->due_first != 0) {
        uint32_t number = refs->due_first;
        sw_gc_ref_entry *entry = sw_gc_refs_entry(refs, number - 1);
        refs->due_first = entry->due_next;
        if (refs->due_first == 0) refs->due_last = 0;
        if (entry->object != 0) {
            entry->state = SW_GC_ENTRY_CALLED;
            entry->thread = sw_gc_here();
            return number;
        }
        sw_gc_refs_drop(refs, entry);
    }
    return 0;
}

bool sw_gc_finalizers_settle(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    uint64_t before = gc->cycle.due_finalizers;
    for (uint32_t i = 0; i < gc->refs.entries.count; i++) {
        sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        if (entry->state != SW_GC_ENTRY_FINALIZER) continue;
        if (sw_gc_refs_is_marked(gc, entry->object)) continue;
        append_due(&gc->refs, entry, i + 1);
        gc->cycle.due_finalizers++;
        sw_gc_mark_range(marker, &entry->object, sizeof entry->object);
    }
    return gc->cycle.due_finalizers != before;
}

void sw_gc_finalizers_forked(sw_gc *gc) {
    for (uint32_t i = 0; i < gc->refs.entries.count; i++) {
        sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        if (entry->state == SW_GC_ENTRY_CALLED && entry->thread != sw_gc_here())
            sw_gc_refs_drop(&gc->refs, entry);
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Sets or replaces the finalizer of an object; NULL removes it. False: no memory. */
static bool set(sw_gc_refs *refs, uintptr_t object, sw_gc_finalizer_fn finalizer, void *arg) {
    sw_gc_ref_entry *entry = sw_gc_refs_finalizer(refs, object);
    if (finalizer == NULL) {
        if (entry == NULL) return true;
        bool due = entry->state == SW_GC_ENTRY_DUE; /* it stays in the queue, without an object */
        (due ? sw_gc_refs_clear : sw_gc_refs_drop)(refs, entry);
        return true;
    }
    if (entry == NULL) entry = sw_gc_refs_add(refs, object, SW_GC_ENTRY_FINALIZER);
    if (entry == NULL) return false;
    entry->finalizer = finalizer;
    entry->arg = arg;
    return true;
}

sw_status sw_gc_set_finalizer(sw_gc *gc, const void *object, sw_gc_finalizer_fn finalizer,
                              void *arg) {
    const char *op = "gc_set_finalizer";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    bool is_object = object != NULL && sw_gc_refs_is_object(gc, object);
    bool done = is_object && set(&gc->refs, (uintptr_t)object, finalizer, arg);
    sw_os_lock_release(&gc->lock);
    if (!is_object) return sw_fail(SW_INVALID, op, "no object of the heap begins at %p", object);
    return done ? SW_OK : sw_fail(SW_NOMEM, op, "no memory for a finalizer");
}

/* Calls a due finalizer. 0: none is due; 1: called; 2: called, and it has ended the collector. */
static int finalize_one(sw_gc *gc) {
    if (sw_gc_is_stopping(gc)) sw_gc_stop_here(gc);
    sw_os_lock_acquire(&gc->lock);
    uint32_t number = take_due(&gc->refs);
    sw_gc_ref_entry called = {0};
    if (number != 0) called = *sw_gc_refs_entry(&gc->refs, number - 1);
    sw_os_lock_release(&gc->lock);
    if (number == 0) return 0;
    uint64_t begin = sw_gc_events_now(gc);
    called.finalizer((void *)called.object, called.arg); /* NOLINT(performance-no-int-to-ptr) */
    if (!sw_handle_lives(gc, offsetof(sw_gc, mark), SW_HANDLE_GC)) return 2;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_refs_drop(&gc->refs, sw_gc_refs_entry(&gc->refs, number - 1));
    sw_gc_events_note(gc, SW_GC_EVENT_FINALIZE, begin);
    sw_os_lock_release(&gc->lock);
    return 1;
}

size_t sw_gc_finalize(sw_gc *gc, size_t most) {
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_finalize")) return 0;
    size_t count = 0;
    int called = 1;
    while (count < most && called == 1) {
        called = finalize_one(gc);
        count += called != 0;
    }
    return count;
}
