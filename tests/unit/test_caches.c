/* SPDX-License-Identifier: Apache-2.0 */
/* Thread caches: closed ones are reused by the next thread, idle ones have few resident pages, and
 * the classes of a cache's requests select its paths. */
#include <sys/prctl.h>

#include "check.h"
#include "heap/cache.h"
#include "heap/hint.h"
#include "heaps.h"
#include "os/os.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

enum { MANY = 20000, STAY = 16, SLOT_BYTES = 512 };

static sw_cache *many[MANY];

static uint64_t length_of(const sw_cache *list, uint32_t closed) {
    uint64_t count = 0;
    for (; list != NULL; list = list->cold->list_next, count++)
        CHECK_EQ(list->cold->closed, closed);
    return count;
}

static void check_lists(const sw_heap *heap, uint64_t open, uint64_t closed) {
    CHECK_EQ(length_of(heap->open_caches, 0), open);
    uint64_t whole = closed < SW_CLOSED_WHOLE ? closed : SW_CLOSED_WHOLE;
    CHECK_EQ(length_of(heap->closed_caches, 1), whole);
    CHECK_EQ(length_of(heap->stripped_caches, 1), closed - whole);
    CHECK_EQ(heap->closed_count, whole);
    CHECK_EQ(heap->cache_count, open);
    CHECK_EQ(heap->cache_numbers, open + closed);
}

/* Caches that are no user's close in an order of their own; records are made for no more than are
 * open at once. */
static void closed_ones_are_taken_again(void) {
    sw_heap *heap;
    uint64_t rng = 4;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &many[i]), SW_OK);
    check_lists(heap, MANY, 0);
    for (int left = MANY; left > STAY; left--) {
        int at = (int)(check_random(&rng) % (uint64_t)left);
        sw_cache_close(many[at]);
        many[at] = many[left - 1];
    }
    check_lists(heap, STAY, MANY - STAY);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = STAY; i < MANY; i++)
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &many[i]), SW_OK);
    check_lists(heap, MANY, 0);
    for (int i = 0; i < MANY; i++) sw_cache_close(many[i]);
    check_lists(heap, 0, MANY);
    heap_end(heap);
}

/* A span that becomes wholly free is given up unless an open cache has a hazard on it. What is in a
 * closed cache's record does not count: no one looks at it. */
static void spans_given_up(bool by_closed, uint64_t spans_left) {
    sw_heap *heap;
    sw_cache *cache, *freer;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    cache = cache_of(heap);
    freer = cache_of(heap);
    if (by_closed) sw_cache_close(freer);
    void *p = sw_cache_alloc(cache, SLOT_BYTES, 0);
    freer->cold->hazard_id = *sw_space_entry(heap->space, (uintptr_t)p);
    sw_cache_free(cache, p);
    sw_cache_close(cache);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.spans, spans_left);
    CHECK_EQ(heap->central_idle, spans_left);
    heap->central_idle = 0;
    CHECK_EQ(sw_heap_verify(heap), spans_left == 0 ? SW_OK : SW_STATE);
    heap->central_idle = (uint32_t)spans_left;
    freer->cold->hazard_id = 0;
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_trim(heap); /* the hazard is cleared: now it is given up */
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.spans, 0);
    CHECK_EQ(heap->central_idle, 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Two full spans with a free slot each, and a current one. The cache closes: who adopts takes the
 * current one first, then the one whose slot was freed last. */
static void warm_ones_are_adopted_first(void) {
    enum { SLOTS = 16, COUNT = 2 * SLOTS + 1 }; /* 512 B, table go: a page, so 16 slots, a span */
    sw_cache *cache;
    char *p[COUNT];
    sw_heap *heap = heap_with((heap_setting){.table = sw_table_go(), .placement = SW_PLACE_LIFO});
    cache = cache_of(heap);
    for (int i = 0; i < COUNT; i++)
        p[i] = sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN); /* no hints */
    sw_cache_free(cache, p[0]);
    sw_cache_free(cache, p[SLOTS]);
    sw_cache_close(cache);
    cache = cache_of(heap);
    for (int i = 1; i < SLOTS; i++)
        CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[COUNT - 1] + i * SLOT_BYTES);
    CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[SLOTS]);
    CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[0]);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static sw_heap *heap;
static sw_cache *cache;

/* --- resident pages of hints ------------------------------------------------------------------ */

#if defined(__linux__)
#endif

enum { PAGES_MAX = 32, LIVE = 2000 };

/* Checks each page that has nothing but hints: it is resident only if a class of `used` has hints
 * there. Returns the resident ones. */
