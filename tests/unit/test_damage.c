/* SPDX-License-Identifier: Apache-2.0 */
/* Verify must find every damaged number and bit of metadata, one at a time. */
#include "filled_heap.h"
#include "heap/cache.h"
#include "heaps.h"

static unsigned flips, tried, found; /* flips: those of all parts (check_mine) */
static const char *missed[400];
static unsigned missed_count;

/* Flips a few bits of one number; each flip must be found and the undamaged heap must be whole. */
static void damage(sw_heap *heap, const char *name, void *field, size_t bytes, const int *bits,
                   int bit_count) {
    unsigned char saved[16], *p = field;
    if (bytes > sizeof saved) abort();
    memcpy(saved, p, bytes);
    unsigned before = tried;
    for (int i = 0; i < bit_count; i++) {
        if (!check_mine(flips++)) continue;
        p[bits[i] / 8] ^= (unsigned char)(1 << bits[i] % 8);
        tried++;
        if (sw_heap_verify(heap) == SW_STATE) {
            found++;
        } else if (missed_count < 400) {
            missed[missed_count++] = name;
        }
        memcpy(p, saved, bytes);
    }
    if (tried == before) return;
    sw_clear_error();
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    if (sw_last_error()->status != SW_OK)
        fprintf(stderr, "%s: %s\n", name, sw_last_error()->message);
}

static const int low_bits[] = {0, 1, 3, 5}; /* small numbers stay within tables and arrays */
static const int wide_bits[] = {0, 4, 12, 20, 31};

