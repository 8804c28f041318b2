/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation: what the specialised paths do not serve, and the public entry points. Where a bin's
 * word is empty, sw_alloc_slow takes the span's next word; alloc_hinted looks for a slot that a
 * hint names; alloc_refilled asks refill.c for another span. */
#include "heap/alloc.h"

#include <errno.h>

#include "base/fail.h"
#include "heap/default.h"
#include "heap/hint.h"
#include "heap/large.h"
#include "heap/misuse.h"
#include "heap/refill.h"
#include "heap/slack.h"
#include "heap/template.h"
#include "heap/thread.h"

static void *no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

/* --- generic path ----------------------------------------------------------------------------- */

/* Remembers the requested size of the object that has just been taken from the bin's word. */
static void note_requested(sw_cache *cache, const sw_span *span, uintptr_t p, size_t size) {
    uint32_t index = sw_span_slot_of(span, p);
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    void *slack = sw_space_cold(cache->heap->space, span)->slack;
    sw_slack_set(slack, bytes, index, bytes - (uint32_t)size);
}

/* Zeroes as the flags say, in a heap that touches memory. */
static void zero(sw_cache *cache, const sw_span *span, void *p, unsigned flags) {
    unsigned kind = (flags & SW_SCAN) != 0 ? SW_TEMPLATE_SCAN : SW_TEMPLATE_NOSCAN;
    if (sw_template_must_zero(span, flags, kind) && (cache->mode & SW_MODE_DRY) == 0)
        memset(p, 0, sw_slot_bytes(cache->table, span));
}

static void *finish(sw_cache *cache, const sw_span *span, void *p, size_t size, unsigned flags) {
    if ((cache->mode & SW_MODE_TRACKED) != 0) note_requested(cache, span, (uintptr_t)p, size);
    if ((flags & (SW_ZERO | SW_SCAN)) != 0) zero(cache, span, p, flags);
    return p;
}

/* The thread's first allocation: the path was given the cache that has no heap. */
static void *alloc_first(size_t size, unsigned flags) {
    sw_cache *cache = sw_thread_default_cache();
    return cache == NULL ? no_memory() : sw_cache_alloc(cache, size, flags);
}

/* An object in the slot that a hint names; NULL: no hint does. */
static void *take_hinted(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class) {
    sw_span *span;
    uintptr_t p = sw_refill_from_hint(cache, span_class, &span);
    return p == 0 ? NULL : finish(cache, span, (void *)p, size, flags);
}

/* Points the bin at its span's next word: the current one, which was empty, if slots of it have
 * been freed meanwhile, else the one behind it. False: neither has a free slot, or one of them is
 * the last word, which has padding, or other threads have freed into it; then sw_refill_bin looks
 * closer. */
static sw_always_inline bool next_word(sw_cache *cache, sw_cache_bin *bin) {
    sw_span *span = bin->span;
    if (span == NULL) return false;
    sw_word *word = bin->word;
    uintptr_t base = bin->base;
    uint32_t k = span->cursor;
    if (sw_word_local(word) == 0) word++, k++, base += 64 * (uintptr_t)bin->bytes;
    if ((k + 1) * 64 > span->slots || sw_word_remote(word) != 0) return false;
    uint64_t bits = sw_word_free(word) | sw_word_local(word);
    if (bits == 0) return false;
    sw_word_set_local(word, 0);
    sw_word_set_free(word, bits);
    span->cursor = (uint8_t)k;
    bin->word = word;
    bin->base = base;
    if (bits != ~0ull) sw_hint_note_word(cache, bin, bits);
    return true;
}

/* An object in the lowest free slot of the bin's word, which has one. */
static void *alloc_from_word(sw_cache *cache, sw_cache_bin *bin, size_t size, unsigned flags) {
    void *p = sw_template_pop(bin, sw_word_free(bin->word), bin->bytes);
    return finish(cache, bin->span, p, size, flags);
}

/* An object in a word that sw_refill_bin finds. */
static sw_noinline void *alloc_refilled(sw_cache *cache, size_t size, unsigned flags,
                                        uint32_t span_class) {
    if (!sw_cache_is_open(cache)) return sw_report_ended_cache(cache);
    if (sw_likely(sw_refill_bin(cache, span_class)))
        return alloc_from_word(cache, &cache->bins[span_class], size, flags);
    /* The hook of the heap's limit may have freed objects, whose slots are hinted now. */
    void *p = take_hinted(cache, size, flags, span_class);
    return p != NULL ? p : no_memory();
}

