/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which events of a heap trigger its verification.
 *
 * Each kind of event is counted separately. After a verification that examined `cost` items, the
 * next one of that kind follows after 1 + cost / COST_OF_EVENT events. So a small heap is verified
 * at every event, a larger one less often, and the mean cost per event is about the same in every
 * heap. The counts do not depend on time, so failures are reproducible. */
#include "inspect/verify_points.h"

#include <stdlib.h>

#include "inspect/audit.h"

enum { COST_OF_EVENT = 64 };

static uint64_t every;
static struct {
    uint64_t asked; /* events so far; all three counts are atomic */
    uint64_t next;  /* the number of the event at which the heap is verified next */
    uint64_t done;  /* verifications so far */
} kinds[SW_VERIFY_EVENT_COUNT];

void sw_verify_every(uint64_t n) {
    __atomic_store_n(&every, n, __ATOMIC_RELAXED);
    for (int kind = 0; kind < SW_VERIFY_EVENT_COUNT; kind++)
        __atomic_store_n(&kinds[kind].next, 0, __ATOMIC_RELAXED);
}

uint64_t sw_verify_done(sw_verify_event event) {
    return __atomic_load_n(&kinds[event].done, __ATOMIC_RELAXED);
}

/* Counts the event. True: it triggers a verification. */
static bool is_due(int kind) {
    uint64_t asked = __atomic_add_fetch(&kinds[kind].asked, 1, __ATOMIC_RELAXED);
    return asked >= __atomic_load_n(&kinds[kind].next, __ATOMIC_RELAXED);
}

static void space_out(int kind, uint64_t cost) {
    uint64_t fixed = __atomic_load_n(&every, __ATOMIC_RELAXED);
    uint64_t asked = __atomic_load_n(&kinds[kind].asked, __ATOMIC_RELAXED);
    __atomic_store_n(&kinds[kind].next, asked + (fixed != 0 ? fixed : 1 + cost / COST_OF_EVENT),
                     __ATOMIC_RELAXED);
    __atomic_fetch_add(&kinds[kind].done, 1, __ATOMIC_RELAXED);
}

/* Returns about how many items a verification examines: pages, records, bins, and four words of
 * bits per 64 pages. */
static uint64_t cost_of(const sw_heap *heap, const sw_audit *a) {
    return heap->pages.frontier_pages + heap->pages.capacity / 16 + 4 * a->records +
           4 * (uint64_t)heap->span_classes * (heap->cache_count + 1);
}

static sw_unused void verify(sw_heap *heap, uint32_t noted) {
    uint32_t due = 0;
    for (int kind = 0; kind < SW_VERIFY_EVENT_COUNT; kind++)
        if ((noted >> kind & 1) != 0 && is_due(kind)) due |= 1u << kind;
    if (due == 0) return;
    sw_audit a = {.heap = heap, .status = SW_OK};
    sw_audit_heap(&a);
    if (a.status != SW_OK) sw_assert_failed(sw_last_error()->message, __FILE__, __LINE__);
    for (int kind = 0; kind < SW_VERIFY_EVENT_COUNT; kind++)
        if ((due >> kind & 1) != 0) space_out(kind, cost_of(heap, &a));
}

#if SW_CHECK >= 3
__attribute__((constructor)) static void install(void) {
    const char *n = getenv("SPANWISE_VERIFY_EVERY");
    if (n != NULL) sw_verify_every(strtoull(n, NULL, 10));
    sw_verify_install(verify);
}
#endif
