/* SPDX-License-Identifier: Apache-2.0 */
/* A span against an array of slot states: allocation, frees by the owner and by others, drains,
 * double frees, classification of pointers; lists against an array; the protocol of announcers.
 * The number of words that a class needs, by brute force; spans that end before, on and after a
 * word boundary; every invalid pointer into a span; damage to every bit of a record with an
 * embedded word. */
#include "ds/meta.h"
#include "heap/heap.h"
#include "heap/placement.h"
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
    b.heap = heap_with(
        (heap_setting){.table = b.table, .tracked = tracked, .dry = dry, .manual_clock = 1});
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

/* --- spans ------------------------------------------------------------------------------------ */

typedef enum slot_state { LIVE, FREE, LOCAL, REMOTE } slot_state;

typedef struct model_bench {
    sw_space *space;
    sw_meta meta;
    sw_span *span;
    uint32_t size, slot_count;
    slot_state slots[SLOTS_MAX];
    bool announced[2]; /* the half is on the owner's stack */
} model_bench;

static model_bench model_b;

static size_t words_bytes(void) { return sw_words_bytes(model_b.size, model_b.slot_count); }

static void model_set_up(uint32_t size, uint32_t slots) {
    model_b.size = size;
    model_b.slot_count = slots;
    sw_word *words = words_bytes() == 0 ? NULL : sw_meta_alloc(&model_b.meta, words_bytes());
    sw_span_clear(model_b.span);
    sw_span_init(model_b.span, model_b.space->view.base + 65536, size, slots, 5, words, false);
    for (uint32_t i = 0; i < slots; i++) model_b.slots[i] = FREE;
    model_b.announced[0] = model_b.announced[1] = false;
    memset(sw_space_cold(model_b.space, model_b.span), 0, sizeof(sw_span_cold));
}

static void model_tear_down(void) {
    if (model_b.span->words != &model_b.span->own)
        sw_meta_free(&model_b.meta, model_b.span->words, words_bytes());
}

static void model_compare(void) {
    uint32_t wrong = 0, free_slots = 0, usable = 0, pending = 0;
    for (uint32_t i = 0; i < model_b.slot_count; i++) {
        wrong += sw_span_slot_live(model_b.span, i) != (model_b.slots[i] == LIVE);
        wrong +=
            (sw_span_free_bits(model_b.span, i / 64) >> (i % 64) & 1) != (model_b.slots[i] != LIVE);
        free_slots += model_b.slots[i] != LIVE;
        usable += model_b.slots[i] == FREE || model_b.slots[i] == LOCAL;
        pending += model_b.slots[i] == REMOTE;
    }
    for (uint32_t k = 0; k < sw_span_word_count(model_b.span); k++)
        wrong += (sw_span_free_bits(model_b.span, k) & sw_span_padding(model_b.span, k)) != 0;
    CHECK_EQ(wrong, 0);
    CHECK_EQ(sw_span_free_slots(model_b.span), free_slots);
    CHECK_EQ(sw_span_has_free(model_b.span), usable > 0);
    CHECK_EQ(sw_span_is_empty(model_b.span), usable == model_b.slot_count && pending == 0);
}

/* Takes every slot of one word, as a cache would; what it gets must have been free. */
static void allocate(uint32_t most) {
    uintptr_t doubled;
    sw_word *word = sw_span_find_word(model_b.span, &doubled);
    CHECK_EQ(doubled, 0);
    if (word == NULL) {
        for (uint32_t i = 0; i < model_b.slot_count; i++)
            CHECK(model_b.slots[i] == LIVE || model_b.slots[i] == REMOTE);
        return;
    }
    uint32_t first = (uint32_t)(word - model_b.span->words) * 64;
    CHECK_EQ(sw_span_word_base(model_b.span, word, model_b.size),
             model_b.span->base + (uintptr_t)first * model_b.size);
    for (uint32_t i = first; i < first + 64 && i < model_b.slot_count; i++)
        if (model_b.slots[i] == LOCAL) model_b.slots[i] = FREE;
    for (uint32_t n = 0; n < most && sw_word_free(word) != 0; n++) {
        uint64_t bits = sw_word_free(word);
        uint32_t slot = first + sw_ctz(bits);
        CHECK(slot < model_b.slot_count && model_b.slots[slot] == FREE);
        model_b.slots[slot] = LIVE;
        sw_word_set_free(word, bits & (bits - 1));
    }
}

