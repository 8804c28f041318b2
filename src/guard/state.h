/* SPDX-License-Identifier: Apache-2.0 */
/* What every guarded call reads: the heap, the switches, and the calling thread's record. */
#ifndef SW_GUARD_STATE_H
#define SW_GUARD_STATE_H

#include "guard/guard.h"
#include "heap/thread.h"

typedef struct sw_guard_state {
    sw_heap *heap; /* NULL: none is guarded */
    unsigned on;   /* SW_GUARD_ bits */
    uint64_t key;
    size_t quick_max; /* the largest size that sw_guard_alloc does not pass on; 0: none */
} sw_guard_state;

extern sw_guard_state sw_guard;

/* Switches that need the canary: the kind of allocation is part of it. */
enum { SW_GUARD_ENDS = SW_GUARD_CANARY | SW_GUARD_MATCH };

/* A thread's record, in its own mapping. It is the thread's extra value of the heap layer. */
struct sw_guard_thread {
    sw_cache *cache;
    uint64_t countdown;        /* allocations until one is sampled */
    uint64_t random;           /* the state of its generator */
    uint64_t place;            /* of the next held object: place < SW_GUARD_HELD */
    void *held[SW_GUARD_HELD]; /* objects freed by the program but not by the heap; NULL: none */
};

/* Only the upper bits are random: it is a linear congruential generator (Knuth's MMIX). */
static inline uint64_t sw_guard_next_random(sw_guard_thread *own) {
    own->random = own->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return own->random;
}

/* The calling thread's record; NULL: it has none. */
static sw_always_inline sw_guard_thread *sw_guard_thread_own(void) {
    const sw_thread *thread = sw_tls.cache->thread;
    return sw_likely(thread != NULL) ? thread->extra : NULL;
}

#endif
