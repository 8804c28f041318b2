/* SPDX-License-Identifier: Apache-2.0 */
/* Verify reports items in the wrong place: each damage leaves every count correct, so that only the
 * rule about the place can find it, anywhere in a span. */
#include <stdbool.h>

#include "check.h"
#include "heap/cache.h"
#include "heap/hint.h"
#include "heap/shelf.h"
#include "heap/target.h"
#include "heap/thread.h"
#include "heaps.h"
#include "inspect/ledger.h"
#include "spanwise/spanwise.h"

enum { SLOT = 512, SLOTS = 16, PAGE = 8192 };

static sw_heap *heap;
static sw_cache *cache;
static sw_table *table;

static void make_kept(uint32_t slot_bytes, sw_placement placement, uint32_t batch_spans) {
    const sw_class_spec specs[] = {{slot_bytes, 1, 0}};
    table = table_of("one", PAGE, specs, 1);
    heap = heap_with((heap_setting){
        .table = table, .manual_clock = 1, .placement = placement, .batch_spans = batch_spans});
    cache = sw_thread_cache(heap);
    CHECK(cache != NULL);
}

static void make_of(uint32_t slot_bytes, uint32_t batch_spans) {
    make_kept(slot_bytes, SW_PLACE_LIFO, batch_spans);
}

static void make(uint32_t batch_spans) { make_of(SLOT, batch_spans); }

static void end(void) {
    heap_end(heap);
    sw_table_destroy(table);
}

/* Verify fails with these words. */
static void check_told(const char *words) {
    CHECK_EQ(sw_heap_verify(heap), SW_STATE);
    if (strstr(sw_last_error()->message, words) == NULL) CHECK_STR(sw_last_error()->message, words);
}

/* --- a central span without a free slot is listed as one that has some ------------------------ */

static void central_partial_is_full(void) {
    sw_cache *closed;
    make(0);
    closed = cache_of(heap);
    void *p[SLOTS];
    for (int i = 0; i < SLOTS; i++) p[i] = sw_cache_alloc(closed, SLOT, 0);
    sw_cache_free(closed, p[0]);
    sw_cache_close(closed);
    uint32_t id = heap->central_partial[3].head;
    CHECK(id != 0);
    sw_span *span = sw_space_span(heap->space, id);
    uint64_t free_bits = sw_word_free(&span->own), local = sw_word_local(&span->own);
    sw_word_set_free(&span->own, 0);
    sw_word_set_local(&span->own, sw_span_padding(span, 0));
    check_told("state 4 and its free slots disagree");
    sw_word_set_free(&span->own, free_bits);
    sw_word_set_local(&span->own, local);
    end();
}

/* --- a shelf of another band holds a large object --------------------------------------------- */

static void shelf_of_another_band(void) {
    make(0);
    void *first = sw_cache_alloc(cache, 2 * PAGE, 0); /* in vain: a shelf is reserved */
    sw_cache_free(cache, first);
    uint64_t *own = &cache->cold->shelves[sw_shelf_index(2)];
    uint64_t *wrong = &cache->cold->shelves[sw_shelf_index(8)];
    CHECK((uint32_t)*own != 0);
    CHECK_EQ(*wrong, 0);
    *wrong = *own;
    *own = 0;
    check_told("holds no large object of its own");
    *own = *wrong;
    *wrong = 0;
    end();
}

/* --- hints ------------------------------------------------------------------------------------ */

/* Two full spans, the second with a hint: what each field of the hint may not say. */
static void hint_of_nobody(void) {
    make(0);
    void *p[3 * SLOTS];
    for (int i = 0; i < 3 * SLOTS; i++) p[i] = sw_cache_alloc(cache, SLOT, 0);
    sw_cache_free(cache, p[SLOTS + 2]);
    sw_cache_bin *bin = &cache->bins[3];
    CHECK_EQ(bin->hinted, sizeof(sw_hint));
    sw_hint *hint = bin->hints, saved = *hint;
    sw_span *span = sw_space_span(heap->space, *sw_space_entry(heap->space, hint->at));
    sw_word *bits = &span->own;
    uint64_t local = sw_word_local(bits);
    sw_word_set_local(bits, sw_span_padding(span, 0)); /* out of date, which is allowed */
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    const char *words = "leads to no slot of its spans";
    hint->word--;
    check_told(words);
    *hint = saved;
    hint->slot += SLOTS;
    check_told(words);
    *hint = saved;
    hint->at += SLOT;
    check_told(words);
    *hint = saved;
    hint->at =
        heap->pages.windows[0].base + (uintptr_t)(heap->pages.windows[0].frontier - 1) * PAGE;
    check_told(words); /* a free page */
    *hint = saved;
    sw_word_set_local(bits, local);
    end();
}

static sw_span *span_of(const void *p) {
    return sw_space_span(heap->space, *sw_space_entry(heap->space, (uintptr_t)p));
}

/* Of two full spans whose words are adjacent one is given up: the hint of the other one, which
 * leads to the word that is nearest, stays, or its free slot would be lost to allocation. */