/* There are hints, or the word is not empty: the inline path looked at only one of the two, or did
 * not trust the hint. */
static sw_noinline void *alloc_hinted(sw_cache *cache, size_t size, unsigned flags,
                                      uint32_t span_class) {
    sw_cache_bin *bin = &cache->bins[span_class];
    void *p = take_hinted(cache, size, flags, span_class);
    if (p != NULL) return p;
    if (sw_word_free(bin->word) == 0 && !next_word(cache, bin))
        return alloc_refilled(cache, size, flags, span_class);
    return alloc_from_word(cache, bin, size, flags);
}

/* In a run of allocations one in 64 gets here, and most often the next word of the span has free
 * slots. So that is done here, and everything else is a call away. */
void *sw_alloc_slow(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class) {
    if (sw_unlikely(cache->heap == NULL)) return alloc_first(size, flags);
    if (span_class == SW_CLASS_OF_SIZE)
        span_class = sw_span_class_of(cache->small_map[(size + 7) >> 3], true);
    sw_cache_bin *bin = &cache->bins[span_class];
    if (bin->hinted != 0 || sw_word_free(bin->word) != 0)
        return alloc_hinted(cache, size, flags, span_class);
    if (!next_word(cache, bin)) return alloc_refilled(cache, size, flags, span_class);
    if (sw_unlikely(cache->mode != 0)) return alloc_from_word(cache, bin, size, flags);
    void *p = sw_template_pop(bin, sw_word_free(bin->word), bin->bytes);
    unsigned kind = span_class % 2 == 0 ? SW_TEMPLATE_SCAN : SW_TEMPLATE_NOSCAN;
    return sw_template_must_zero(bin->span, flags, kind) ? sw_template_clear(p, bin->bytes) : p;
}

/* A small object of any heap, with any flags. */
static void *alloc_small(sw_cache *cache, size_t size, unsigned flags, uint32_t cls) {
    uint32_t span_class = sw_span_class_of(cls, (flags & SW_SCAN) == 0);
    sw_cache_bin *bin = &cache->bins[span_class];
    if (bin->hinted != 0 || sw_word_free(bin->word) == 0)
        return sw_alloc_slow(cache, size, flags, span_class);
    return alloc_from_word(cache, bin, size, flags);
}

static bool is_tiny(const sw_cache *cache, size_t size, unsigned flags) {
    return (cache->mode & SW_MODE_TINY) != 0 && (flags & SW_SCAN) == 0 && size > 0 && size < 16;
}

static void *alloc_tiny(sw_cache *cache, size_t size, unsigned flags) {
    sw_path_fn *const *by_size = cache->heap->tiny_paths;
    return by_size != NULL ? by_size[size](cache, size, flags)
                           : sw_template_tiny(cache, size, flags);
}

/* A small object of a plain heap, without pointers, of a known class. */
static sw_always_inline void *alloc_plain(sw_cache *cache, size_t size, unsigned flags,
                                          uint32_t cls) {
    return sw_template_plain(cache, sw_cache_noscan_bin(cache, cls), size, flags,
                             sw_span_class_of(cls, true), sw_alloc_slow);
}

/* The same by its size. Where the straight line ends the class is looked up again, so that no
 * register has to keep it. */
static sw_always_inline void *alloc_plain_size(sw_cache *cache, size_t size, unsigned flags) {
    uint32_t cls = cache->small_map[(size + 7) >> 3];
    return sw_template_plain(cache, sw_cache_noscan_bin(cache, cls), size, flags, SW_CLASS_OF_SIZE,
                             sw_alloc_slow);
}

/* Every request that the straight line for small objects of plain heaps does not serve: the table
 * gives the class. */
static sw_noinline void *alloc_by_table(sw_cache *cache, size_t size, unsigned flags) {
    const sw_table *table = cache->table;
    if (sw_unlikely(size > table->max_size)) return sw_large_alloc(cache, size, 1, flags);
    uint32_t cls = sw_size_class(table, size);
    if (cache->mode == 0 && flags == 0) return alloc_plain(cache, size, 0, cls);
    if (sw_unlikely(is_tiny(cache, size, flags))) return alloc_tiny(cache, size, flags);
    return alloc_small(cache, size, flags, cls);
}

/* A small object of a plain heap that is cleared, or has pointers. A function of its own, because
 * in line it would cost plain objects registers. */
static sw_noinline void *alloc_flagged(sw_cache *cache, size_t size, unsigned flags) {
    return (flags & SW_SCAN) != 0 ? alloc_by_table(cache, size, flags)
                                  : alloc_plain_size(cache, size, SW_ZERO);
}

