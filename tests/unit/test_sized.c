/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that begin with their size, in programs compiled with an older or a later header
 * (docs/stability.md).
 */
#include <stddef.h>

#include "check.h"
#include "spanwise/spanwise.h"

static const uint64_t bad_sizes[] = {0,    8,         12, 17, 20, sizeof(sw_heap_options) - 1,
                                     4104, UINT64_MAX};
enum { BAD_SIZES = sizeof bad_sizes / sizeof *bad_sizes };

/* What a program of another version has: the struct as it is now, and room after it. */
typedef union other_options {
    sw_heap_options now;
    unsigned char bytes[sizeof(sw_heap_options) + 64];
} other_options;
typedef union other_ledger {
    sw_ledger now;
    unsigned char bytes[sizeof(sw_ledger) + 64];
} other_ledger;

static void check_bytes(const unsigned char *bytes, size_t from, size_t to, unsigned char want) {
    for (size_t at = from; at < to; at++) CHECK_EQ(bytes[at], want);
}

/* The layout of the first version, in which old programs have been compiled: it never changes. */
static void first_version(void) {
    CHECK_EQ(offsetof(sw_heap_options, table), 8);
    CHECK_EQ(offsetof(sw_heap_options, limit_bytes), 16);
    CHECK_EQ(offsetof(sw_heap_options, decay_ns), 24);
    CHECK_EQ(offsetof(sw_heap_options, placement), 32);
    CHECK_EQ(offsetof(sw_heap_options, tracked), 40);
    CHECK_EQ(offsetof(sw_heap_options, huge_pages), 44);
    CHECK_EQ(offsetof(sw_ledger, requested_bytes), 8);
    CHECK_EQ(offsetof(sw_ledger, held_bytes), 88);
    CHECK_EQ(offsetof(sw_ledger, tracked), 164);
}

static void filled(void) {
    other_options options;
    for (uint64_t size = 16; size <= sizeof options; size += 8) {
        memset(&options, 0xA5, sizeof options);
        CHECK_EQ(sw_heap_options_fill(&options.now, size), SW_OK);
        CHECK_EQ(options.now.struct_bytes, size);
        CHECK(options.now.table == sw_table_default());
        check_bytes(options.bytes, size, sizeof options, 0xA5);
        if (size > sizeof(sw_heap_options))
            check_bytes(options.bytes, sizeof(sw_heap_options), size, 0);
    }
    for (int i = 0; i < BAD_SIZES; i++) {
        memset(&options, 0xA5, sizeof options);
        CHECK_EQ(sw_heap_options_fill(&options.now, bad_sizes[i]), SW_INVALID);
        check_bytes(options.bytes, 0, sizeof options, 0xA5);
    }
    CHECK_STR(sw_last_error()->message,
              "struct_bytes is 18446744073709551615: give sizeof(sw_heap_options)");
}

/* Options of 40 bytes end after batch_spans: that a heap is dry or tracked comes later. */
static void short_options(void) {
    other_options options;
    memset(&options, 1, sizeof options);
    sw_heap_options_init(&options.now);
    options.now.limit_bytes = 1 << 20;
    options.now.tracked = options.now.dry = 1;
    options.now.struct_bytes = 40;
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_OK);
    CHECK_EQ(sw_heap_is_dry(heap), 0);
    CHECK(sw_heap_alloc(heap, 2 << 20, 0) == NULL); /* the limit was read */
    sw_heap_destroy(heap);
    options.now.struct_bytes = 16; /* the table alone: no limit */
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_OK);
    CHECK(sw_heap_alloc(heap, 2 << 20, 0) != NULL);
    sw_heap_destroy(heap);
}

static void later_options(void) {
    other_options options;
    sw_heap *heap = NULL;
    CHECK_EQ(sw_heap_options_fill(&options.now, sizeof options), SW_OK);
    options.now.dry = 1;
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_OK);
    CHECK_EQ(sw_heap_is_dry(heap), 1);
    sw_heap_destroy(heap);
    heap = NULL;
    options.bytes[sizeof options - 1] = 1;
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_UNSUPPORTED);
    CHECK_STR(sw_last_error()->message,
              "options of 120 bytes use fields that this version lacks: it has 56");
    CHECK_EQ(sw_heap_default_init(&options.now), SW_UNSUPPORTED);
    for (int i = 0; i < BAD_SIZES; i++) {
        options.now.struct_bytes = bad_sizes[i];
        CHECK_EQ(sw_heap_create(&options.now, &heap), SW_INVALID);
        CHECK_EQ(sw_heap_default_init(&options.now), SW_INVALID);
    }
    CHECK(heap == NULL);
    options.now.struct_bytes = 0;
    CHECK_EQ(sw_heap_create(&options.now, &heap), SW_INVALID);
    CHECK_STR(sw_last_error()->message, "struct_bytes is 0: call sw_heap_options_init first");
}

static void ledgers(void) {
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    CHECK(sw_heap_alloc(heap, 64, 0) != NULL);
    other_ledger whole, other;
    CHECK_EQ(sw_heap_ledger(heap, &whole.now, NULL, 0), SW_OK);
    CHECK_EQ(whole.now.struct_bytes, sizeof(sw_ledger));
    for (uint64_t size = 16; size <= sizeof other; size += 8) {
        uint64_t has = size < sizeof(sw_ledger) ? size : sizeof(sw_ledger);
        memset(&other, 0xA5, sizeof other);
        other.now.struct_bytes = size;
        CHECK_EQ(sw_heap_ledger_read(heap, &other.now, NULL, 0), SW_OK);
        CHECK_EQ(other.now.struct_bytes, has);
        CHECK(memcmp(other.bytes + 8, whole.bytes + 8, has - 8) == 0);
        check_bytes(other.bytes, has, sizeof other, 0xA5);
    }
    for (int i = 0; i < BAD_SIZES; i++) {
        memset(&other, 0xA5, sizeof other);
        other.now.struct_bytes = bad_sizes[i];
        CHECK_EQ(sw_heap_ledger_read(heap, &other.now, NULL, 0), SW_INVALID);
        check_bytes(other.bytes, 8, sizeof other, 0xA5);
    }
    sw_heap_destroy(heap);
}

static void version(void) {
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", SW_VERSION_NUMBER / 10000,
             SW_VERSION_NUMBER / 100 % 100, SW_VERSION_NUMBER % 100);
    CHECK_STR(SPANWISE_VERSION, text);
    CHECK_STR(sw_version(), text);
    CHECK_EQ(sw_version_number(), SW_VERSION_NUMBER);
}

int main(void) {
    first_version();
    filled();
    short_options();
    later_options();
    ledgers();
    version();
    return check_result();
}
