/* SPDX-License-Identifier: Apache-2.0 */
/* References from outside the heap: handles of the program, and finalizers. All functions run under
 * the collector's lock. Callers: mark (roots), checkmark, finalizer, hooks, cycle, verify. */
#ifndef SW_GC_REFS_H
#define SW_GC_REFS_H

#include "gc/gc.h"
#include "gc/mark.h"

const char *sw_gc_refs_check(const sw_gc_refs *refs);

static inline sw_gc_ref_entry *sw_gc_refs_entry(const sw_gc_refs *refs, uint32_t index) {
    return (sw_gc_ref_entry *)refs->entries.items + index;
}
/* Returns whether the entry keeps its object alive. */
static inline bool sw_gc_refs_is_root(const sw_gc_ref_entry *entry) {
    return entry->object != 0 &&
           (entry->state == SW_GC_ENTRY_STRONG || entry->state == SW_GC_ENTRY_DUE ||
            entry->state == SW_GC_ENTRY_CALLED);
}
/* Returns whether any object may have an entry. Needs no lock. */
static sw_always_inline bool sw_gc_refs_are_used(const sw_gc *gc) {
    return __atomic_load_n(&gc->refs.hashed, __ATOMIC_RELAXED) != 0;
}

/* Returns whether an object of the heap begins there that neither shares its block nor was freed by
 * the program. */
bool sw_gc_refs_is_object(const sw_gc *gc, const void *object);

/* Returns the number of an entry, from 1 on, and the handle of a reference. */
uint32_t sw_gc_refs_number(const sw_gc_refs *refs, const sw_gc_ref_entry *entry);
sw_gc_ref sw_gc_refs_id(const sw_gc_refs *refs, const sw_gc_ref_entry *entry);
/* Returns the entry of a reference, in one of these states. NULL: no such reference. */
sw_gc_ref_entry *sw_gc_refs_find(const sw_gc_refs *refs, sw_gc_ref ref, sw_gc_entry_state first,
                                 sw_gc_entry_state last);
/* Adds an entry for the object, or for none (0); may move all entries. NULL: no memory. */
sw_gc_ref_entry *sw_gc_refs_add(sw_gc_refs *refs, uintptr_t object, sw_gc_entry_state state);
/* Sets the object of an entry that has none, and removes it. */
void sw_gc_refs_put(sw_gc_refs *refs, sw_gc_ref_entry *entry, uintptr_t object);
void sw_gc_refs_clear(sw_gc_refs *refs, sw_gc_ref_entry *entry);
/* Makes the entry unused. Its number is never reused for another entry. */
void sw_gc_refs_drop(sw_gc_refs *refs, sw_gc_ref_entry *entry);
/* Removes an object that the program frees from all entries. */
void sw_gc_refs_forget(sw_gc_refs *refs, uintptr_t object);
/* In a marking cycle: returns whether the object is marked. */
bool sw_gc_refs_is_marked(const sw_gc *gc, uintptr_t object);
/* In a marking cycle: clears the references in that state whose objects are not marked. */
void sw_gc_refs_settle(sw_gc *gc, sw_gc_entry_state state);
void sw_gc_refs_end(sw_gc_refs *refs);

/* --- calls ------------------------------------------------------------------------------------ */

/* Takes the lock of a live collector, if object is NULL or an object of its heap. */
sw_status sw_gc_refs_enter(sw_gc *gc, const char *op, const void *object);
/* The failure for a number that is no reference. */
sw_status sw_gc_refs_unknown(const char *op, sw_gc_ref ref);
/* Returns the object of an entry for the program: it survives a cycle that marks. */
void *sw_gc_refs_give(sw_gc *gc, const sw_gc_ref_entry *entry);

/* --- ephemerons ------------------------------------------------------------------------------- */

/* Returns the value of a key that is not cleared; NULL: the entry is no such key. */
static inline sw_gc_ref_entry *sw_gc_refs_value(const sw_gc_refs *refs,
                                                const sw_gc_ref_entry *entry) {
    bool is_key = entry->state == SW_GC_ENTRY_KEY && entry->object != 0;
    return is_key ? sw_gc_refs_entry(refs, entry->pair - 1) : NULL;
}
/* (ephemerons.c) When everything reachable otherwise is marked: marks values of marked keys. True: some were not
 * marked, so there is more to mark. */
bool sw_gc_ephemerons_mark(sw_gc_marker *marker);
/* Clears ephemerons whose keys are gone or not marked. */
void sw_gc_ephemerons_settle(sw_gc *gc);

/* --- finalizers ------------------------------------------------------------------------------- */

/* Under the collector's lock, when everything reachable from roots is marked: makes the finalizers
 * of all unmarked objects due, and marks those objects. True: there is more to mark. */
bool sw_gc_finalizers_settle(sw_gc_marker *marker);
/* In the child of a fork: finalizers that other threads were calling count as called. */
void sw_gc_finalizers_forked(sw_gc *gc);

#endif
