/* SPDX-License-Identifier: Apache-2.0 */
/* Points at which a build of grade 3 verifies whole heaps, and the rules of the structs. */
#ifndef SW_HEAP_CHECKS_H
#define SW_HEAP_CHECKS_H

#include "base/base.h"
#include "heap/cache.h"
#include "heap/heap.h"

/* --- points of verification ------------------------------------------------------------------- */

/* The points at which a build of grade 3 verifies the whole heap. Builds of lower grades execute no
 * instructions for them.
 *
 * Verification is code of inspect/, a layer above the heap, so inspect installs a function here.
 * Slow paths record events (sw_verify_note). At the next point at which the heap is consistent
 * (sw_verify_point), the function is called under the heap's lock, if the heap is quiet
 * (sw_verify_is_quiet). While a slow path has removed parts of the heap's structures, such as a
 * chain from a remote stack, it disables verification (sw_verify_hold). */

typedef enum sw_verify_event {
    SW_VERIFY_REFILL,  /* a bin has got a word, or was refused one */
    SW_VERIFY_RELEASE, /* a span went back to the page heap */
    SW_VERIFY_DRAIN,   /* frees of other threads were drained */
    SW_VERIFY_TICK,    /* a decay tick */
    SW_VERIFY_FORK,    /* in a forked child, after the heap was recovered */
    SW_VERIFY_EVENT_COUNT
} sw_verify_event;

/* Called under the heap's lock, while nothing changes. `noted` has a bit for each event that was
 * noted. */
typedef void sw_verify_fn(sw_heap *heap, uint32_t noted);
void sw_verify_install(sw_verify_fn *fn);

/* Under the heap's lock: whether no thread but the caller's is inside the heap. Either the process
 * has one thread, or the only open cache is the one that the caller works with (NULL: no cache) and
 * no thread still works on a cache that it has closed. It is not quiet while pages are being
 * returned to the system: verification would wait for the thread that returns them, which may be
 * the caller. */
bool sw_verify_is_quiet(const sw_heap *heap, const sw_cache *cache);

void sw_verify_note_event(sw_heap *heap, sw_verify_event event);
void sw_verify_hold_back(int change);
void sw_verify_answer(sw_heap *heap, const sw_cache *cache);
void sw_verify_leave(sw_heap *heap);
void sw_verify_forked(sw_heap *heap);

/* Records an event of the heap. */
static inline void sw_verify_note(sw_heap *heap, sw_verify_event event) {
    if (SW_CHECK >= 3) sw_verify_note_event(heap, event);
}
/* From sw_verify_hold to sw_verify_unhold the caller has parts of the heap outside its
 * structures, and nothing is verified. Pairs nest. */
static inline void sw_verify_hold(void) {
    if (SW_CHECK >= 3) sw_verify_hold_back(1);
}
static inline void sw_verify_unhold(void) {
    if (SW_CHECK >= 3) sw_verify_hold_back(-1);
}
/* A point at which the heap is consistent as far as the caller and its cache are concerned. The
 * heap's lock is not held. */
static inline void sw_verify_point(sw_heap *heap, const sw_cache *cache) {
    if (SW_CHECK >= 3) sw_verify_answer(heap, cache);
}
/* Under the heap's lock: the caller has closed its cache but still works on it, until
 * sw_verify_leave_end. */
static inline void sw_verify_leave_begin(sw_heap *heap) {
    if (SW_CHECK >= 3) heap->leaving++;
}
static inline void sw_verify_leave_end(sw_heap *heap) {
    if (SW_CHECK >= 3) sw_verify_leave(heap);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* span_classes == 2 * table->class_count;  pages.page_shift == table->page_shift
 * cache_count <= cache_numbers;  (cache_count == 0) == (open_caches == NULL)
 * closed_handle_count <= cache_numbers;  (closed_handle_count == 0) == (closed_handles == NULL)
 * kept_pages * page <= SW_KEPT_BYTES;  kept_credit <= SW_KEPT_CREDIT */
const char *sw_heap_record_check(const sw_heap *heap);
/* Of an open cache:  table == heap->table;  mode == heap->mode
 * hints follow the last bin;  (hazard == NULL) == (cold->hazard_id == 0)
 * hints are off: unhinted_owner == cache, cold->dropped == 0
 * hints are on:  unhinted_owner == SW_NO_CACHE, cold->scarcity == 0 */
const char *sw_cache_record_check(const sw_cache *cache);
/* closed <= 1;  been_central <= 1;  holder <= SW_CACHE_OF_USER;  tiny_used <= 16
 * scarcity < SW_SCARCITY_MAX;  dropped < SW_DROPPED_MAX
 * idle_credit <= SW_IDLE_CREDIT_MAX;  tiny_used == 0 where tiny_block == 0
 * partial, full and idle_spans follow each other in the record */
const char *sw_cache_cold_check(const struct sw_cache_cold *cold, uint32_t span_classes);
/* span == NULL, word == &sw_sentinel_word and base == SW_NO_BASE hold together or not at all
 * span == NULL or its state is CURRENT;  hinted <= hinted_max;  hinted is a multiple of a hint */
const char *sw_cache_bin_check(const sw_cache_bin *bin);

/* The invariants that a slow path of the cache checks before it starts. */
static inline const char *sw_bin_of_cache_check(const sw_cache *cache, uint32_t span_class) {
    return sw_cache_record_check(cache)
               ?: sw_cache_cold_check(cache->cold, cache->heap->span_classes)
               ?: sw_cache_bin_check(&cache->bins[span_class]);
}

#endif