static void hint_of_a_neighbour(bool first_goes) {
    enum { SMALL = 64, SMALL_SLOTS = PAGE / SMALL, SPANS = 8 };
    void *p[SPANS][SMALL_SLOTS];
    make_of(SMALL, 0);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < SMALL_SLOTS; i++) p[s][i] = sw_cache_alloc(cache, SMALL, 0);
    CHECK(sw_cache_alloc(cache, SMALL, 0) != NULL); /* all of them are full */
    int before = 0, behind = 0;
    for (int s = 0; s < SPANS; s++)
        for (int t = 0; t < SPANS; t++)
            if (span_of(p[s][0])->words + 2 == span_of(p[t][0])->words) before = s, behind = t;
    CHECK(before != behind); /* metadata blocks of 64 bytes are adjacent */
    int gone = first_goes ? before : behind, stays = first_goes ? behind : before;
    uint32_t slot = first_goes ? 5 : SMALL_SLOTS - 5; /* in the first word; in the last */
    sw_cache_free(cache, p[stays][slot]);
    for (int i = 0; i < SMALL_SLOTS; i++) sw_cache_free(cache, p[gone][i]);
    CHECK_EQ(cache->bins[3].hinted, sizeof(sw_hint));
    CHECK(sw_hint_names(cache, span_of(p[stays][slot]), slot));
    end();
}

/* --- spans that a cache keeps ----------------------------------------------------------------- */

/* Of four spans that become wholly free the cache keeps as many as it may, by hand: 2. */
static void idle_spans(void) {
    make(2);
    void *p[5 * SLOTS];
    for (int i = 0; i < 5 * SLOTS; i++) p[i] = sw_cache_alloc(cache, SLOT, 0);
    for (int i = 0; i < 4 * SLOTS; i++) sw_cache_free(cache, p[i]);
    CHECK_EQ(cache->cold->idle_spans[3], 2);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.cached_bytes, 2 * PAGE);
    heap->options.batch_spans = 1;
    check_told("keeps 2 wholly free spans, above 1");
    heap->options.batch_spans = 2;
    end();
}

/* --- the identity ----------------------------------------------------------------------------- */

/* Each part counts, and the sum may be neither above nor below what is held. */
static void identity(void) {
    make(0);
    CHECK(sw_cache_alloc(cache, SLOT, 0) != NULL);
    sw_ledger ledger = ledger_of(heap);
    CHECK(sw_ledger_check(&ledger) == NULL);
    uint64_t *parts[] = {&ledger.requested_bytes,   &ledger.roundup_bytes,
                         &ledger.tail_bytes,        &ledger.free_slot_bytes,
                         &ledger.cached_bytes,      &ledger.metadata_bytes,
                         &ledger.free_page_bytes,   &ledger.large_rounding_bytes,
                         &ledger.arena_slack_bytes, &ledger.quarantine_bytes};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        ++*parts[i];
        CHECK(sw_ledger_check(&ledger) != NULL); /* held is below the sum */
        --*parts[i];
    }
    ledger.held_bytes++;
    CHECK(sw_ledger_check(&ledger) != NULL); /* held is above it */
    ledger.held_bytes--;
    CHECK(sw_ledger_check(&ledger) == NULL);
    end();
}

/* --- far words of long spans ------------------------------------------------------------------ */

enum { MANY_SLOTS = 8192 }; /* 128 words: two halves */

/* Names damage wherever in a span it is: a free that was not announced in the upper half of its
 * words, and an old page under a span that passes for fresh. */
static void far_words(void) {
    static const sw_class_spec specs[] = {{8, 8, 0}};
    table = table_of("halves", PAGE, specs, 1);
    heap = heap_with((heap_setting){.table = table, .dry = 1, .manual_clock = 1});
    void *p = NULL;
    for (int i = 0; i < MANY_SLOTS - 1; i++) p = sw_heap_alloc(heap, 8, 0);
    sw_span *span = sw_target_find(heap, p).span;
    CHECK_EQ(span->slots, MANY_SLOTS);
    for (uint32_t slot = 70; slot < MANY_SLOTS; slot += 5000) {
        uint64_t bit = 1ull << slot % 64;
        (void)__atomic_fetch_or(&span->words[slot / 64].remote, bit, __ATOMIC_ACQ_REL);
        check_told("frees by other threads are not announced");
        (void)__atomic_fetch_and(&span->words[slot / 64].remote, ~bit, __ATOMIC_ACQ_REL);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
    uint32_t last = sw_space_cold(heap->space, span)->page + 7;
    sw_bits_set(heap->pages.dirty, last, 1);
    check_told("a used page passes for fresh");
    sw_bits_clear(heap->pages.dirty, last, 1);
    end();
}

int main(void) {
    central_partial_is_full();
    shelf_of_another_band();
    hint_of_nobody();
    hint_of_a_neighbour(true);
    hint_of_a_neighbour(false);
    idle_spans();
    identity();
    far_words();
    return check_result();
}