#define DAMAGE(object, field)                                                                      \
    damage(heap, #field, &(object)->field, sizeof(object)->field, low_bits, 4)
#define DAMAGE_WIDE(object, field)                                                                 \
    damage(heap, #field, &(object)->field, sizeof(object)->field, wide_bits, 5)
#define DAMAGE_BITS(object, field, ...)                                                            \
    damage(heap, #field, &(object)->field, sizeof(object)->field, (const int[]){__VA_ARGS__},      \
           sizeof (int[]){__VA_ARGS__} / sizeof(int))

static void damage_span(sw_heap *heap, sw_span *span) {
    DAMAGE(span, base);
    DAMAGE_WIDE(span, magic);
    DAMAGE(span, slots);
    /* A block of metadata is a multiple of 64 bytes: the words of a twin span look the same. */
    damage(heap, "words", &span->words, sizeof span->words, (const int[]){0, 1, 3, 4}, 4);
    if (!sw_span_is_large(span)) DAMAGE_BITS(span, span_class, 0);
    DAMAGE_BITS(span, span_class, 1, 5);
    DAMAGE_BITS(span, state, 0, 1);
    DAMAGE_BITS(span, state, 2, 6);
    DAMAGE_BITS(span, owner, 0); /* the mark */
    DAMAGE_BITS(span, needzero, 4);
    DAMAGE_BITS(span, cursor, 7);
    DAMAGE_BITS(span, idle, 0, 3);
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    DAMAGE(cold, heap);
    DAMAGE(cold, page);
    DAMAGE(cold, pages);
    DAMAGE(cold, next);
    DAMAGE(cold, prev);
    if (sw_span_is_large(span)) {
        DAMAGE_BITS(cold, requested, 40);
        return;
    }
    DAMAGE_BITS(cold, remote_words[0], 0);
    DAMAGE_BITS(cold, remote_words[1], 63);
    uint32_t last = sw_words_of(sw_slot_bytes(heap->table, span), span->slots) - 1;
    /* Padding. Whether a slot is live is one bit, with nothing to compare it to: see live_bits. */
    if (sw_span_padding(span, last) >> 63 != 0) {
        uint32_t k = last;
        DAMAGE_BITS(&span->words[k], free, 63);
        DAMAGE_BITS(&span->words[k], local, 63);
        DAMAGE_BITS(&span->words[k], remote, 63);
    }
}

/* A slot that is free twice, or a free slot of a full span, is found; a lone bit is not: it is the
 * only record of its slot. */
static void live_bits(sw_heap *heap, sw_span *span) {
    if (sw_span_is_large(span)) return;
    for (uint32_t slot = 0; slot < span->slots; slot += 1 + span->slots / 8) {
        sw_word *word = &span->words[slot / 64];
        const int bit[] = {slot % 64};
        const sw_cache *owner = sw_span_owner(span);
        bool hinted = owner != NULL && sw_hint_names(owner, span, slot); /* maybe out of date */
        bool full = span->state == SW_SPAN_FULL || span->state == SW_SPAN_CENTRAL_FULL;
        bool is_free = sw_word_free(word) >> bit[0] & 1,
             is_local = sw_word_local(word) >> bit[0] & 1;
        bool pending = sw_word_remote(word) >> bit[0] & 1;
        if (full || is_local || pending) damage(heap, "free of a slot", &word->free, 8, bit, 1);
        if ((full && !hinted) || is_free || pending)
            damage(heap, "local of a slot", &word->local, 8, bit, 1);
        if (is_free || is_local) damage(heap, "remote of a slot", &word->remote, 8, bit, 1);
    }
}

static void damage_map(sw_heap *heap, sw_span *span) {
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t page = cold->page;
    const sw_window *window = sw_pages_window_of(&heap->pages, page);
    uint32_t shift = heap->pages.page_shift - SW_FRAME_SHIFT;
    uint64_t first = (uint64_t)(page - window->first_page) << shift;
    uint64_t count = (uint64_t)cold->pages << shift;
    damage(heap, "map", &window->map[first], 4, low_bits, 4);
    damage(heap, "map", &window->map[first + count - 1], 4, low_bits, 4);
    damage(heap, "map", &window->map[first + count / 2], 4, low_bits, 4);
    damage(heap, "free", &heap->pages.runs.free[page / 64], 8, (const int[]){page % 64}, 1);
    damage(heap, "held", &heap->pages.held[page / 64], 8, (const int[]){page % 64}, 1);
}

static void damage_pages(sw_heap *heap) {
    sw_pages *pages = &heap->pages;
    for (uint32_t page = 0; page < pages->windows[0].frontier; page += 11) {
        bool free = pages->runs.free[page / 64] >> (page % 64) & 1;
        bool held = pages->held[page / 64] >> (page % 64) & 1;
        const int bit[] = {page % 64};
        damage(heap, "held", &pages->held[page / 64], 8, bit, 1);
        damage(heap, "free", &pages->runs.free[page / 64], 8, bit, 1);
        if (free && !held) damage(heap, "dirty", &pages->dirty[page / 64], 8, bit, 1);
        if (!free) damage(heap, "idle", &pages->idle[page / 64], 8, bit, 1);
        if (!free) continue;
        uint32_t *entry = &pages->windows[0].map[2 * page];
        damage(heap, "map of a free page", entry, 4, (const int[]){4}, 1);
        damage(heap, "map of a free page", entry + 1, 4, (const int[]){4}, 1);
    }
    for (uint32_t i = 1; i < 2 * pages->runs.leaves; i += 7) {
        DAMAGE_BITS(&pages->runs.tree[i], start, 1);
        DAMAGE_BITS(&pages->runs.tree[i], max, 2);
        DAMAGE_BITS(&pages->runs.tree[i], end, 0);
    }
    CHECK_EQ(sw_pages_held_from(pages, 0, 1 << 20), SW_PAGE_NONE); /* now every word is known */
    for (uint32_t w = 0; w < 4; w++) {
        CHECK_EQ(pages->held_words[w].known, 1);
        DAMAGE_BITS(&pages->held_words[w], start, 1);
        DAMAGE_BITS(&pages->held_words[w], max, 2);
        DAMAGE_BITS(&pages->held_words[w], end, 0);
    }
    DAMAGE(pages, held_pages);
    DAMAGE(pages, free_held_pages);
    DAMAGE(pages, frontier_pages);
    DAMAGE_BITS(pages, fixed_bytes, 7);
    DAMAGE_BITS(pages, page_end, 6);
    sw_window *window = &pages->windows[0];
    DAMAGE_BITS(window, base, 12);
    DAMAGE_BITS(window, first_page, 0);
    DAMAGE_BITS(window, pages, 1);
    DAMAGE_BITS(window, frontier, 0);
    DAMAGE_BITS(&heap->meta, held_bytes, 6);
}

static void damage_list(sw_heap *heap, sw_span_list *list) {
    DAMAGE(list, count);
    DAMAGE(list, head);
}

/* Places of large objects that hold one. Returns how many. */
static uint32_t damage_places(sw_heap *heap, sw_cache *cache) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < SW_LARGE_SHELVES; i++) {
        if ((uint32_t)cache->cold->shelves[i] == 0) continue;
        kept++;
        DAMAGE_BITS(cache->cold, shelves[i], 0, 32, 35);
    }
    return kept;
}

