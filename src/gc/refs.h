/* SPDX-License-Identifier: Apache-2.0 */
/* What refers to objects from outside of the heap: references that the program holds by number, and
 * finalizers. Everything is done under the collector's lock. Callers: mark (roots), checkmark,
 * finalizer, hooks, cycle, verify. */
#ifndef SW_GC_REFS_H
#define SW_GC_REFS_H

#include "gc/gc.h"

/* Returns the first broken rule, or NULL (base/assert.h). */
const char *sw_gc_refs_check(const sw_gc_refs *refs);

static inline sw_gc_ref_entry *sw_gc_refs_entry(const sw_gc_refs *refs, uint32_t index) {
    return (sw_gc_ref_entry *)refs->entries.items + index;
}
/* Whether the entry keeps its object alive. */
static inline bool sw_gc_refs_is_root(const sw_gc_ref_entry *entry) {
    return entry->object != 0 &&
           (entry->state == SW_GC_ENTRY_STRONG || entry->state == SW_GC_ENTRY_DUE ||
            entry->state == SW_GC_ENTRY_CALLED);
}
/* Without the lock: whether any object may have an entry. */
static sw_always_inline bool sw_gc_refs_are_used(const sw_gc *gc) {
    return __atomic_load_n(&gc->refs.hashed, __ATOMIC_RELAXED) != 0;
}

/* Whether an object of the heap begins there. Not one that shares its block, or that the program
 * has freed. */
bool sw_gc_refs_is_object(const sw_gc *gc, const void *object);
/* In a cycle that marks: whether the object is marked. */
bool sw_gc_refs_is_marked(const sw_gc *gc, uintptr_t object);

/* Adds an entry for the object, or for none (0). NULL: no memory. */
sw_gc_ref_entry *sw_gc_refs_add(sw_gc_refs *refs, uintptr_t object, sw_gc_entry_state state);
/* Takes the object away from the entry. */
void sw_gc_refs_clear(sw_gc_refs *refs, sw_gc_ref_entry *entry);
/* Makes the entry unused. Its number never names another entry. */
void sw_gc_refs_drop(sw_gc_refs *refs, sw_gc_ref_entry *entry);
/* The entry of the object's finalizer that was not called yet; NULL: it has none. */
sw_gc_ref_entry *sw_gc_refs_finalizer(const sw_gc_refs *refs, uintptr_t object);
/* Takes the object, which the program frees, away from all entries. */
void sw_gc_refs_forget(sw_gc_refs *refs, uintptr_t object);
/* In a cycle that marks: clears the references in that state whose objects are not marked. */
void sw_gc_refs_settle(sw_gc *gc, sw_gc_entry_state state);
void sw_gc_refs_end(sw_gc_refs *refs);

#endif
