/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are asked for before they are touched: all of a fresh span where a class of small slots
 * fills span after span, and no others. */
#define _DEFAULT_SOURCE
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "check.h"
#include "heap/target.h"
#include "heaps.h"
#include "os/os.h"
#include "spanwise/spanwise.h"

enum { PAGES_MAX = 64 };

/* How many pages of [p, p+bytes) are resident. */
static size_t resident(uintptr_t p, size_t bytes) {
    unsigned char in[PAGES_MAX];
    size_t page = sw_os_page_bytes(), pages = bytes / page, found = 0;
    CHECK(pages <= PAGES_MAX);
    CHECK_EQ(mincore((void *)p, bytes, in), 0);
    for (size_t i = 0; i < pages; i++) found += in[i] & 1u;
    return found;
}

static bool the_system_can(void) {
    size_t page = sw_os_page_bytes(), bytes = 16 * page;
    char *p = sw_os_map(bytes);
    CHECK(p != NULL);
    CHECK_EQ(resident((uintptr_t)p, bytes), 0);
    bool can = sw_os_populate(p, bytes);
    CHECK_EQ(resident((uintptr_t)p, bytes), can ? 16 : 0);
    p[0] = p[bytes - 1] = 1;
    CHECK(sw_os_release(p, bytes));
    return can;
}

/* Takes `spans` spans of a class, full of objects that are written to; resident pages of the last one
 * when its first object is there, and how many pages it has. */
static size_t resident_at_birth(sw_cache *cache, uint32_t size, uint32_t spans, size_t *pages) {
    sw_heap *heap = cache->heap;
    size_t found = 0;
    for (uint32_t s = 0; s < spans; s++) {
        uint64_t *first = sw_cache_alloc(cache, size, 0);
        CHECK(first != NULL);
        *first = 1;
        const sw_span *span = sw_target_find(heap, first).span;
        size_t bytes = (size_t)sw_space_cold(heap->space, span)->pages << heap->table->page_shift;
        *pages = bytes / sw_os_page_bytes();
        found = resident(span->base, bytes);
        for (uint32_t i = 1; i < span->slots; i++) *(uint64_t *)sw_cache_alloc(cache, size, 0) = 1;
    }
    return found;
}

static void spans_at_birth(void) {
    static const struct {
        uint32_t size, spans;
        bool ahead;
    } cases[] = {
        {16, 1, false}, {16, 4, false},   {16, 5, true},    {16, 12, true},    {64, 5, true},
        {512, 5, true}, {1024, 12, true}, {1280, 5, false}, {2048, 12, false}, {8192, 12, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sw_heap *heap;
        sw_cache *cache;
        size_t pages = 0;
        CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
        cache = cache_of(heap);
        size_t found = resident_at_birth(cache, cases[i].size, cases[i].spans, &pages);
        CHECK_EQ(found, cases[i].ahead ? pages : 1);
        sw_cache_close(cache);
        heap_end(heap);
    }
}

int main(void) {
    size_t page = sw_os_page_bytes();
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages would be resident whole */
    CHECK(page >= SW_FRAME_BYTES);
    if (page == SW_FRAME_BYTES && the_system_can()) {
        spans_at_birth();
    } else {
        puts("skipped: larger pages, or a kernel without MADV_POPULATE_WRITE");
    }
    return check_result();
}