static void damage_cache(sw_heap *heap, sw_cache *cache) {
    DAMAGE_BITS(cache, unhinted_owner, 5);
    for (uint32_t i = 2; i < heap->span_classes; i += 5) {
        sw_cache_bin *bin = &cache->bins[i];
        DAMAGE_BITS(bin, word, 4);
        DAMAGE_BITS(bin, base, 3);
        DAMAGE_BITS(bin, bytes, 4);
        DAMAGE_BITS(bin, hinted, 2, 10);
        DAMAGE_BITS(bin, hints, 5);
        DAMAGE_BITS(bin, hinted_max, 6);
        if (bin->span != NULL) DAMAGE_BITS(bin, span, 6);
        damage_list(heap, &cache->cold->partial[i]);
        damage_list(heap, &cache->cold->full[i]);
        DAMAGE_BITS(cache->cold, idle_spans[i], 0);
    }
    DAMAGE_BITS(cache, base, 20);
    DAMAGE_BITS(cache, frames, 20);
    DAMAGE_BITS(cache, page_map, 20);
    DAMAGE_BITS(cache, spans, 20);
    DAMAGE_BITS(cache, heap, 12);
    DAMAGE_BITS(cache, table, 4);
    DAMAGE_BITS(cache, mode, 1);
    DAMAGE_BITS(cache->cold, closed, 0);
    DAMAGE_BITS(cache->cold, stripped, 0);
}

static void damage_heap(sw_heap *heap) {
    DAMAGE_BITS(heap, cache_count, 0);
    DAMAGE(heap, closed_count);
    DAMAGE(heap, free_records);
    DAMAGE(heap, kept_pages);
    for (uint32_t i = 0; i < heap->span_classes; i++) {
        if (heap->kept[i] == 0) continue;
        DAMAGE(heap, kept[i]);
    }
    for (uint32_t i = 2; i < heap->span_classes; i += 9) {
        damage_list(heap, &heap->central_partial[i]);
        damage_list(heap, &heap->central_full[i]);
    }
}

static bool damage_visit(sw_heap *heap, uint32_t window, uint32_t *n, sw_span **out) {
    const sw_window *w = &heap->pages.windows[window];
    while (*n < w->frontier) {
        uint32_t step;
        *out = sw_heap_span_at(heap, w, *n, &step);
        *n += step;
        if (*out != NULL) return true;
    }
    return false;
}

/* A thread's only span is idle when it ends. */
static void keep_one(sw_heap *heap) {
    sw_cache *ended;
    CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_THREAD, &ended), SW_OK);
    sw_cache_free(ended, sw_cache_alloc(ended, 2048, SW_SCAN));
    sw_cache_close(ended);
    CHECK(heap->kept_pages > 0);
}

/* A heap with spans of every state is damaged in every number that verify can know. */
static void damaged_heap(bool tracked, bool dry) {
    sw_heap *heap = make_heap(sw_table_go(), tracked, dry);
    sw_cache *caches[2], *lost;
    lost = cache_of(heap); /* closes with objects alive: central spans */
    for (int i = 0; i < 700; i++) {
        void *p = sw_cache_alloc(lost, (size_t)i % 250 * 4, 0);
        if (i % 3 == 0) sw_cache_free(lost, p);
    }
    fill(heap, caches, 3);
    sw_cache_close(lost);
    void *first = sw_cache_alloc(caches[0], 8192, 0); /* its span is idle, the second's current */
    CHECK(sw_cache_alloc(caches[0], 8192, 0) != NULL);
    sw_cache_free(caches[0], first);
    keep_one(heap);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    unsigned seen[SW_SPAN_STATE_COUNT] = {0};
    uint32_t n = 0;
    for (sw_span *span; damage_visit(heap, 0, &n, &span);) {
        if (seen[span->state]++ % 16 > 1) continue; /* some spans of each state */
        damage_span(heap, span);
        live_bits(heap, span);
        damage_map(heap, span);
    }
    for (int state = SW_SPAN_CURRENT; state < SW_SPAN_STATE_COUNT; state++) CHECK(seen[state] > 0);
    damage_pages(heap);
    damage_cache(heap, caches[0]);
    damage_cache(heap, caches[1]);
    CHECK(damage_places(heap, caches[0]) + damage_places(heap, caches[1]) > 0);
    damage_heap(heap);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    heap_end(heap);
}

static void print_missed(void) {
    printf("damage: %u of %u found\n", found, tried);
    for (unsigned i = 0; i < missed_count; i++) {
        unsigned same = 0;
        for (unsigned k = 0; k < missed_count; k++) {
            if (strcmp(missed[k], missed[i]) != 0) continue;
            if (k < i) {
                same = 0;
                break;
            }
            same++;
        }
        if (same > 0) printf("  missed: %s, %u times\n", missed[i], same);
    }
}

int main(void) {
    damaged_heap(true, false);
    damaged_heap(false, true);
    print_missed();
    CHECK(flips >= 300 && tried >= flips / (2 * check_share()));
    CHECK_EQ(found, tried);
    return check_result();
}
