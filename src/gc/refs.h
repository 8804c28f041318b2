/* SPDX-License-Identifier: Apache-2.0 */
/* What refers to objects from outside of the heap: references that the program holds by number, and finalizers. All is
 * done under the collector's lock. Callers: mark (roots), second_mark, finalizer, hooks, cycle, verify. */
#ifndef SW_GC_REFS_H
#define SW_GC_REFS_H

#include "gc/gc.h"

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_gc_refs_check(const sw_gc_refs *refs);

static inline sw_gc_ref_entry *sw_gc_refs_entry(const sw_gc_refs *refs, uint32_t index) {
    return (sw_gc_ref_entry *)refs->entries.items + index;
}
/* Whether the entry's object lives because of it. */
static inline bool sw_gc_refs_is_root(const sw_gc_ref_entry *entry) {
    return entry->object != 0 &&
           (entry->state == SW_GC_ENTRY_STRONG || entry->state == SW_GC_ENTRY_DUE ||
            entry->state == SW_GC_ENTRY_CALLED);
}
/* Without the lock: whether any object may have an entry. */
static sw_always_inline bool sw_gc_refs_are_used(const sw_gc *gc) {
    return __atomic_load_n(&gc->refs.hashed, __ATOMIC_RELAXED) != 0;
}

/* Whether an object of the heap begins there, which shares no block and which the program has not freed. */
bool sw_gc_refs_is_object(const sw_gc *gc, const void *object);
/* Whether the object is marked, in a cycle that marks. */
bool sw_gc_refs_is_marked(const sw_gc *gc, uintptr_t object);

/* An entry for the object, or for none (0). NULL: no memory. */
sw_gc_ref_entry *sw_gc_refs_add(sw_gc_refs *refs, uintptr_t object, sw_gc_entry_state state);
/* The entry has no object any more. */
void sw_gc_refs_clear(sw_gc_refs *refs, sw_gc_ref_entry *entry);
/* The entry is unused from now on; its number never names another one. */
void sw_gc_refs_drop(sw_gc_refs *refs, sw_gc_ref_entry *entry);
/* The finalizer of the object that was not called yet; NULL: it has none. */
sw_gc_ref_entry *sw_gc_refs_finalizer(const sw_gc_refs *refs, uintptr_t object);
/* The program frees the object: nothing refers to it any more. */
void sw_gc_refs_forget(sw_gc_refs *refs, uintptr_t object);
/* In a cycle that marks: references in that state to objects that are not marked become NULL. */
void sw_gc_refs_settle(sw_gc *gc, sw_gc_entry_state state);
void sw_gc_refs_end(sw_gc_refs *refs);

#endif
