/* SPDX-License-Identifier: Apache-2.0 */
/* The look-up of a pointer that a caller passed: it leads to a live object, or it is misuse with a
 * reason. Frees that no faster path decides look their pointer up here, and so do resizes. */
#ifndef SW_HEAP_TARGET_H
#define SW_HEAP_TARGET_H

#include "heap/heap.h"

typedef struct sw_target {
    sw_misuse misuse; /* SW_MISUSE_NONE: a live object of the heap that was asked */
    sw_span *span;
    uint32_t slot; /* of a span of slots */
    bool large;    /* read once only: a racing second free may change the record */
} sw_target;

sw_target sw_target_find(sw_heap *heap, const void *ptr);
/* Whether the target is in a block that tiny objects share. In a heap that packs tiny objects a
 * block of 16 bytes may hold several of them, so none can be freed or resized alone. */
bool sw_target_is_shared(const sw_heap *heap, const sw_target *target);
/* The same for an object that the caller knows to be live. */
bool sw_object_is_shared(sw_heap *heap, const void *object);
/* A function that returns which misuse an address of no heap is, set by code that hands out such
 * addresses; atomic. NULL: no such code runs. */
extern sw_misuse (*sw_target_foreign)(const void *ptr);

/* As sw_heap_usable_size; a misuse is reported as one of `op`. */
size_t sw_target_usable(sw_heap *heap, const void *ptr, const char *op);
/* True: a live object of the heap starts at ptr, or may start there among tiny ones. False: the
 * misuse was reported. */
bool sw_target_check(sw_heap *heap, const void *ptr, const char *op);

/* Reports the misuse; returns only if the fault handler chose to leak the object and continue. */
void sw_target_report(sw_heap *heap, const sw_target *target, const char *op, const void *ptr,
                      size_t size);

#endif