static uint32_t hint_pages(const sw_cache *cache, const uint32_t *used, uint32_t count) {
    uint64_t page = sw_os_page_bytes();
    uint32_t classes = heap->span_classes / 2, found = 0;
    uintptr_t at = sw_align_up((uintptr_t)cache->hints, page);
    uintptr_t end = (uintptr_t)(cache->hints + ((size_t)classes << SW_HINTS_LOG2));
    uint8_t resident[PAGES_MAX];
    for (; at < end; at += page) {
        bool may = false;
        for (uint32_t i = 0; i < count; i++) {
            uintptr_t from = (uintptr_t)(cache->hints + ((size_t)used[i] << SW_HINTS_LOG2));
            may |= from < at + page && from + SW_HINTS_MAX * sizeof(sw_hint) > at;
        }
        CHECK(sw_os_resident_pages((void *)at, 1, resident));
        CHECK(may || resident[0] == 0);
        found += resident[0];
    }
    return found;
}

/* Random replacement of three sizes, with hints on, so that each class fills its store. */
static void use(sw_cache *cache, const size_t *sizes) {
    static void *live[LIVE];
    uint64_t rng = 3;
    cache->unhinted_owner = SW_NO_CACHE;
    for (uint32_t i = 0; i < 20 * LIVE; i++) {
        void **place = &live[(check_random(&rng) >> 32) % LIVE];
        sw_cache_free(cache, *place);
        *place = sw_cache_alloc(cache, sizes[i % 3], 0);
    }
    for (uint32_t i = 0; i < LIVE; i++) {
        sw_cache_free(cache, live[i]);
        live[i] = NULL;
    }
}

static void hints_are_resident_by_use(void) {
    static const size_t sizes[3] = {24, 100, 700};
    static _Alignas(65536) char page[65536];
    sw_cache *busy, *idle;
    uint32_t used[3];
    uint8_t known;
    page[0] = 1;
#if defined(__linux__)
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages would be resident whole */
#endif
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    busy = cache_of(heap);
    idle = cache_of(heap);
    for (int i = 0; i < 3; i++) used[i] = sw_size_class(heap->table, sizes[i]);
    if (sw_os_resident_pages(page, 1, &known)) {
        CHECK_EQ(hint_pages(busy, NULL, 0), 0);
        use(busy, sizes);
        uint32_t pages = hint_pages(busy, used, 3);
        CHECK(pages > 0 && pages <= 6); /* three stores of 768 B are in at most two pages each */
        CHECK_EQ(hint_pages(idle, NULL, 0), 0);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(busy);
    sw_cache_close(idle);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* --- slots of varied sizes --------------------------------------------------------------------- */

static sw_heap *heap;
static void make(const sw_table *table, bool tracked) {
    heap = heap_with((heap_setting){.table = table, .tracked = tracked});
    cache = cache_of(heap);
}

static void end(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Sizes that vary, and series of one size, all kinds of requests: each slot is of the class of its
 * size, and of no other object; cleared ones are clear. Filled with a byte that shows a neighbour's
 * write. */
static void slots_of(const sw_table *table, bool tracked) {
    enum { LIVE = 600 };
    static unsigned char *objects[LIVE];
    static size_t sizes[LIVE];
    uint64_t rng = 11;
    make(table, tracked);
    for (uint32_t i = 0; i < 60000; i++) {
        uint64_t random = check_random(&rng) >> 20;
        uint32_t k = (uint32_t)(random % LIVE);
        unsigned flags = (random >> 12) % 8 == 0 ? SW_SCAN : (random >> 12) % 8 == 1 ? SW_ZERO : 0;
        size_t size = i / 6000 % 2 == 0 ? 24 : (random >> 16) % 700;
        if (objects[k] != NULL) {
            CHECK(all_are(objects[k], sizes[k], (unsigned char)k));
            sw_cache_free(cache, objects[k]);
        }
        objects[k] = sw_cache_alloc(cache, size, flags);
        sizes[k] = size;
        if (flags != 0) CHECK(all_are(objects[k], size, 0));
        memset(objects[k], (unsigned char)k, size);
        CHECK_EQ(sw_heap_usable_size(heap, objects[k]),
                 tracked ? sw_heap_usable_size(heap, objects[k])
                         : table->classes[sw_size_class(table, size)].size);
    }
    for (uint32_t k = 0; k < LIVE; k++) {
        sw_cache_free(cache, objects[k]);
        objects[k] = NULL;
    }
    end();
}

int main(void) {
    closed_ones_are_taken_again();
    spans_given_up(false, 1);
    spans_given_up(true, 0);
    warm_ones_are_adopted_first();
    hints_are_resident_by_use();
    slots_of(sw_table_c16(), false);
    slots_of(sw_table_go(), false);
    slots_of(sw_table_c16(), true);
    return check_result();
}
