/* SPDX-License-Identifier: Apache-2.0 */
/* A system that does not take pages back: they stay held, keep what was written to them, and are
 * cleared before they are handed out as zeroes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "spanwise/spanwise.h"

static bool refuse;

enum { DONTNEED_LOCKED = 24 }; /* which the library tries after EINVAL */

/* In place of libc's. */
int madvise(void *p, size_t bytes, int advice) {
    bool gives_back = advice == MADV_DONTNEED || advice == DONTNEED_LOCKED;
    if (!refuse || !gives_back) return (int)syscall(SYS_madvise, p, bytes, advice);
    errno = EINVAL; /* as for locked pages */
    return -1;
}

static sw_heap *heap;

static void make(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
}

static sw_ledger ledger(void) {
    sw_ledger l;
    CHECK_EQ(sw_heap_ledger(heap, &l, NULL, 0), SW_OK);
    return l;
}

static bool is_zero(const unsigned char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != 0) return false;
    return true;
}

enum { LARGE = 200 * 8192, SMALL = 64, SLOTS = 128 }; /* too long for a cache to keep; one span */

static void large_object(void) {
    make();
    unsigned char *p = sw_heap_alloc(heap, LARGE, 0);
    memset(p, 0xAA, LARGE);
    sw_heap_free(heap, p);
    refuse = true;
    CHECK_EQ(sw_heap_trim(heap), 0);
    CHECK_EQ(ledger().retry_bytes, LARGE);
    CHECK_EQ(sw_heap_trim(heap), 0);
    sw_ledger l = ledger();
    CHECK_EQ(l.free_page_bytes, LARGE);
    CHECK_EQ(l.retry_bytes, 2 * LARGE); /* summed over attempts */
    CHECK_EQ(l.returned_bytes, 0);
    unsigned char *q = sw_heap_alloc(heap, LARGE, SW_ZERO);
    CHECK(q == p && is_zero(q, LARGE));
    memset(q, 0xAA, LARGE);
    sw_heap_free(heap, q);
    refuse = false;
    CHECK_EQ(sw_heap_trim(heap), LARGE);
    l = ledger();
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(l.returned_bytes, LARGE);
    CHECK_EQ(l.retry_bytes, 2 * LARGE);
    q = sw_heap_alloc(heap, LARGE, SW_ZERO);
    CHECK(q == p && is_zero(q, LARGE));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* A span's pages, given up and refused, become a span again. */
static void small_objects(void) {
    static unsigned char *p[SLOTS];
    make();
    for (int i = 0; i < SLOTS; i++) {
        p[i] = sw_heap_alloc(heap, SMALL, 0);
        memset(p[i], 0xAA, SMALL);
    }
    for (int i = 0; i < SLOTS; i++) sw_heap_free(heap, p[i]);
    refuse = true;
    CHECK_EQ(sw_heap_trim(heap), 0);
    CHECK_EQ(ledger().spans, 0);
    CHECK_EQ(ledger().free_page_bytes, SLOTS * SMALL);
    for (int i = 0; i < SLOTS; i++) {
        unsigned char *q = sw_heap_alloc(heap, SMALL, SW_ZERO);
        CHECK(q >= p[0] && q <= p[SLOTS - 1] && is_zero(q, SMALL));
    }
    refuse = false;
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    large_object();
    small_objects();
    return check_result();
}
