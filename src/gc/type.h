/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of types. Callers: the collector. */
#ifndef SW_GC_TYPE_H
#define SW_GC_TYPE_H

#include "gc/gc.h"

/* Makes layout SW_GC_UNTYPED. False: no memory. */
bool sw_gc_types_start(sw_gc *gc);
void sw_gc_types_end(sw_gc *gc);

/* type: a number that the collector has given. */
static inline const sw_gc_layout *sw_gc_layout_of(const sw_gc *gc, uint32_t type) {
    return (const sw_gc_layout *)gc->types.items + type;
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

#endif
