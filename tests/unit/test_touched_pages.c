/* SPDX-License-Identifier: Apache-2.0 */
/* Resident pages: a dry heap's ledger of touched bytes against that of a real one, the metadata of
 * both against /proc/self/pagemap, and pages that are populated before they are touched: all of a
 * fresh span if a class of small slots fills span after span. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "base/base.h"
#include "ds/meta.h"
#include "heap/target.h"
#include "os/os.h"
#include "spawn.h"
#include "touched_ops.h"

/* --- dry and real heaps ----------------------------------------------------------------------- */

/* The end of the newest chunk of metadata, as the system reports: no one has written to it. */
static void untouched_metadata(void) {
    enum { PAGES = 64 };
    sw_meta meta;
    uint8_t resident[PAGES];
    uint64_t page = sw_os_page_bytes();
    sw_meta_init(&meta);
    CHECK_EQ(sw_meta_untouched_bytes(&meta, 12), 0);
    for (int i = 0; i < 400; i++) {
        size_t block = 64 * (1 + (size_t)i % 9);
        memset(sw_meta_alloc(&meta, block), 1, block);
        uint64_t bytes = meta.chunks == NULL ? 0 : (uint64_t)(meta.bump_end - (char *)meta.chunks);
        uint64_t absent = 0, reported = sw_meta_untouched_bytes(&meta, sw_log2_floor(page));
        if (bytes / page > PAGES || !sw_os_resident_pages(meta.chunks, bytes / page, resident))
            break;
        for (uint64_t n = 0; n < bytes / page; n++) absent += resident[n] ? 0 : page;
        if (absent != reported) CHECK_EQ(i, -1);
    }
    CHECK(meta.held_bytes > 64 << 10);
    sw_meta_destroy(&meta);
}

static void equal(const sw_ledger *a, const sw_ledger *b, size_t at) {
    if (memcmp(a, b, sizeof *a) == 0) return;
    const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;
    for (size_t i = 0; i < sizeof *a / 8; i++)
        if (x[i] != y[i])
            fprintf(stderr, "op %zu, field %zu: dry %llu, real %llu\n", at, i,
                    (unsigned long long)x[i], (unsigned long long)y[i]);
    CHECK(false);
}

/* Bytes of [from, from + bytes) in pages that the system has given memory: present, and not the
 * page of zeros, which all that was only read share. Of a process that has not forked since. */
static uint64_t backed(int pagemap, const void *from, uint64_t bytes) {
    uint64_t page = sw_os_page_bytes(), sum = 0;
    uintptr_t start = (uintptr_t)from, end = start + bytes;
    for (uintptr_t at = sw_align_down(start, page); at < end; at += page) {
        uint64_t entry = 0;
        CHECK_EQ(pread(pagemap, &entry, 8, (off_t)(at / page * 8)), 8);
        bool there = (entry >> 63 & 1) != 0 && (entry >> 56 & 1) != 0;
        if (there) sum += sw_min_u64(at + page, end) - sw_max_u64(at, start);
    }
    return sum;
}

/* The first bytes of a chunk of metadata (ds/meta.c). */
typedef struct chunk_head {
    const struct chunk_head *next;
    size_t bytes;
} chunk_head;

/* The metadata of a ledger of touched bytes against what the system has given memory. */
static void metadata_is_backed(const sw_heap *heap, uint64_t metadata) {
    uint64_t sum = 0, bytes;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) return; /* a kernel without it */
    sum += backed(pagemap, heap, sizeof *heap);
    for (uint32_t id = heap->batches; id != 0; id = heap->space->cold[id].batch_next) {
        sum += backed(pagemap, &heap->space->view.spans[id], SW_SPAN_BATCH * sizeof(sw_span));
        sum += backed(pagemap, &heap->space->cold[id], SW_SPAN_BATCH * sizeof(sw_span_cold));
    }
    for (uint32_t i = 0; i < heap->pages.window_count; i++) {
        const void *map = sw_pages_window_map(&heap->pages, &heap->pages.windows[i], &bytes);
        sum += backed(pagemap, map, bytes);
    }
    uint64_t chunks = 0, caches = 0;
    for (const chunk_head *c = (const void *)heap->meta.chunks; c != NULL; c = c->next) {
        sum += backed(pagemap, c, c->bytes);
        chunks += c->bytes;
    }
    for (const sw_cache *c = heap->caches; c != NULL; c = c->cold->next) {
        sum += backed(pagemap, c, sw_cache_record_bytes(heap));
        caches += sw_cache_record_bytes(heap);
    }
    CHECK(heap->meta.held_bytes >= chunks + caches);
    sum += heap->meta.held_bytes - chunks - caches; /* blocks that are mappings of their own */
    CHECK_EQ(metadata, sum);
    (void)close(pagemap);
}

