/* SPDX-License-Identifier: Apache-2.0 */
/* A cache: the record, its opening and its end. What the fast paths read of it is struct sw_cache
 * in spanwise/fast_abi.h; what only slow paths read is here. */
#ifndef SW_HEAP_CACHE_H
#define SW_HEAP_CACHE_H

#include "heap/heap.h"

/* Who uses a cache. */
typedef enum sw_cache_holder {
    SW_CACHE_OF_THREAD = 0,
    SW_CACHE_OF_LIBRARY = 1, /* the library's own code opened it: any thread may be in it */
    SW_CACHE_OF_USER = 2,    /* sw_cache_open: any thread may be in it, users have its address */
} sw_cache_holder;

enum {
    SW_LARGE_WAYS = 2,                    /* shelves of one band */
    SW_LARGE_SHELVES = 9 * SW_LARGE_WAYS, /* bands: a page, 2, 3..4, ... up to 1 MiB of 4 KiB */
    SW_SPAN_SHELF_PAGES = 12,             /* the longest span that is shelved */
    SW_SPAN_SHELVES = 40, /* 8 for spans of one and of two pages, 4 of 3 and of 4, else 2 */
};

/* What only slow paths read of a cache. The record is never freed while the heap lives, because a
 * freer may still hold a pointer to it; a closed one is reused by the next cache. */
struct sw_cache_cold {
    sw_cache *next;                      /* all caches of the heap */
    sw_cache *list_next, *list_previous; /* open caches, or closed ones */
    uint32_t number;                     /* 1, 2, ... */
    uint32_t closed;                     /* atomic */
    uint32_t remote_head;  /* atomic: stack of halves with announced frees, span id * 2 + half */
    uint32_t tiny_used;    /* bytes used of the tiny block */
    uint32_t hazard_id;    /* atomic: id of sw_cache.hazard, for other threads; 0: none */
    uint16_t holder;       /* sw_cache_holder */
    uint8_t exhausted;     /* 1: the central lists and the page heap had nothing at the last look */
    uint8_t been_central;  /* 1: there was such a look since it was opened */
    uint32_t scarcity;     /* of free slots in words: heap/hint.h. 0 while hints are on */
    uint32_t dropped;      /* hints in vain since a word served; 0 while hints are off */
    uint32_t slow_class;   /* span class of the last slow end: heap/variety.h */
    uint32_t variety;      /* account of changes of it */
    uint32_t idle_credit;  /* for giving idle current spans up: heap/idle.h */
    uint32_t newest_large; /* in collected heaps: id of the large object taken last; 0: none was */
    uint32_t end_steps;    /* looks at spans while it closed: close.c */
    uint64_t tick_ns;      /* the decay tick at which idle spans were last given up */
    uintptr_t tiny_block;  /* 0: none */
    sw_span_list *partial; /* by span class */
    sw_span_list *full;
    uint16_t *idle_spans; /* by span class: spans in `partial` that are idle */
    uint32_t large_frees; /* large objects that were put on shelves */
    uint32_t large_turns; /* which of the two shelves of a band was taken last */
    uint64_t
        classes[SW_SPAN_CLASS_WORDS];   /* a bit for each span class of which it has had a span */
    uint64_t shelves[SW_LARGE_SHELVES]; /* atomic; see heap/shelf.h */
    uint32_t span_turns;                /* idle spans that the cache has given up, or shelved */
    uint32_t turning_id; /* a span that changes its class, and that the page map does not show; 0 */
    uint32_t span_shelves[SW_SPAN_SHELVES]; /* atomic: ids; 0: empty; see heap/span_shelf.h */
};

/* Of a class, where the kept idle spans follow use (batch_by_use): how many are kept, and how many were
 * given up since the last tick. Written by the cache's thread.
 *   allowed <= batch_spans of the heap's options */
typedef struct sw_batch_use {
    uint16_t allowed, given_up;
} sw_batch_use;

/* A span of the class becomes the cache's. The spans and hints of a cache are of such classes. */
static inline void sw_cache_note_class(struct sw_cache_cold *cold, uint32_t span_class) {
    cold->classes[span_class / 64] |= 1ull << span_class % 64;
}

/* They lie behind idle_spans. */
static inline sw_batch_use *sw_cache_batch_use(const sw_cache *cache, uint32_t span_class) {
    return (sw_batch_use *)(cache->cold->idle_spans + cache->heap->span_classes) + span_class;
}

/* --- bins and hints --------------------------------------------------------------------------- */

