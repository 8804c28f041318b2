/* SPDX-License-Identifier: Apache-2.0 */
/* A fork while a cache has idle spans on its shelves, or is making one of them a span of another class: in the
 * child both are free pages. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "heap/heap.h"
#include "heap/span_shelf.h"
#include "spanwise/spanwise.h"

enum { PAGE = 8192, SHELVED = 4 };

static sw_heap *heap;
static sw_cache *cache;

static uint64_t spans(void) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    return ledger.spans;
}

/* One object lives, in a span of its own. */
static void in_child(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(200);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        CHECK_EQ(spans(), 1);
        CHECK(sw_cache_alloc(cache, PAGE, 0) != NULL);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
        _exit(check_failed());
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* A thread that was changing a span's class had it off its shelf, and out of the page map. */
static void in_child_while_turning(void) {
    uint32_t *shelf = &cache->cold->span_shelves[0];
    uint32_t id = __atomic_exchange_n(shelf, 0, __ATOMIC_ACQUIRE);
    const sw_span *span = sw_space_span(heap->space, id);
    CHECK_EQ(span->state, SW_SPAN_SHELVED);
    cache->cold->turning_id = id;
    sw_space_map(heap->space, span->base, PAGE, SW_SPAN_RELEASED);
    in_child();
    sw_space_map(heap->space, span->base, PAGE, id);
    cache->cold->turning_id = 0;
    *shelf = id;
}

int main(void) {
    void *objects[SHELVED + 1];
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = sw_table_go(); /* each object of a page is a span of its own */
    options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    for (int i = 0; i <= SHELVED; i++) objects[i] = sw_cache_alloc(cache, PAGE, 0);
    for (int i = 0; i < SHELVED; i++) sw_cache_free(cache, objects[i]);
    in_child();
    in_child_while_turning();
    CHECK_EQ(spans(), SHELVED + 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}
