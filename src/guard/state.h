/* SPDX-License-Identifier: Apache-2.0 */
/* What every guarded call reads: the heap, its switches, and the calling thread's record. */
#ifndef SW_GUARD_STATE_H
#define SW_GUARD_STATE_H

#include <string.h>

#include "guard/guard.h"
#include "heap/heap.h"
#include "heap/registry.h"
#include "heap/target.h"
#include "heap/template.h"

/* Objects of size 0: addresses of an inaccessible range, with a bit for each live one. */
enum { SW_EMPTY_OBJECTS = 1 << 16, SW_EMPTY_WORDS = SW_EMPTY_OBJECTS / 64 };
typedef struct sw_empties {
    sw_os_lock lock;
    char *range; /* NULL: none */
    uint64_t live[SW_EMPTY_WORDS];
    size_t next_word; /* where the search for a free address goes on */
} sw_empties;

/* Objects on pages of their own. `range`, `places` and `count` are set before the first allocation,
 * and do not change. The rest is under the lock. Free places are a queue, so that a page is reused
 * as late as possible. */
typedef struct sw_samples {
    sw_os_lock lock;
    char *range; /* NULL: none */
    struct sw_place *places;
    uint32_t count;
    uint32_t first, last; /* of the queue; first == count: it is empty */
} sw_samples;

/* Freed objects of pages that are held, inaccessible, so that each use of them faults. A ring under
 * the lock of the samples. */
enum { SW_HELD_LARGE = 16, SW_HELD_LARGE_MIN = 1 << 17, SW_HELD_LARGE_MAX = 1 << 23 };
typedef struct sw_held_large {
    void *objects[SW_HELD_LARGE]; /* NULL: none */
    uint32_t place;               /* of the next one; that of the oldest */
} sw_held_large;

/* A guarded heap. The fields above `empties` do not change. */
typedef struct sw_guard_state {
    sw_heap *heap;
    unsigned on; /* SW_GUARD_ bits */
    uint64_t key;
    size_t quick_max; /* the largest size that sw_guard_alloc does not pass on; 0: none */
    struct sw_guard_state *next; /* in the list of those with inaccessible pages (sample.c) */
    sw_empties empties;
    sw_samples samples;
    sw_held_large large;
} sw_guard_state;

extern sw_guard_state sw_guard; /* of the preloaded malloc */

static inline sw_guard_state *sw_guard_of(const sw_heap *heap) { return heap->guard_state; }

/* Switches that need the canary: the kind of allocation is part of it. */
enum { SW_GUARD_ENDS = SW_GUARD_CANARY | SW_GUARD_MATCH };

/* What a thread, or a cache, has for guarded calls, in its own mapping. In the preloaded malloc it
 * is the thread's extra value of the heap layer, else the cache has its address. */
struct sw_guard_thread {
    sw_cache *cache;
    sw_guard_state *guard;
    uint64_t countdown;        /* allocations until one is sampled */
    uint64_t burst;            /* sampling.c: the same, outside the inline paths; 0: inside */
    uint64_t random;           /* the state of its generator */
    uint64_t place;            /* of the next held object: place < SW_GUARD_HELD */
    void *held[SW_GUARD_HELD]; /* objects freed by the program but not by the heap; NULL: none */
};

/* A record that belongs to no thread yet; NULL: no memory. Its end frees what it holds, if `op` is
 * given. */
sw_guard_thread *sw_guard_record_make(sw_cache *cache);
void sw_guard_record_end(sw_guard_thread *own, const char *op);

/* Begins to guard a heap, with a state that is all 0; and releases what the state refers to. */
void sw_guard_begin(sw_guard_state *guard, sw_heap *heap, unsigned on);
void sw_guard_end(sw_guard_state *guard);

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

/* Reports of misuse that the guard finds. They return only if the program's fault handler
 * continues. */

enum { SW_GUARD_FRAMES = 12 };