static void free_remotely(uint32_t slot) {
    bool pending_word = false, pending_half = false;
    for (uint32_t i = 0; i < model_b.slot_count; i++) {
        if (model_b.slots[i] != REMOTE) continue;
        pending_word = pending_word || i / 64 == slot / 64;
        pending_half = pending_half || sw_span_half(i) == sw_span_half(slot);
    }
    sw_remote_result want = model_b.slots[slot] != LIVE    ? SW_REMOTE_DOUBLE
                            : pending_word || pending_half ? SW_REMOTE_DONE
                                                           : SW_REMOTE_ANNOUNCE;
    CHECK_EQ(sw_span_remote_free(model_b.space, model_b.span, slot), want);
    if (want == SW_REMOTE_DOUBLE) return;
    model_b.slots[slot] = REMOTE;
    model_b.announced[sw_span_half(slot)] = true;
}

static void drain(uint32_t half) {
    uintptr_t doubled;
    if (!model_b.announced[half]) return;
    sw_span_drain(model_b.space, model_b.span, half, &doubled);
    CHECK_EQ(doubled, 0);
    model_b.announced[half] = false;
    for (uint32_t i = 0; i < model_b.slot_count; i++)
        if (model_b.slots[i] == REMOTE && sw_span_half(i) == half) model_b.slots[i] = LOCAL;
}

static void free_locally(uint32_t slot) {
    sw_word *word = &model_b.span->words[slot / 64];
    if (model_b.slots[slot] != LIVE) return;
    sw_word_set_local(word, sw_word_local(word) | 1ull << (slot % 64));
    model_b.slots[slot] = LOCAL;
}

static void random_work(uint32_t size, uint32_t slots, uint64_t seed, int steps) {
    model_set_up(size, slots);
    model_compare();
    for (int step = 0; step < steps; step++) {
        uint64_t r = check_random(&seed);
        uint32_t slot = (uint32_t)(r >> 32) % slots;
        switch (r % 5) {
        case 0: allocate(1 + (uint32_t)(r >> 8) % 64); break;
        case 1: free_remotely(slot); break;
        case 2:
        case 3: free_locally(slot); break;
        default: drain((r >> 8) & 1); break;
        }
        if (step % 16 == 0) model_compare();
    }
    model_tear_down();
}

static void lists(uint64_t seed) {
    enum { COUNT = 60 };
    sw_span_list list = {0};
    uint32_t first = sw_space_take_spans(model_b.space);
    uint32_t stack[COUNT], count = 0;
    CHECK(sw_placement_choose(&list, model_b.space, SW_PLACE_ADDRESS) == NULL);
    for (int step = 0; step < 4000; step++) {
        uint64_t r = check_random(&seed);
        uint32_t id = first + (uint32_t)(r >> 8) % COUNT, at = 0;
        sw_span *span = sw_space_span(model_b.space, id);
        while (at < count && stack[at] != id) at++;
        if (at == count) {
            sw_space_cold(model_b.space, span)->page =
                (uint32_t)(r >> 32) % 1000 * COUNT + (id - first); /* no two alike */
            sw_span_list_push(&list, model_b.space, span);
            stack[count++] = id;
        } else {
            sw_span_list_remove(&list, model_b.space, span);
            memmove(&stack[at], &stack[at + 1], (--count - at) * sizeof stack[0]);
        }
        CHECK_EQ(list.count, count);
        uint32_t walk = list.head, lowest = 0;
        for (uint32_t i = count; i-- > 0; walk = model_b.space->cold[walk].next) {
            CHECK_EQ(walk, stack[i]);
            if (lowest == 0 || model_b.space->cold[walk].page < model_b.space->cold[lowest].page)
                lowest = walk;
        }
        CHECK_EQ(walk, 0);
        if (count == 0) continue;
        CHECK(sw_placement_choose(&list, model_b.space, SW_PLACE_LIFO) ==
              sw_space_span(model_b.space, list.head));
        CHECK(sw_placement_choose(&list, model_b.space, SW_PLACE_ADDRESS) ==
              sw_space_span(model_b.space, lowest));
    }
}

int main(void) {
    every_size();
    sw_set_fault_handler(remember, NULL);
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        one_edge(&edges[i], i % 2 != 0, false);
        one_edge(&edges[i], i % 2 == 0, true);
    }
    lives();
    model_b.space = sw_space_dry_create();
    CHECK(model_b.space != NULL);
    sw_meta_init(&model_b.meta);
    model_b.span = sw_space_span(model_b.space, sw_space_take_spans(model_b.space));
    const uint32_t slots[] = {1,   2,    63,   64,   65,   127,  128, 170,
                              512, 1024, 4095, 4096, 4097, 8191, 8192};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        random_work(8, slots[i], i + 1, 3000);
        random_work(48, slots[i], i + 100, 1000);
    }
    lists(9);
    sw_meta_destroy(&model_b.meta);
    sw_space_dry_destroy(model_b.space);
    return check_result();
}