/* --- tiny objects ----------------------------------------------------------------------------- */

void *sw_alloc_tiny(sw_cache *cache, size_t size, unsigned flags) {
    struct sw_cache_cold *cold = cache->cold;
    (void)flags; /* a tiny block is always cleared */
    void *block = alloc_small(cache, 16, SW_ZERO, sw_size_class(cache->table, 16));
    if (block == NULL) return NULL;
    /* Keep whichever block has more room. */
    if (cold->tiny_block == 0 || size < cold->tiny_used) {
        cold->tiny_block = (uintptr_t)block;
        cold->tiny_used = (uint32_t)size;
    }
    return block;
}

/* --- aligned objects -------------------------------------------------------------------------- */

/* The first class from the size's own whose every slot is aligned; 0 when only pages will do. */
static uint32_t aligned_class(const sw_table *table, size_t size, size_t align) {
    if (size > table->max_size || align > ((size_t)1 << table->page_shift)) return 0;
    for (uint32_t cls = sw_size_class(table, size); cls < table->class_count; cls++)
        if ((table->classes[cls].size & (align - 1)) == 0) return cls;
    return 0;
}

static void *alloc_aligned(sw_cache *cache, size_t size, size_t align, unsigned flags) {
    if (sw_unlikely(cache == NULL)) return sw_report_ended_cache(cache);
    if (!sw_is_pow2(align)) {
        sw_fail(SW_INVALID, "alloc_aligned", "alignment %zu is not a power of two", align);
        errno = EINVAL;
        return NULL;
    }
    if (align == 1) return sw_cache_alloc(cache, size, flags);
    uint32_t cls = aligned_class(cache->table, size, align);
    if (cls == 0) return sw_large_alloc(cache, size, align, flags);
    return alloc_small(cache, size, flags, cls);
}

/* --- public: explicit heaps and caches -------------------------------------------------------- */

void *sw_cache_alloc(sw_cache *cache, size_t size, unsigned flags) {
    if (sw_unlikely(sw_cache_is_null(cache))) return sw_report_ended_cache(NULL);
    const sw_paths *paths = cache->paths;
    if (paths != NULL && size <= paths->cutoff) {
        sw_path_fn *const *by_size = (flags & SW_SCAN) != 0 ? paths->scan : paths->noscan;
        return by_size[size](cache, size, flags);
    }
    if (sw_unlikely(size >= cache->plain_end)) return alloc_by_table(cache, size, flags);
    if (flags != 0) return alloc_flagged(cache, size, flags);
    return alloc_plain_size(cache, size, 0);
}

void *sw_cache_alloc_aligned(sw_cache *cache, size_t size, size_t align, unsigned flags) {
    return alloc_aligned(cache, size, align, flags);
}

void *sw_heap_alloc(sw_heap *heap, size_t size, unsigned flags) {
    sw_cache *cache = sw_thread_cache(heap);
    return cache == NULL ? sw_thread_no_cache() : sw_cache_alloc(cache, size, flags);
}

void *sw_heap_alloc_aligned(sw_heap *heap, size_t size, size_t align, unsigned flags) {
    sw_cache *cache = sw_thread_cache(heap);
    return cache == NULL ? sw_thread_no_cache() : alloc_aligned(cache, size, align, flags);
}

/* --- public: the default heap (plain) --------------------------------------------------------- */

/* Sizes above those that the inline paths know, and cleared objects. */
static sw_noinline void *alloc_default(size_t size, unsigned flags) {
    sw_cache *cache = sw_thread_default_cache();
    return cache == NULL ? no_memory() : sw_cache_alloc(cache, size, flags);
}

void *sw_malloc(size_t size) {
    bool straight = SW_SPECIALISED && sw_likely(size <= SW_FAST_SIZE_MAX);
    return straight ? sw_default_alloc(size, 0, sw_alloc_slow) : alloc_default(size, 0);
}

void *sw_calloc(size_t count, size_t size) {
    size_t bytes;
    if (sw_mul_overflow(count, size, &bytes)) return no_memory();
    if (SW_SPECIALISED && bytes <= SW_DEFAULT_CUTOFF && sw_tls.cache->heap != NULL)
        return SW_DEFAULT_NOSCAN[bytes](sw_tls.cache, bytes, SW_ZERO);
    return alloc_default(bytes, SW_ZERO);
}

void *sw_aligned_alloc(size_t align, size_t size) {
    sw_cache *cache = sw_thread_default_cache();
    return cache == NULL ? no_memory() : alloc_aligned(cache, size, align, 0);
}
