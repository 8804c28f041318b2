/* SPDX-License-Identifier: Apache-2.0 */
/* What an idle cache, and one of few classes, has resident: no page of hints of a class that it does not use. */
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "check.h"
#include "heap/hint.h"
#include "os/os.h"
#include "spanwise/spanwise.h"

enum { PAGES_MAX = 32, LIVE = 2000 };

static sw_heap *heap;

/* Checks each page that has nothing but hints: it is resident only if a class of `used` has hints there.
 * Returns the resident ones. */
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

int main(void) {
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
    CHECK_EQ(sw_cache_open(heap, &busy), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &idle), SW_OK);
    for (int i = 0; i < 3; i++) used[i] = sw_size_class(heap->table, sizes[i]);
    if (sw_os_resident_pages(page, 1, &known)) {
        CHECK_EQ(hint_pages(busy, NULL, 0), 0);
        use(busy, sizes);
        uint32_t pages = hint_pages(busy, used, 3);
        CHECK(pages > 0 && pages <= 6); /* three stores of 768 B lie in at most two pages each */
        CHECK_EQ(hint_pages(idle, NULL, 0), 0);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(busy);
    sw_cache_close(idle);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}
