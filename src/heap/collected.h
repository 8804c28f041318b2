/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps whose objects a collector frees. The collector lies above the heap and gives it functions to call. */
#ifndef SW_HEAP_COLLECTED_H
#define SW_HEAP_COLLECTED_H

#include "heap/heap.h"

/* The type of an object is in the flags of its allocation, from this bit on. */
enum { SW_TYPE_SHIFT = 8 };

/* What a collector does with an explicit free. */
typedef enum sw_deferral {
    SW_FREE_NOW,    /* the caller frees the object */
    SW_FREE_LATER,  /* the collector will: the free is done */
    SW_FREE_DOUBLE, /* the object was freed before, and waits for the sweep */
} sw_deferral;

/* Of 64 slots, a bit each: those that count as allocated, and that the sweep of the cycle under way will free. */
typedef struct sw_dead_slots {
    uint64_t pending; /* the program has freed them */
    uint64_t unswept; /* of the others, those that no root reached; 0 until marking has ended */
} sw_dead_slots;

struct sw_heap_hooks {
    size_t record_bytes; /* that the collector has for each span record; metadata of the heap */
    /* Under the heap's lock: the record of a span is set up. False: no memory, the span is not made. */
    bool (*born)(sw_heap *heap, sw_span *span);
    /* Under the heap's lock: the record is about to be dropped. */
    void (*gone)(sw_heap *heap, sw_span *span);
    /* The object at p has just been taken. */
    void (*typed)(sw_cache *cache, const sw_span *span, uintptr_t p, uint32_t type);
    /* No lock is held: the cache owns the span and is about to take slots of it. */
    void (*taken)(sw_cache *cache, sw_span *span);
    /* No lock is held: the cache has no partial span of the class. True: it may have one now. */
    bool (*sought)(sw_cache *cache, uint32_t span_class);
    /* No lock is held: the live object is to be freed by the program (slot 0: a large one). */
    sw_deferral (*deferred)(sw_heap *heap, sw_span *span, uint32_t slot);
    /* Whether the allocated slot was freed by the program and waits for the sweep. */
    bool (*waits)(const sw_heap *heap, const sw_span *span, uint32_t slot);
    /* Under the collector's lock and the heap's, or in a quiet heap: what the sweep will free of slots 64 k to 64 k + 63 of a
     * span. A large object is slot 0. */
    sw_dead_slots (*dead)(const sw_heap *heap, const sw_span *span, uint32_t k);
    /* Whether spans, and pages of large objects, may be given up now. */
    bool (*may_release)(const sw_heap *heap);
    /* In the child of a fork, where no other thread is. */
    void (*forked)(sw_heap *heap);
};

/* As sw_heap_create. The hooks live as long as the heap. lock: the collector's, which is taken before the
 * heap's. */
sw_status sw_heap_create_collected(const sw_heap_options *options, const sw_heap_hooks *hooks,
                                   void *collector, sw_os_lock *lock, sw_heap **out);
/* The collector of the heap ends, and the heap with it. No cycle is under way. */
sw_status sw_heap_destroy_collected(sw_heap *heap);

/* Metadata that each span record of the heap takes. */
static inline size_t sw_heap_record_bytes(const sw_heap *heap) {
    size_t more = sw_heap_is_collected(heap) ? heap->hooks->record_bytes : 0;
    return sizeof(sw_span) + sizeof(sw_span_cold) + more;
}

#endif
