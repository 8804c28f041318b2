/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps whose objects a collector frees. The collector is a layer above the heap, so it gives the
 * heap functions to call (hooks). */
#ifndef SW_HEAP_COLLECTED_H
#define SW_HEAP_COLLECTED_H

#include "heap/heap.h"

/* From this bit on, the flags of an allocation have the type of the object. */
enum { SW_TYPE_SHIFT = 8 };

/* What a collector does with an explicit free. */
typedef enum sw_deferral {
    SW_FREE_NOW,    /* the caller frees the object */
    SW_FREE_LATER,  /* the collector will free it; the caller has nothing left to do */
    SW_FREE_DOUBLE, /* the program has freed the object before, and it waits for the sweep */
} sw_deferral;

/* A bit for each of 64 slots: the slots that count as allocated, and that the sweep of the cycle
 * under way will free. */
typedef struct sw_dead_slots {
    uint64_t pending; /* the program has freed them */
    uint64_t unswept; /* other slots that no root reached; 0 until marking has ended */
} sw_dead_slots;

struct sw_heap_hooks {
    size_t record_bytes; /* the collector's for each span record; metadata of the heap */
    /* Under the heap's lock: the record of a span was set up. False: no memory; the span is not
     * made. */
    bool (*born)(sw_heap *heap, sw_span *span);
    /* Under the heap's lock: the record is about to be dropped. */
    void (*gone)(sw_heap *heap, sw_span *span);
    /* The object at p was just allocated, with this type. */
    void (*typed)(sw_cache *cache, const sw_span *span, uintptr_t p, uint32_t type);
    /* No lock is held: the cache owns the span and is about to allocate from it. */
    void (*taken)(sw_cache *cache, sw_span *span);
    /* No lock is held: the cache has no partial span of the class. True: it may have one now. */
    bool (*sought)(sw_cache *cache, uint32_t span_class);
    /* No lock is held: the program wants to free a live object; a large object is slot 0. */
    sw_deferral (*deferred)(sw_heap *heap, sw_span *span, uint32_t slot);
    /* Whether the allocated slot was freed by the program and waits for the sweep. */
    bool (*waits)(const sw_heap *heap, const sw_span *span, uint32_t slot);
    /* Under the collector's lock and the heap's, or in a quiet heap: which of the slots 64 k to 64
     * k + 63 of a span the sweep will free. A large object is slot 0. */
    sw_dead_slots (*dead)(const sw_heap *heap, const sw_span *span, uint32_t k);
    /* Whether spans, and pages of large objects, may be given up now. */
    bool (*may_release)(const sw_heap *heap);
    /* No lock is held: the thread is about to change spans or lists of the heap. Waits while
     * another thread works on a cycle; that is misuse of a thread that has not joined, if
     * `reports`. */
    void (*enter)(sw_heap *heap, bool reports);
    /* The change is done. */
    void (*leave)(sw_heap *heap);
    /* No lock is held: the calling thread is about to get a cache. False: no memory; the last error
     * is set. */
    bool (*opens)(sw_heap *heap);
    /* There was no memory for that cache. */
    void (*unopens)(sw_heap *heap);
    /* The calling thread ends: it leaves the collector. */
    void (*ended)(sw_heap *heap);
    /* In the child of a fork, which has no other thread. */
    void (*forked)(sw_heap *heap);
};

/* Does what sw_heap_create does, for a heap with a collector. The hooks must live as long as the
 * heap. `lock` is the collector's lock, which is taken before the heap's. */
sw_status sw_heap_create_collected(const sw_heap_options *options, const sw_heap_hooks *hooks,
                                   void *collector, sw_os_lock *lock, sw_heap **out);
/* Destroys the heap when its collector ends. No cycle is under way. */
sw_status sw_heap_destroy_collected(sw_heap *heap);

/* Around every change of spans or lists of the heap, so that none falls into a cycle. Nothing in
 * between calls the program. */
static sw_always_inline void sw_heap_enter(sw_heap *heap) {
    if (sw_unlikely(sw_heap_is_collected(heap))) heap->hooks->enter(heap, true);
}
static sw_always_inline void sw_heap_leave(sw_heap *heap) {
    if (sw_unlikely(sw_heap_is_collected(heap))) heap->hooks->leave(heap);
}

/* Metadata that each span record of the heap takes. */
static inline size_t sw_heap_record_bytes(const sw_heap *heap) {
    size_t more = sw_heap_is_collected(heap) ? heap->hooks->record_bytes : 0;
    return sizeof(sw_span) + sizeof(sw_span_cold) + more;
}

#endif
