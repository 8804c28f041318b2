/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of types. Callers: the collector. */
#ifndef SW_GC_TYPE_H
#define SW_GC_TYPE_H

#include "gc/gc.h"

/* Makes layout SW_GC_UNTYPED. False: no memory. Layouts never move, so that threads read them without the lock. */
bool sw_gc_types_start(sw_gc *gc);
void sw_gc_types_end(sw_gc *gc);

/* type: a number that the collector has given. */
static inline const sw_gc_layout *sw_gc_layout_of(const sw_gc *gc, uint32_t type) {
    return &gc->layouts[type];
}
/* Whether the number is that of a registered type. */
static inline bool sw_gc_has_type(const sw_gc *gc, uint32_t type) {
    return type != SW_GC_UNTYPED && type < __atomic_load_n(&gc->type_count, __ATOMIC_RELAXED);
}
/* Whether word i of an array of such objects may hold a pointer. */
static inline bool sw_gc_is_pointer(const sw_gc_layout *layout, uint64_t i) {
    uint64_t at = i % layout->words;
    return layout->map == NULL || (layout->map[at / 64] >> at % 64 & 1) != 0;
}
/* Whether words [i, i + 64) may hold pointers, a bit each. */
uint64_t sw_gc_pattern_at(const sw_gc_layout *layout, uint64_t word);

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_gc_array_check(const sw_gc_array *array);
/* Room for one more item at the end; NULL: no memory. */
void *sw_gc_array_add(sw_gc_array *array, size_t item_bytes);
void sw_gc_array_end(sw_gc_array *array, size_t item_bytes);

/* The words of [start, start + bytes) are roots. */
typedef void (*sw_gc_root_visit)(void *arg, const void *start, size_t bytes);
/* In a heap that packs: calls visit for the word of each cache with its newest tiny block, of which the next objects will be. */
void sw_gc_visit_tiny(const sw_gc *gc, sw_gc_root_visit visit, void *arg);

/* Where threads may stand within an allocation: calls visit for the address of each object of the words that caches allocate from,
 * and of the large object that each cache took last. Between the store that takes a slot and the computing of its address
 * nothing else holds the object. */
void sw_gc_visit_inside(const sw_gc *gc, sw_gc_root_visit visit, void *arg);

/* A source begins to be asked, and ends; the second does nothing if it is asked no more. */
void sw_gc_add_source(sw_gc *gc, sw_gc_source *source);
void sw_gc_remove_source(sw_gc_source *source);
/* The collector ends: no source is asked any more. */
void sw_gc_drop_sources(sw_gc *gc);
/* Asks all sources. Under the lock. False: no memory for all of their ranges. */
bool sw_gc_ask_sources(sw_gc *gc);
/* For sources: one range more, of whole words. False: no memory. */
bool sw_gc_lend(sw_gc_array *ranges, const void *start, size_t bytes);

#endif
