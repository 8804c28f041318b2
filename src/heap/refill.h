/* SPDX-License-Identifier: Apache-2.0 */
/* The search for a free slot when the bin's word is empty: hints, the span's next word, its other
 * words, and then another span. */
#ifndef SW_HEAP_REFILL_H
#define SW_HEAP_REFILL_H

#include "heap/cache.h"
#include "heap/template.h"

/* Allocates an object in any free slot. The compiler inlines the whole search into this function.
 * NULL: there is no memory, or the cache is closed; errno and the thread's last error have the
 * reason. */
void *sw_refill_alloc(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class);

/* The span class of a request: the given one, or for SW_CLASS_OF_SIZE that of the size. */
static sw_always_inline uint32_t sw_refill_span_class(const sw_cache *cache, size_t size,
                                                      uint32_t span_class) {
    return span_class != SW_CLASS_OF_SIZE
               ? span_class
               : sw_span_class_of(cache->small_map[(size + 7) >> 3], true);
}

/* Points the bin at its span's next word: at the current one, if slots of it have been freed since
 * it was empty, else at the next one. False: that word has no free slot, has padding, or has remote
 * bits; then sw_refill_alloc searches the span's last word and all others. */
static sw_always_inline bool sw_refill_next_word(sw_cache *cache, sw_cache_bin *bin) {
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
    sw_hint_note_word(cache, bits);
    return true;
}

/* Handles the most common cases in a plain heap: the slot of the newest hint, or a slot of the
 * span's next word. All others continue in sw_refill_alloc. */
static sw_always_inline void *sw_refill_quick(sw_cache *cache, size_t size, unsigned flags,
                                              uint32_t span_class) {
    span_class = sw_refill_span_class(cache, size, span_class);
    sw_cache_bin *bin = &cache->bins[span_class];
    void *p;
    if (sw_unlikely(cache->mode != 0)) return sw_refill_alloc(cache, size, flags, span_class);
    if (bin->hinted != 0) {
        if (!sw_template_take_hinted(bin, &p))
            return sw_refill_alloc(cache, size, flags, span_class);
        return (flags & SW_ZERO) != 0 ? sw_template_clear(p, bin->bytes) : p;
    }
    if (sw_word_free(bin->word) != 0 || !sw_refill_next_word(cache, bin))
        return sw_refill_alloc(cache, size, flags, span_class);
    p = sw_template_pop(bin, sw_word_free(bin->word), bin->bytes);
    unsigned kind = span_class % 2 == 0 ? SW_TEMPLATE_SCAN : SW_TEMPLATE_NOSCAN;
    return sw_template_must_zero(bin->span, flags, kind) ? sw_template_clear(p, bin->bytes) : p;
}

#endif
