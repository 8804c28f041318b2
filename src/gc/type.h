/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of types. Callers: the collector. */
#ifndef SW_GC_TYPE_H
#define SW_GC_TYPE_H

#include "gc/gc.h"

/* Reserves the layouts, and creates that of SW_GC_UNTYPED. False: no memory. Layouts never move, so
 * that threads read them without the lock. */
bool sw_gc_types_start(sw_gc *gc);
void sw_gc_types_end(sw_gc *gc);

/* type: a number of a registered type. */
static inline const sw_gc_layout *sw_gc_layout_of(const sw_gc *gc, uint32_t type) {
    return &gc->layouts[type];
}
static inline bool sw_gc_has_type(const sw_gc *gc, uint32_t type) {
    return type != SW_GC_UNTYPED && type < __atomic_load_n(&gc->type_count, __ATOMIC_RELAXED);
}
/* Returns whether word i of an array of such objects may hold a pointer. */
static inline bool sw_gc_is_pointer(const sw_gc_layout *layout, uint64_t i) {
    uint64_t at = i % layout->words;
    return layout->map == NULL || (layout->map[at / 64] >> at % 64 & 1) != 0;
}
/* Returns a mask; bit i: word `word` + i of an array of such objects may hold a pointer. */
uint64_t sw_gc_pattern_at(const sw_gc_layout *layout, uint64_t word);

/* Appends an item, and returns it. NULL: no memory. */
void *sw_gc_array_add(sw_gc_array *array, size_t item_bytes);
void sw_gc_array_end(sw_gc_array *array, size_t item_bytes);

/* Receives a range of roots: the words of [start, start + bytes). */
typedef void (*sw_gc_root_visit)(void *arg, const void *start, size_t bytes);
/* In a heap that packs tiny objects: calls visit for each cache's pointer to its newest block,
 * which its next tiny objects will share. */
void sw_gc_visit_tiny(const sw_gc *gc, sw_gc_root_visit visit, void *arg);

/* If threads may be stopped within an allocation: calls visit for the address of each object of the
 * caches' current words, and of the large object that each cache allocated last. Between the store
 * that takes a slot and the computation of its address, nothing else refers to the object. */
void sw_gc_visit_inside(const sw_gc *gc, sw_gc_root_visit visit, void *arg);

/* Adds and removes a source. Removing one that is in no list does nothing. */
void sw_gc_add_source(sw_gc *gc, sw_gc_source *source);
void sw_gc_remove_source(sw_gc_source *source);
void sw_gc_drop_sources(sw_gc *gc);
/* Gets the ranges of all sources, under the lock. False: no memory. */
bool sw_gc_ask_sources(sw_gc *gc);
/* For sources: adds a range of whole words. False: no memory. */
bool sw_gc_lend(sw_gc_array *ranges, const void *start, size_t bytes);

#endif