/* Tracked, because a plain real heap takes specialised paths, which choose other slots. */
static void dry_equals_real(const sw_table *table, uint64_t seed) {
    enum { PARTS = 12, ROWS = 256 };
    static sw_ledger_class rows[2][ROWS];
    sw_ledger ledgers[2];
    sw_heap *heaps[2];
    sw_runner *runners[2];
    size_t count = make_ops(seed);
    uint64_t untouched = 0, returned = 0;
    for (int i = 0; i < 2; i++) {
        heaps[i] = make(i == 0, true, table);
        CHECK_EQ(sw_runner_create(heaps[i], &runners[i]), SW_OK);
    }
    for (size_t part = 0; part < PARTS; part++) {
        size_t at = count / PARTS * part;
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(sw_runner_run(runners[i], ops + at, count / PARTS, SW_TOUCH_PAGES, NULL, NULL),
                     SW_OK);
            ledgers[i].struct_bytes = sizeof ledgers[i];
            CHECK_EQ(sw_heap_touched_read(heaps[i], &ledgers[i], rows[i], ROWS), SW_OK);
        }
        equal(&ledgers[0], &ledgers[1], at);
        parts_are_the_map(heaps[0], &ledgers[0]);
        for (int i = 0; i < 2; i++) metadata_is_backed(heaps[i], ledgers[i].metadata_bytes);
        CHECK(memcmp(rows[0], rows[1], (sw_table_class_count(table) + 1) * sizeof rows[0][0]) == 0);
        sw_ledger held;
        CHECK_EQ(sw_heap_ledger(heaps[0], &held, NULL, 0), SW_OK);
        CHECK(ledgers[0].held_bytes <= held.held_bytes);
        CHECK(ledgers[0].requested_bytes > 0);
        untouched += held.held_bytes - ledgers[0].held_bytes;
        returned = held.returned_bytes;
    }
    CHECK(untouched > 1 << 20 && returned > 1 << 20); /* else nothing was compared */
    for (int i = 0; i < 2; i++) {
        sw_runner_destroy(runners[i]);
        CHECK_EQ(sw_heap_destroy(heaps[i]), SW_OK);
    }
}

/* In a process of its own: what earlier heaps have written of the space stays resident. */
static void in_child(void (*run)(const sw_table *, uint64_t), const sw_table *table,
                     uint64_t seed) {
    pid_t child = child_begin();
    if (child == 0) {
        run(table, seed);
        _exit(check_result());
    }
    expect_exit_0(child);
}

/* --- pages that are requested before they are touched ----------------------------------------- */

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

/* Takes `spans` spans of a class, full of objects that are written to; resident pages of the last
 * one when its first object is there, and how many pages it has. */
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
        size_t pages = 0;
        CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
        sw_cache *cache = cache_of(heap);
        size_t found = resident_at_birth(cache, cases[i].size, cases[i].spans, &pages);
        CHECK_EQ(found, cases[i].ahead ? pages : 1);
        sw_cache_close(cache);
        heap_end(heap);
    }
}

static void populate(void) {
    size_t page = sw_os_page_bytes();
    CHECK(page >= SW_FRAME_BYTES);
    if (page == SW_FRAME_BYTES && the_system_can()) {
        spans_at_birth();
    } else {
        puts("skipped: larger pages, or a kernel without MADV_POPULATE_WRITE");
    }
}

int main(void) {
    static _Alignas(65536) char page[65536];
    uint8_t known;
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages would be resident whole */
    page[0] = 1;
    if (sw_os_resident_pages(page, 1, &known)) {
        untouched_metadata();
        for (uint64_t seed = 1; seed <= 2; seed++) {
            in_child(dry_equals_real, sw_table_c16(), seed);
            in_child(dry_equals_real, sw_table_go(), seed);
        }
    }
    populate();
    return check_result();
}
