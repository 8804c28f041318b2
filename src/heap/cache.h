/* SPDX-License-Identifier: Apache-2.0 */
/* Caches: record, opening and closing. struct sw_cache in spanwise/fast_abi.h has the fields that
 * fast paths read; the fields that only slow paths read are here. */
#ifndef SW_HEAP_CACHE_H
#define SW_HEAP_CACHE_H

#include "heap/heap.h"

/* --- caches ----------------------------------------------------------------------------------- */

/* Who uses a cache. */
typedef enum sw_cache_holder {
    SW_CACHE_OF_THREAD = 0,
    SW_CACHE_OF_LIBRARY = 1, /* the library's own code opened it: any thread may use it */
    SW_CACHE_OF_USER = 2,    /* sw_cache_open: any thread may use it, users have its address */
} sw_cache_holder;

enum {
    SW_LARGE_WAYS = 2,                    /* shelves of one band */
    SW_LARGE_SHELVES = 9 * SW_LARGE_WAYS, /* bands of 1, 2, 3..4, ... 129..256 pages of 4 KiB */
};

/* The fields of a cache that only slow paths read. A record is not freed before its heap is
 * destroyed, because a thread that frees an object may still have a pointer to it; opening a cache
 * reuses the record of a closed one. */
struct sw_cache_cold {
    sw_cache *next;                      /* link of all caches of the heap */
    sw_cache *list_next, *list_previous; /* links of the open caches, or of the closed ones */
    uint32_t number;                     /* 1, 2, ... */
    uint32_t closed;                     /* atomic */
    uint32_t remote_head;  /* atomic: stack of halves with announced frees, span id * 2 + half */
    uint32_t tiny_used;    /* bytes used of the tiny block */
    uint32_t hazard_id;    /* atomic: id of sw_cache.hazard, for other threads; 0: none */
    uint16_t holder;       /* sw_cache_holder */
    uint8_t been_central;  /* 1: there was such a search since the cache was opened */
    uint8_t stripped;      /* 1: only the first page of its record has memory */
    uint32_t scarcity;     /* what words cost the cache; 0 while hints are on */
    uint32_t dropped;      /* useless hints since a word served; 0 while hints are off */
    uint32_t idle_credit;  /* for giving idle spans up (heap/owned.h) */
    uint32_t newest_large; /* in collected heaps: id of the newest large object; 0: none */
    uint32_t end_steps;    /* steps of its closing so far */
    uint64_t tick_ns;      /* the decay tick at which idle spans were last given up */
    uintptr_t tiny_block;  /* 0: none */
    struct sw_gc_buffer *collector_buffer; /* in collected heaps: gc/mark.h; it may be stale */
    struct sw_guard_thread *guard;         /* in guarded heaps: guard/state.h; NULL: none yet */
    sw_span_list *partial;                 /* by span class */
    sw_span_list *full;
    uint16_t *idle_spans; /* by span class: spans in `partial` that are idle */
    uint32_t large_frees; /* large objects that were put on shelves */
    uint64_t
        classes[SW_SPAN_CLASS_WORDS];   /* a bit for each span class of which it has had a span */
    uint64_t shelves[SW_LARGE_SHELVES]; /* atomic; see heap/alloc.h */
};

/* Records that the cache gets a span of the class. All its spans and hints are of recorded
 * classes. */
static inline void sw_cache_note_class(struct sw_cache_cold *cold, uint32_t span_class) {
    cold->classes[span_class / 64] |= 1ull << span_class % 64;
}

/* --- bins and hints --------------------------------------------------------------------------- */

/* As a span class: that of objects without pointers of the given size, which is a small one. */
enum { SW_CLASS_OF_SIZE = 0 };

/* The bin of a class's objects without pointers. */
static sw_always_inline sw_cache_bin *sw_cache_noscan_bin(sw_cache *cache, size_t cls) {
    sw_cache_bin(*of_class)[2] = (sw_cache_bin(*)[2])cache->bins;
    return &of_class[cls][1];
}

/* Leaves the bin without a current span. */
static inline void sw_bin_empty(sw_cache_bin *bin) {
    bin->word = &sw_sentinel_word;
    bin->base = SW_NO_BASE;
    bin->span = NULL;
}

/* The place for the hints of a noscan class. Scan classes have no hints: malloc does not use these
 * classes, and their hints would double the size of every cache record. */
