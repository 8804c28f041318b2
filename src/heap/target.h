/* SPDX-License-Identifier: Apache-2.0 */
/* Where a pointer that a caller passed leads: a live object, or misuse with its reason. Every free
 * that no fast path finishes, and every resize, looks its pointer up here. */
#ifndef SW_HEAP_TARGET_H
#define SW_HEAP_TARGET_H

#include "heap/heap.h"

typedef struct sw_target {
    sw_misuse misuse; /* NONE: a live object of `heap` */
    sw_span *span;
    uint32_t slot; /* of a span of slots */
    bool large;    /* decided once: the record may change under a free that races with another */
} sw_target;

sw_target sw_target_find(sw_heap *heap, const void *ptr);
/* In a heap that packs tiny objects, a 16-byte block may hold several: none of them can be freed or
 * resized alone. */
bool sw_target_is_shared(const sw_heap *heap, const sw_target *target);
/* The same of an object that the caller knows to be live. */
bool sw_object_is_shared(sw_heap *heap, const void *object);
/* Reports; returns only if the handler chose to leak and continue. */
/* What an address is that no heap has handed out, as who has handed it out says; atomic. NULL: nobody was asked to. */
extern sw_misuse (*sw_target_foreign)(const void *ptr);

void sw_target_report(sw_heap *heap, const sw_target *target, const char *op, const void *ptr,
                      size_t size);

#endif
