/* SPDX-License-Identifier: Apache-2.0 */
/* Damage that verify must name wherever in a span it lies: a free that was not announced in the
 * upper half of its words, an old page under a span that passes for fresh. */
#include "check.h"
#include "heap/target.h"
#include "spanwise/spanwise.h"

enum { SLOTS = 8192 }; /* 128 words: two halves */

static void names(sw_heap *heap, const char *text) {
    CHECK_EQ(sw_heap_verify(heap), SW_STATE);
    CHECK(strstr(sw_last_error()->message, text) != NULL);
}

int main(void) {
    static const sw_class_spec specs[] = {{8, 8, 0}};
    sw_table *table;
    sw_heap *heap;
    sw_heap_options options;
    CHECK_EQ(sw_table_create("halves", 8192, specs, 1, &table), SW_OK);
    sw_heap_options_init(&options);
    options.table = table;
    options.dry = options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    void *p = NULL;
    for (int i = 0; i < SLOTS - 1; i++) p = sw_heap_alloc(heap, 8, 0);
    sw_span *span = sw_target_find(heap, p).span;
    CHECK_EQ(span->slots, SLOTS);
    for (uint32_t slot = 70; slot < SLOTS; slot += 5000) {
        uint64_t bit = 1ull << slot % 64;
        (void)__atomic_fetch_or(&span->words[slot / 64].remote, bit, __ATOMIC_ACQ_REL);
        names(heap, "frees by other threads are not announced");
        (void)__atomic_fetch_and(&span->words[slot / 64].remote, ~bit, __ATOMIC_ACQ_REL);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
    uint32_t last = sw_space_cold(heap->space, span)->page + 7;
    sw_bits_set(heap->pages.dirty, last, 1);
    names(heap, "a used page passes for fresh");
    sw_bits_clear(heap->pages.dirty, last, 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    sw_table_destroy(table);
    return check_result();
}
