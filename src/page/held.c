/* SPDX-License-Identifier: Apache-2.0 */
/* The search for pages that are free and held (pages.h): a request served by such pages does not
 * grow the heap. Each word of 64 pages has a summary of three lengths. A search recomputes it only
 * for words that have changed since the last search, so it takes a bounded number of steps under
 * the heap's lock, however fragmented the free pages are. */
#include "base/bits.h"
#include "page/pages.h"

static uint64_t held_bits(const sw_pages *pages, uint32_t w) {
    return pages->runs.free[w] & pages->held[w];
}

static sw_held_word held_word_of(uint64_t bits) {
    sw_run_summary runs = sw_run_summary_of(bits);
    return (sw_held_word){(uint8_t)runs.start, (uint8_t)runs.max, (uint8_t)runs.end, 1};
}

uint32_t sw_pages_held_from(sw_pages *pages, uint32_t page, uint32_t n) {
    enum { LOOK_WORDS = SW_HELD_LOOK / 64 };
    uint32_t first = page / 64, before = 0; /* pages of the run that ends where the word begins */
    uint32_t end = (uint32_t)sw_min_u64(first + LOOK_WORDS, pages->capacity / 64);
    for (uint32_t w = first; w < end; w++) {
        sw_held_word *word = &pages->held_words[w];
        if (!word->known) *word = held_word_of(held_bits(pages, w));
        if (before + word->start >= n) return w * 64 - before;
        if (word->max >= n) return w * 64 + sw_run_fit_in(held_bits(pages, w), n);
        before = word->start == 64 ? before + 64 : word->end;
    }
    return SW_PAGE_NONE;
}

bool sw_pages_held_words_add_up(const sw_pages *pages) {
    for (uint32_t w = 0; w < pages->capacity / 64; w++) {
        sw_held_word is = pages->held_words[w], must = held_word_of(held_bits(pages, w));
        if (is.known && (is.start != must.start || is.max != must.max || is.end != must.end))
            return false;
    }
    return true;
}