/* Where an object was allocated or freed: return addresses, innermost first. */
typedef struct sw_guard_stack {
    uint64_t thread; /* 0: unknown */
    uint64_t frames[SW_GUARD_FRAMES];
    size_t depth;
} sw_guard_stack;

/* Notes the stack of the calling thread. */
void sw_guard_note_stack(sw_guard_stack *stack);

void sw_guard_report(sw_heap *heap, sw_misuse misuse, const char *op, const void *p, size_t size);
/* The same, with the stacks of a sampled object. */
void sw_guard_report_stacks(sw_heap *heap, sw_misuse misuse, const char *op, const void *p,
                            size_t size, const sw_guard_stack stacks[2]);

/* --- what the heap knows of an object --------------------------------------------------------- */

typedef struct sw_guarded {
    sw_target target;
    size_t bytes;              /* of the slot, or of the pages of a large object */
    size_t requested;          /* that the heap was asked for: one more than the program; 0: held */
    void *slack;               /* the array of the slot's span */
    uint64_t *large_requested; /* of a large object: where `requested` is */
} sw_guarded;

/* Looks a pointer up. A held object is a double free. */
sw_guarded sw_guarded_find(sw_heap *heap, const void *ptr);

/* The same for a slot of SW_QUICK_MAX bytes at most in the cache's view. False: no live object starts
 * there, or sw_guarded_find must decide. */
enum { SW_QUICK_MAX = UINT16_MAX };
static sw_always_inline bool sw_guarded_find_quick(const sw_cache *cache, const void *ptr,
                                                   sw_guarded *found) {
    uint64_t slot;
    sw_heap *heap = cache->heap;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (sw_unlikely(span == NULL)) return false;
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    bool is_free = (sw_word_all(&span->words[slot / 64]) >> slot % 64 & 1) != 0;
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    if (sw_unlikely(is_free) || sw_unlikely(cold->heap != heap) ||
        sw_unlikely(bytes > SW_QUICK_MAX))
        return false;
    found->target = (sw_target){.span = span, .slot = (uint32_t)slot};
    found->bytes = bytes;
    found->slack = cold->slack;
    found->requested = bytes - __atomic_load_n(&((uint16_t *)cold->slack)[slot], __ATOMIC_RELAXED);
    return sw_likely(found->requested != 0);
}

/* Marks such a slot as held. False: another thread did. A thread that owns the span needs no atomic
 * exchange: if another one frees the object at the same time, both may continue, and the second to
 * leave the held objects finds its slot free, or live again. */
static sw_always_inline bool sw_guarded_hold_quick(const sw_cache *cache,
                                                   const sw_guarded *object) {
    uint16_t *slack = &((uint16_t *)object->slack)[object->target.slot];
    uint16_t bytes = (uint16_t)object->bytes;
    if (sw_span_owner(object->target.span) != cache)
        return __atomic_exchange_n(slack, bytes, __ATOMIC_ACQ_REL) != bytes;
    __atomic_store_n(slack, bytes, __ATOMIC_RELAXED);
    return true;
}

/* The same for any object, by an atomic exchange. */
bool sw_guarded_hold(const sw_guarded *object);

/* The canary: the bytes after an object, up to 16, depend on its address and on a key of the
 * process. The two low bits of each byte are the kind of allocation plus one, so no byte is 0, and
 * the end of a string that is one byte too long is detected.
 *
 *   byte i after the start of the object is byte i % 8 of the word, for
 *   size <= i < min(bytes, size / 8 * 8 + 16)
 *
 * So a canary is written and compared by two words: the one in which the object ends, and the next
 * one if the slot has it. `bytes` of the slot is a multiple of 8 and more than `size`. */

enum { SW_CANARY_MAX = 16 };

static inline uint64_t sw_canary_word(uint64_t key, const void *object, sw_guard_kind kind) {
    uint64_t word = (key ^ (uintptr_t)object) * UINT64_C(0x9E3779B97F4A7C15);
    word ^= word >> 32;
    return (word & UINT64_C(0xFCFCFCFCFCFCFCFC)) | UINT64_C(0x0101010101010101) * (kind + 1u);
}