static sw_always_inline sw_hint *sw_cache_hints(const sw_cache *cache, uint32_t span_class) {
    return &cache->hints[(size_t)(span_class / 2) << SW_HINTS_LOG2];
}
/* The end of the bin's hints: one past the newest. */
static sw_always_inline sw_hint *sw_bin_hints_end(const sw_cache_bin *bin) {
    return (sw_hint *)((uintptr_t)bin->hints + bin->hinted);
}

/* Maximum bytes of hints of a bin. 0 in collected heaps, and if the placement policy is not LIFO,
 * because then the policy chooses the next slot. The slots that have hints are at most
 * SW_HINTED_BYTES in all. */
enum { SW_HINTED_BYTES = 512 << 10 };
static inline uint32_t sw_heap_hints_max(const sw_heap *heap, uint32_t span_class) {
    bool hinted = span_class % 2 != 0 && heap->options.placement == SW_PLACE_LIFO &&
                  (heap->mode & SW_MODE_COLLECTED) == 0;
    uint32_t size = heap->table->classes[span_class / 2].size; /* 0 in class 0 */
    if (!hinted) return 0;
    return (uint32_t)sw_min_u64(SW_HINTED_BYTES / (size + 1), SW_HINTS_MAX) * sizeof(sw_hint);
}

/* Whether the class is a medium one: its spans have few slots, and creating a span costs more than
 * allocating its objects. Every free into a full span of such a class leaves a hint, if there is
 * room, and a full span that becomes idle stays in its list, at most SW_HINTED_BYTES per class,
 * because each slot has a hint. */
static sw_always_inline bool sw_bin_is_medium(const sw_cache_bin *bin) {
    return bin->bytes > SW_SMALL_LIMIT;
}

/* Bytes of a cache's record. It is a mapping of its own, of whole pages of the system. */
size_t sw_cache_record_bytes(const sw_heap *heap);
/* A bit map of the pages (of 2^grain_shift bytes) of a cache's record that were written to. The
 * bins are written when the record is created. The hints of a class are written in order, and a
 * written hint is never 0, so a hint that is 0 was never written. */
uint64_t sw_cache_written_pages(const sw_cache *cache, uint32_t grain_shift);
/* The pages that a hint is on, as bits of such a map. */
static inline uint64_t sw_cache_hint_pages(const sw_cache *cache, const sw_hint *hint,
                                           uint32_t grain_shift) {
    uintptr_t first = (uintptr_t)hint - (uintptr_t)cache, last = first + sizeof *hint - 1;
    return 1ull << (first >> grain_shift) | 1ull << (last >> grain_shift);
}

/* --- lives ------------------------------------------------------------------------------------ */

/* Open and close a cache. They do not take the registry's lock. */
sw_status sw_cache_make(sw_heap *heap, sw_cache_holder holder, sw_cache **out);
void sw_cache_shut(sw_cache *cache);
/* Leaves every bin without a current span and without hints, as a closed cache has them. */
void sw_cache_reset_bins(sw_cache *cache);
/* Under the heap's lock: moves an open cache that no longer owns anything to the closed ones. */
void sw_cache_set_closed(sw_cache *cache);
/* Called before the heap's metadata is released. The records stay mapped for a while, like those of
 * other stale handles, so that their use can be reported. */
void sw_cache_retire_records(sw_heap *heap);

/* --- stripped records -------------------------------------------------------------------------
 * The records of closed caches stay mapped, because a thread that frees an object may still have a
 * pointer to one. SW_CLOSED_WHOLE of them keep their memory for the next threads. A cache that
 * closes above this bound is stripped: its record loses the memory of all pages but the first, the
 * only one that other threads read. These pages do not count as held, and the bins on them are
 * zeros until the cache opens again. Caches of users are never stripped. */
enum { SW_CLOSED_WHOLE = 64 };

/* Under the heap's lock: whether the cache must be stripped before it closes. */
bool sw_cache_must_strip(const sw_cache *cache);
/* Returns these pages to the system. The cache no longer owns anything, so no lock is needed.
 * False: the system refused. */
bool sw_cache_strip(sw_cache *cache);

/* Whether the handle is an open cache; if not, the misuse is reported. A closed cache has empty
 * bins and shelves, no address is in its view, and no size is small. So every call with it takes a
 * slow path, and only slow paths need this check. */
static sw_always_inline bool sw_cache_check(const sw_cache *cache, const char *op) {
    return sw_handle_check(cache, offsetof(struct sw_cache, mark), SW_HANDLE_CACHE, op);
}
/* Updates the cache's copy of view.frames (page/space.h), so that frees into its own spans take the
 * fast path. The cache's thread calls it for an open cache. */
