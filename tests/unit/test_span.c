/* SPDX-License-Identifier: Apache-2.0 */
/* Spans: the number of words that a class needs, by brute force; spans that end before, on and after
 * a word boundary, against an array of slots; every invalid pointer into a span; the protocol of
 * announcers. */
#include "heap/heap.h"
#include "heap/target.h"
#include "heaps.h"

enum { SPANS = 2, SLOTS_MAX = SW_TABLE_SLOTS_MAX };

/* The size comes back out of the magic number. */
static void every_size(void) {
    uint64_t wrong = 0;
    for (uint32_t size = 8; size <= SW_TABLE_SIZE_MAX; size += 8) {
        sw_span span = {.magic = UINT64_MAX / size + 1};
        wrong += sw_span_size(&span) != size;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(sw_span_size(&(sw_span){.magic = 0}), 0);
}

/* --- heaps of one class at an edge ------------------------------------------------------------ */

typedef struct edge {
    uint32_t page_bytes, size, pages;
    uint32_t slots, words, tail; /* what it must come to */
} edge;

static const edge edges[] = {
    {4096, 4096, 1, 1, 1, 0},      {4096, 4088, 1, 1, 1, 8},     {8192, 8, 1, 1024, 16, 0},
    {4096, 8, 1, 512, 8, 0},       {65536, 8, 1, 8192, 128, 0},  {16384, 8, 4, 8192, 128, 0},
    {4096, 72, 1, 56, 1, 64},      {8192, 128, 1, 64, 1, 0},     {4096, 64, 1, 64, 1, 0},
    {4096, 4096, 64, 64, 1, 0},    {65536, 1016, 1, 64, 2, 512}, {4096, 1016, 16, 64, 2, 512},
    {32768, 504, 1, 65, 2, 8},     {16384, 256, 1, 64, 1, 0},    {65536, 1032, 1, 63, 1, 520},
    {8192, 64, 1, 128, 2, 0},      {4096, 4096, 128, 128, 2, 0}, {65536, 512, 1, 128, 2, 0},
    {4096, 8192, 128, 64, 2, 0},   {8192, 8192, 65, 65, 2, 0},   {4096, 5120, 80, 64, 2, 0},
    {4096, 5128, 81, 64, 2, 3584}, {65536, 262144, 4, 1, 1, 0},  {4096, 131072, 33, 1, 1, 4096},
    {8192, 8192, 127, 127, 2, 0},  {8192, 8192, 128, 128, 3, 0}, {4096, 32, 1, 128, 2, 0},
    {4096, 24, 1, 170, 3, 16},     {65536, 504, 2, 260, 5, 32},  {65536, 32768, 32, 64, 2, 0},
    {4096, 1016, 127, 512, 8, 0},
};

typedef struct bench {
    const edge *edge;
    sw_table *table;
    sw_heap *heap;
    sw_cache *owner, *other;
    uintptr_t base[SPANS];
    bool live[SPANS][SLOTS_MAX];
    bool by_other[SPANS][SLOTS_MAX]; /* freed, and maybe not drained */
} bench;

static bench b;
static unsigned faults;
static sw_misuse last_fault;

static sw_fault_action remember(const sw_fault *fault, void *arg) {
    (void)arg;
    faults++;
    last_fault = fault->code;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* Whether freeing the address is reported, once, as this. */
static bool is_refused(sw_cache *cache, uintptr_t p, sw_misuse want) {
    faults = 0;
    sw_cache_free(cache, (void *)p);
    return faults == 1 && last_fault == want;
}

static sw_span *span_at(uintptr_t p) {
    return sw_space_span(b.heap->space, *sw_space_entry(b.heap->space, p));
}

static void set_up(const edge *e, bool tracked, bool dry) {
    sw_class_spec spec = {.size_bytes = e->size, .pages = e->pages};
    sw_class_info info;
    memset(&b, 0, sizeof b);
    b.edge = e;
    CHECK_EQ(sw_table_create("edge", e->page_bytes, &spec, 1, &b.table), SW_OK);
    CHECK_EQ(sw_table_class(b.table, 1, &info), SW_OK);
    CHECK_EQ(info.slots, e->slots);
    CHECK_EQ(info.tail_bytes, e->tail);
    CHECK_EQ(sw_words_of(e->size, e->slots), e->words);
    b.heap = MADE(sw_heap, o.table = b.table, o.tracked = tracked, o.dry = dry, o.manual_clock = 1);
    b.owner = cache_of(b.heap);
    b.other = cache_of(b.heap);
}

static void tear_down(void) {
    heap_end(b.heap);
    sw_table_destroy(b.table);
}

/* Fills fresh spans: slots come in the order of their addresses. */
static void fill_spans(void) {
    for (uint32_t s = 0; s < SPANS; s++) {
        uint64_t wrong = 0;
        for (uint32_t i = 0; i < b.edge->slots; i++) {
            uintptr_t p = (uintptr_t)sw_cache_alloc(b.owner, b.edge->size - i % 8, 0);
            if (i == 0) b.base[s] = p;
            wrong += p != b.base[s] + (uintptr_t)i * b.edge->size;
            b.live[s][i] = true;
        }
        CHECK_EQ(wrong, 0);
        const sw_span *span = span_at(b.base[s]);
        CHECK((span->words == &span->own) == (b.edge->words == 1));
        CHECK_EQ((uintptr_t)span->words % sizeof(sw_word), 0);
        CHECK_EQ(span->slots, b.edge->slots);
    }
}

static void compare(void) {
    uint64_t wrong = 0;
    for (uint32_t s = 0; s < SPANS; s++) {
        const sw_span *span = span_at(b.base[s]);
        uint32_t free_slots = 0;
        for (uint32_t i = 0; i < b.edge->slots; i++) {
            wrong += sw_span_slot_live(span, i) != b.live[s][i];
            free_slots += !b.live[s][i];
        }
        wrong += sw_span_free_slots(span) != free_slots;
        wrong += sw_span_is_empty(span);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(sw_heap_verify(b.heap), SW_OK);
}

/* Every byte of a span that starts no live slot, the whole tail too. Large spans: some bytes. */
static void wrong_pointers(sw_cache *cache, uint32_t s) {
    uint64_t wrong = 0;
    uint32_t end = b.edge->slots * b.edge->size, all = b.edge->pages * b.edge->page_bytes;
    uint32_t step = all > 65536 ? 61 : 3;
    for (uint32_t at = 0; at < all; at += at >= end ? 1 : step) {
        if (at < end && at + step > end) at = end - 1; /* no byte of the tail is left out */
        if (!check_mine(at) && at != end && at != all - 1) continue;
        uint32_t slot = at / b.edge->size;
        bool starts = at % b.edge->size == 0;
        if (at < end && starts && b.live[s][slot]) continue;
        sw_misuse want = at >= end ? SW_MISUSE_PAST_LAST_SLOT
                         : starts  ? SW_MISUSE_DOUBLE_FREE
                                   : SW_MISUSE_INTERIOR;
        if (want == SW_MISUSE_DOUBLE_FREE && b.by_other[s][slot])
            continue; /* reported by the drain */
        wrong += !is_refused(cache, b.base[s] + at, want);
    }
    CHECK_EQ(wrong, 0);
}

/* Slot 0 stays, so that no span is given up. */
static void churn(uint64_t seed, uint32_t steps) {
    uint64_t wrong = 0;
    for (uint32_t step = 0; step < steps; step++) {
        uint64_t r = check_random(&seed);
        uint32_t s = r & 1, i = (uint32_t)((r >> 32) % b.edge->slots);
        uintptr_t p = b.base[s] + (uintptr_t)i * b.edge->size;
        if (i == 0) continue;
        if (b.live[s][i]) {
            b.by_other[s][i] = (r & 2) != 0;
            sw_cache_free((r & 2) != 0 ? b.other : b.owner, (void *)p);
            b.live[s][i] = false;
        } else {
            wrong += !is_refused(b.other, p, SW_MISUSE_DOUBLE_FREE);
            if (!b.by_other[s][i]) wrong += !is_refused(b.owner, p, SW_MISUSE_DOUBLE_FREE);
        }
        if (step % 256 == 0) compare();
    }
    CHECK_EQ(wrong, 0);
    compare();
}

/* Every slot that is free is handed out again, once, before there is a third span. */
static void refill(void) {
    uint64_t wrong = 0, missing = 0;
    for (uint32_t s = 0; s < SPANS; s++)
        for (uint32_t i = 0; i < b.edge->slots; i++) missing += !b.live[s][i];
    for (; missing > 0; missing--) {
        uintptr_t p = (uintptr_t)sw_cache_alloc(b.owner, b.edge->size, 0);
        uint32_t s = p - b.base[1] < (uintptr_t)b.edge->slots * b.edge->size;
        uint64_t i = (p - b.base[s]) / b.edge->size;
        if ((p - b.base[s]) % b.edge->size != 0 || i >= b.edge->slots || b.live[s][i]) {
            wrong++;
            continue;
        }
        b.live[s][i] = true;
        b.by_other[s][i] = false;
    }
    CHECK_EQ(wrong, 0);
    compare();
}

/* The owner closes: frees go under the heap's lock; the last one gives the span up. */
static void central(void) {
    uint64_t wrong = 0;
    sw_cache_close(b.owner);
    memset(b.by_other, 0, sizeof b.by_other); /* drained */
    compare();
    for (uint32_t s = 0; s < SPANS; s++) wrong_pointers(b.other, s);
    for (uint32_t s = 0; s < SPANS; s++) {
        for (uint32_t i = b.edge->slots; i-- > 0;) {
            uintptr_t p = b.base[s] + (uintptr_t)i * b.edge->size;
            if (b.live[s][i]) sw_cache_free(b.other, (void *)p);
            b.live[s][i] = false;
            wrong += !is_refused(b.other, p, SW_MISUSE_DOUBLE_FREE);
        }
        CHECK_EQ(sw_heap_verify(b.heap), SW_OK);
        CHECK_EQ(*sw_space_entry(b.heap->space, b.base[s]), SW_SPAN_RELEASED);
    }
    CHECK_EQ(wrong, 0);
    sw_cache_close(b.other);
}

static void one_edge(const edge *e, bool tracked, bool dry) {
    set_up(e, tracked, dry);
    fill_spans();
    compare();
    for (uint32_t s = 0; s < SPANS; s++) wrong_pointers(s == 0 ? b.owner : b.other, s);
    churn(e->size + e->slots, e->slots * 2 < 3000 ? e->slots * 2 + 8 : 3000);
    wrong_pointers(b.owner, 0);
    wrong_pointers(b.other, 1);
    refill();
    churn(e->size * 3 + tracked, e->slots * 2 < 3000 ? e->slots * 2 + 8 : 3000);
    central();
    tear_down();
}

/* One record serves slots, a large object and slots again: nothing of an earlier life is left. */
static void lives(void) {
    set_up(&edges[6], true, false);
    sw_span *record = NULL;
    for (int life = 0; life < 6; life++) {
        bool large = life % 2 == 1;
        void *p = sw_cache_alloc(b.owner, large ? 100000 : b.edge->size, SW_SCAN);
        sw_span *span = span_at((uintptr_t)p);
        if (record == NULL) record = span;
        CHECK(span == record);
        CHECK_EQ(sw_span_is_large(span), large);
        if (large) CHECK_EQ(span->own.free | span->own.local | span->own.remote, 0);
        CHECK_EQ(sw_heap_verify(b.heap), SW_OK);
        sw_cache_free(b.owner, p);
        sw_cache_trim(b.owner); /* the current span too */
        CHECK(is_refused(b.owner, (uintptr_t)p, SW_MISUSE_DOUBLE_FREE));
        CHECK_EQ(span->own.free | span->own.local | span->own.remote | span->own.unused, 0);
    }
    tear_down();
}

/* The first free in a half of the words announces it, until a drain; a drain without a double free
 * says so. */
static void announcers(void) {
    uintptr_t doubled = 1;
    set_up(&edges[4], false, false);
    fill_spans();
    sw_space *space = b.heap->space;
    sw_span *span = span_at(b.base[0]);
    uint32_t last = b.edge->slots - 1, first_half = sw_span_half(0), last_half = sw_span_half(last);
    CHECK(first_half != last_half);
    for (int round = 0; round < 2; round++) {
        uint32_t slot = 1 + (uint32_t)round * 100;
        CHECK_EQ(sw_span_remote_free(space, span, slot), SW_REMOTE_ANNOUNCE);
        CHECK_EQ(sw_span_remote_free(space, span, slot + 70), SW_REMOTE_DONE);
        CHECK_EQ(sw_span_remote_free(space, span, last - slot), SW_REMOTE_ANNOUNCE);
        CHECK_EQ(sw_span_remote_free(space, span, slot), SW_REMOTE_DOUBLE);
        sw_span_drain(space, span, first_half, &doubled);
        CHECK_EQ(doubled, 0);
        sw_span_drain(space, span, last_half, &doubled);
        CHECK_EQ(sw_span_free_slots(span), 3 * (round + 1));
    }
    CHECK_EQ(sw_heap_destroy(b.heap), SW_OK);
    sw_table_destroy(b.table);
}

int main(void) {
    every_size();
    sw_set_fault_handler(remember, NULL);
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        one_edge(&edges[i], i % 2 != 0, false);
        one_edge(&edges[i], i % 2 == 0, true);
    }
    lives();
    announcers();
    return check_result();
}