/* The bytes of the object in the word in which it ends. */
static inline uint64_t sw_canary_object_part(size_t size) {
    unsigned bits = size % 8 * 8;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return ~(~UINT64_C(0) >> bits);
#else
    return ~(~UINT64_C(0) << bits);
#endif
}

static inline void sw_canary_write(uint64_t word, void *object, size_t size, size_t bytes) {
    char *at = (char *)object + size / 8 * 8;
    uint64_t object_part = sw_canary_object_part(size), last;
    memcpy(&last, at, sizeof last);
    last = (last & object_part) | (word & ~object_part);
    memcpy(at, &last, sizeof last);
    if (size / 8 * 8 + 8 < bytes) memcpy(at + 8, &word, sizeof word);
}

/* Returns the bits in which the canary differs from the word's; 0: it is whole. */
static inline uint64_t sw_canary_damage(uint64_t word, const void *object, size_t size,
                                        size_t bytes) {
    const char *at = (const char *)object + size / 8 * 8;
    uint64_t last, next = word;
    memcpy(&last, at, sizeof last);
    if (size / 8 * 8 + 8 < bytes) memcpy(&next, at + 8, sizeof next);
    return ((last ^ word) & ~sw_canary_object_part(size)) | (next ^ word);
}

/* Returns whether the canary is whole, and in *kind who allocated the object. */
static inline bool sw_canary_read(uint64_t key, const void *object, size_t size, size_t bytes,
                                  sw_guard_kind *kind) {
    unsigned low = ((const uint8_t *)object)[size] & 3;
    if (low == 0) return false;
    *kind = (sw_guard_kind)(low - 1);
    return sw_canary_damage(sw_canary_word(key, object, *kind), object, size, bytes) == 0;
}

/* Clearing of freed memory, and the check that it is still clear. Bytes of slots are multiples of
 * 8. */

enum {
    SW_CHECKED_BYTES_MAX = 1 << 17, /* of a large object before it is reused */
    SW_PURGED_BYTES_MIN = 1 << 17,  /* clearing such an object returns its pages */
};

static inline bool sw_guard_is_clear(const void *p, size_t bytes) {
    const sw_pair *pair = p;
    sw_pair found = {0, 0};
    for (size_t i = 0; i < bytes / sizeof *pair; i++) found |= pair[i];
    uint64_t rest = bytes % sizeof *pair == 0 ? 0 : ((const sw_eight *)p)[bytes / 8 - 1];
    return (found[0] | found[1] | rest) == 0;
}

/* Reports a write to memory that is free or held. */
void sw_guard_check_clear(const sw_guard_state *guard, const void *p, size_t bytes, const char *op);

/* --- the end of an object in its slot: its canary, if one is written -------------------------- */

/* Writes it, and returns p. */
void *sw_guarded_end(const sw_guard_state *guard, void *p, size_t size, size_t bytes,
                     sw_guard_kind kind);
static sw_always_inline void *sw_guarded_end_quick(const sw_guard_state *guard, void *p,
                                                   size_t size, size_t bytes, sw_guard_kind kind) {
    if ((guard->on & SW_GUARD_ENDS) != 0)
        sw_canary_write(sw_canary_word(guard->key, p, kind), p, size, bytes);
    return p;
}

/* True: the object ends in the canary of an object of this kind and, if stated, this size. */
static sw_always_inline bool sw_guarded_ends_well(const sw_guard_state *guard, const void *p,
                                                  const sw_guarded *object, size_t stated,
                                                  sw_guard_kind kind) {
    size_t size = object->requested - 1;
    if (stated != SIZE_MAX && stated != size) return false;
    if ((guard->on & SW_GUARD_ENDS) == 0) return true;
    return sw_canary_damage(sw_canary_word(guard->key, p, kind), p, size, object->bytes) == 0;
}

#endif