/* Stands for the span class of the size, which is small, without pointers. */
enum { SW_CLASS_OF_SIZE = 0 };

/* The bin of a class's pointer-free objects. */
static sw_always_inline sw_cache_bin *sw_cache_noscan_bin(sw_cache *cache, size_t cls) {
    sw_cache_bin(*of_class)[2] = (sw_cache_bin(*)[2])cache->bins;
    return &of_class[cls][1];
}

/* The bin has no current span. */
static inline void sw_bin_empty(sw_cache_bin *bin) {
    bin->word = &sw_sentinel_word;
    bin->base = SW_NO_BASE;
    bin->span = NULL;
}

/* The hints of a noscan class. Scan classes have none: malloc has no use for them, and every cache
 * would be twice as long. */
static sw_always_inline sw_hint *sw_cache_hints(const sw_cache *cache, uint32_t span_class) {
    return &cache->hints[(size_t)(span_class / 2) << SW_HINTS_LOG2];
}
/* Behind the newest hint. */
static sw_always_inline sw_hint *sw_bin_hints_end(const sw_cache_bin *bin) {
    return (sw_hint *)((uintptr_t)bin->hints + bin->hinted);
}

/* Bytes of hints that a bin may have. 0 in heaps of another placement policy than LIFO, because
 * there the policy chooses the next slot. */
static inline uint32_t sw_heap_hints_max(const sw_heap *heap, uint32_t span_class) {
    bool hinted = span_class % 2 != 0 && heap->options.placement == SW_PLACE_LIFO &&
                  (heap->mode & SW_MODE_COLLECTED) == 0;
    return hinted ? SW_HINTS_MAX * (uint32_t)sizeof(sw_hint) : 0;
}

/* Bytes of a cache's record, whole pages of the system: a mapping of its own. */
size_t sw_cache_record_bytes(const sw_heap *heap);
/* The pages (of 2^grain_shift bytes) of a cache's record that were written to, a bit each: bins are written when it
 * opens, hints one after the other from each class's first, and none of them is 0 afterwards. */
uint64_t sw_cache_written_pages(const sw_cache *cache, uint32_t grain_shift);
/* The pages that hold a hint, as bits of such a map. */
static inline uint64_t sw_cache_hint_pages(const sw_cache *cache, const sw_hint *hint,
                                           uint32_t grain_shift) {
    uintptr_t first = (uintptr_t)hint - (uintptr_t)cache, last = first + sizeof *hint - 1;
    return 1ull << (first >> grain_shift) | 1ull << (last >> grain_shift);
}

/* --- lives ------------------------------------------------------------------------------------ */

/* Opens or closes a cache. The registry's lock is not taken. */
sw_status sw_cache_make(sw_heap *heap, sw_cache_holder holder, sw_cache **out);
void sw_cache_shut(sw_cache *cache);
/* No bin has a current span or a hint. A cache that has closed leaves its bins so. */
void sw_cache_reset_bins(sw_cache *cache);
/* Under the heap's lock: an open cache that owns nothing any more counts as closed. */
void sw_cache_set_closed(sw_cache *cache);
/* Before the heap's metadata goes: the records stay for a while as those of ended handles. */
void sw_cache_retire_records(sw_heap *heap);

/* Whether the handle is an open cache; else its misuse is reported. In one that has ended no path
 * finds anything: its bins are empty, no address is in its view, no size is small, its shelves are
 * empty. So only the slow ends of the paths ask. */
static sw_always_inline bool sw_cache_check(const sw_cache *cache, const char *op) {
    return sw_handle_check(cache, offsetof(struct sw_cache, mark), SW_HANDLE_CACHE, op);
}
/* The same of one that was open once, without a report. */
static sw_always_inline bool sw_cache_is_open(const sw_cache *cache) {
    uint64_t mark = __atomic_load_n(&cache->mark, __ATOMIC_RELAXED);
    return sw_likely(mark == SW_HANDLE_LIVE + SW_HANDLE_CACHE);
}
/* Whether a cache that the caller promised not to be NULL (SW_NONNULL) is NULL after all. Builds of
 * grade 1 do not ask: it is two instructions of each call (docs/decisions/0026-null-caches.md). The
 * compiler believes the promise and would delete the comparison; the empty assembly keeps it. */
static sw_always_inline bool sw_cache_is_null(const sw_cache *cache) {
    if (SW_CHECK < 2) return false;
    __asm__("" : "+r"(cache));
    return cache == NULL;
}

#endif
