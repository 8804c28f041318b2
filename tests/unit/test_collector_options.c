/* SPDX-License-Identifier: Apache-2.0 */
/* Options of heaps that combine with a collector (docs/design/gc.md): every placement and batches keep exactly what roots reach; a limit is
 * kept, and its hook may collect; a heap clock of the program's own. */
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "spanwise/gc.h"
#include "spanwise/stats.h"

enum { SLOTS = 2000, SIZES = 4, LIMIT = 4 << 20 };

static void *kept[SLOTS];
static const size_t sizes[SIZES] = {16, 48, 1000, 40000};

static sw_gc *begin(const sw_heap_options *options, uint32_t types[SIZES]) {
    sw_gc *gc;
    uint32_t roots;
    CHECK_EQ(sw_gc_create(options, &gc), SW_OK);
    for (int k = 0; k < SIZES; k++) {
        uint64_t map[40000 / 8 / 64 + 1] = {2};
        sw_gc_type type = {"kept", sizes[k], map};
        CHECK_EQ(sw_gc_add_type(gc, &type, &types[k]), SW_OK);
    }
    memset(kept, 0, sizeof kept);
    CHECK_EQ(sw_gc_add_roots(gc, kept, sizeof kept, &roots), SW_OK);
    return gc;
}

/* Objects that roots hold or have dropped, and that the program frees, between cycles in steps. */
static void churn(sw_gc *gc, const uint32_t types[SIZES], uint64_t seed) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    uint64_t random = seed, live = 0;
    for (int n = 0; n < 12000; n++) {
        uint64_t dice = check_random(&random);
        void **slot = &kept[dice % SLOTS];
        if (*slot != NULL && dice >> 32 & 1) sw_heap_free(sw_gc_heap(gc), *slot);
        live -= *slot != NULL;
        *slot = NULL;
        if (dice >> 33 & 3) {
            *slot = sw_gc_new(gc, types[dice >> 40 & 63 ? dice >> 50 & 1 : dice >> 50 & 3], 1);
            CHECK(*slot != NULL);
            live++;
        }
        if (n % 20 != 0) continue;
        if (sw_gc_current_phase(gc) == SW_GC_IDLE) CHECK_EQ(sw_gc_start(gc), SW_OK);
        CHECK_EQ(sw_gc_step(gc, 200), SW_OK);
    }
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK_EQ(cycle.marked_objects, live);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
}

static void test_placements(void) {
    for (int p = SW_PLACE_LIFO; p <= SW_PLACE_LASTING; p++)
        for (uint32_t batch = 0; batch < 3; batch++) {
            uint32_t types[SIZES];
            sw_heap_options options;
            sw_heap_options_init(&options);
            options.placement = (sw_placement)p;
            options.batch_spans = 2 * batch;
            options.batch_by_use = batch == 2;
            options.manual_clock = batch == 1;
            options.huge_pages = batch == 1;
            sw_gc *gc = begin(&options, types);
            churn(gc, types, (uint64_t)p * 10 + batch);
            CHECK_EQ(sw_gc_destroy(gc), SW_OK);
        }
}

/* --- a limit ---------------------------------------------------------------------------------- */

static int hook_calls;

/* The objects that the caller needs are reachable. */
static int collect_at_limit(sw_heap *heap, uint64_t bytes, void *gc) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    (void)heap, (void)bytes;
    hook_calls++;
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    return cycle.freed_objects != 0;
}

static void test_limit(void) {
    for (int k = 0; k < SIZES; k++) {
        uint32_t types[SIZES];
        sw_heap_options options;
        sw_heap_options_init(&options);
        options.limit_bytes = LIMIT;
        sw_gc *gc = begin(&options, types);
        size_t made = 0;
        errno = 0;
        while (sw_gc_new(gc, types[k], 1) != NULL && made * sizes[k] < LIMIT) made++;
        CHECK_EQ(errno, ENOMEM);
        CHECK(made * sizes[k] > LIMIT / 2 && made * sizes[k] < LIMIT);
        sw_heap_set_limit_hook(sw_gc_heap(gc), collect_at_limit, gc);
        hook_calls = 0;
        for (size_t i = 0; i < 10 * made; i++) {
            void **object = sw_gc_new(gc, types[k], 1);
            CHECK(object != NULL);
            object[0] = object;
            if (i % (made / 20 + 1) == 0) kept[i / (made / 20 + 1) % 5] = object;
        }
        CHECK(hook_calls > 8 && hook_calls < 60);
        for (int i = 0; i < 5; i++) CHECK(*(void **)kept[i] == kept[i]);
        sw_ledger ledger = {.struct_bytes = sizeof ledger};
        CHECK_EQ(sw_heap_ledger(sw_gc_heap(gc), &ledger, NULL, 0), SW_OK);
        CHECK(ledger.held_bytes <= LIMIT);
        CHECK_EQ(sw_gc_verify(gc), SW_OK);
        CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
        CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    }
}

static void test_refused(void) {
    sw_gc *gc;
    sw_heap_options options;
    for (int i = 0; i < 2; i++) {
        sw_heap_options_init(&options);
        options.dry = i == 0;
        options.tracked = i == 1;
        CHECK_EQ(sw_gc_create(&options, &gc), SW_INVALID);
    }
}

int main(void) {
    test_placements();
    test_limit();
    test_refused();
    return check_result();
}