static sw_always_inline void sw_cache_renew_frames(sw_cache *cache) {
    cache->frames = sw_heap_view(cache->heap).frames;
}
/* Whether a cache that was opened is still open; nothing is reported. */
static sw_always_inline bool sw_cache_is_open(const sw_cache *cache) {
    uint64_t mark = __atomic_load_n(&cache->mark, __ATOMIC_RELAXED);
    return sw_likely(mark == SW_HANDLE_LIVE + SW_HANDLE_CACHE);
}
/* Whether a cache that must not be NULL (SW_NONNULL) is NULL. Builds of grade 1 do not check, which
 * saves two instructions per call (docs/decisions/0017-interface.md). The compiler relies on the
 * attribute and would delete the comparison; the empty assembly hides the origin of the pointer. */
static sw_always_inline bool sw_cache_is_null(const sw_cache *cache) {
    if (SW_CHECK < 2) return false;
    __asm__("" : "+r"(cache));
    return cache == NULL;
}

/* --- hints ------------------------------------------------------------------------------------ */

/* Hints refer to slots that were freed recently. See sw_hint in spanwise/fast_abi.h.
 *
 * A free into a full span leaves a hint. Frees into other spans leave one only while the cache's
 * hints are *on*. If most words have only one or two free slots, and most slots are freed in full
 * spans, the processor mispredicts a branch at nearly every allocation that searches words, and a
 * hint costs less. If words have many free slots, searching words is faster. So the cache tracks
 * the cost of words (cold->scarcity, which only slow paths write) and turns its hints on and off
 * accordingly. There is one switch for all classes: with a switch per class, branches would be
 * mispredicted for mixed sizes.
 *
 * If a class has no room for another hint, the hint is dropped; the slot's bit is set in any
 * case. */

enum {
    /* At this scarcity hints are turned on. The threshold is large because after a program has
     * allocated a set of objects, most are in full spans. If the set is small, few of its spans are
     * still full after some thousand replacements, and words serve it well. */
    SW_SCARCITY_MAX = 12288,
    SW_DROPPED_MAX = 256, /* so many dropped or forgotten hints in a row turn hints off */
};

/* Turns hints off and resets the cost. */
void sw_hint_reset(sw_cache *cache);
/* Records that a word with these free bits serves the next allocations, so hints were used up. */
static sw_always_inline void sw_hint_note_word(sw_cache *cache, uint64_t bits) {
    if (bits != ~0ull) cache->cold->dropped = 0;
}
/* Records, while hints are off, that a free into a full span has left a hint. */
void sw_hint_note_full(sw_cache *cache);
/* Records that a free into the span leaves no hint, because its class has no room for one, or,
 * while hints are off, because it is better to list the span as partial. */
void sw_hint_note_unhinted(sw_cache *cache, const sw_span *span);

/* True if the cache has a hint to the slot. */
bool sw_hint_names(const sw_cache *cache, const sw_span *span, uint32_t slot);

/* --- hazards ---------------------------------------------------------------------------------- */

/* Hazard pointers (Michael, "Hazard pointers: safe memory reclamation for lock-free objects",
 * 2004).
 *
 * A cache that frees into a span of another cache publishes the span as its hazard before it checks
 * whether the slot is in use. Until it clears the hazard, either the span is not released, or the
 * check finds the slot free. This protects against programs in which two threads free the same
 * object at once: the first free may make the span idle, and without a hazard the second would set
 * a bit of a span that has replaced it.
 *
 * Setting a hazard costs a fence. So a cache keeps its hazard until it frees into another span,
 * takes a central, kept or fresh span, trims or closes: successive frees into one span need one
 * fence. */

static inline void sw_hazard_set(sw_cache *cache, uint32_t id) {
    cache->hazard = sw_space_span(cache->heap->space, id);
    /* Release: a thread that sees the previous hazard cleared also sees what this cache did to that
     * span. */
    __atomic_store_n(&cache->cold->hazard_id, id, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void sw_hazard_clear(sw_cache *cache) {
    cache->hazard = NULL;
    __atomic_store_n(&cache->cold->hazard_id, 0, __ATOMIC_RELEASE);
}

/* Whether the span is the hazard of some open cache. If every slot of the span is free, that cache
 * is freeing a slot for the second time. If a cache has already cleared its hazard, its free has
 * set the bit. Called under the heap's lock, after the caller has removed the span from the page
 * map. The fence pairs with the one in sw_hazard_set. */
static inline bool sw_hazard_is_on(const sw_heap *heap, const sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        if (__atomic_load_n(&cache->cold->hazard_id, __ATOMIC_ACQUIRE) == id) return true;
    return false;
}

#endif
