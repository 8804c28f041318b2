/* SPDX-License-Identifier: Apache-2.0 */
/* The library uses few addresses, so a limit that the program sets later (RLIMIT_AS) leaves the
 * rest to the program. During growth within such a limit, caches and the collector find objects
 * beyond the part of the range that they knew, and other libraries' mappings are not touched. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/resource.h>

#include "heap/cache.h"
#include "heaps.h"
#include "page/space.h"
#include "spawn.h"
#include "status.h"

enum { MIB = 1 << 20 };

static sw_heap *make_heap(uint8_t dry) { return MADE(sw_heap, o.dry = dry); }

static uint64_t addresses_kb(void) { return status_kb("VmSize:"); }

/* Bounds by hand: a space maps 64 KiB each of span records, their cold parts and the page map; the
 * first growth of a heap is 1 MiB; its metadata is below 1 MiB; a collector has 64 KiB each of mark
 * stack and layouts, and 80 bytes a span record. */
static void few_addresses(void) {
    uint64_t before = addresses_kb();
    sw_heap *heap = make_heap(0);
    void *p = sw_heap_alloc(heap, 100, 0);
    CHECK(p != NULL);
    CHECK(addresses_kb() <= before + 4 * 1024);
    before = addresses_kb();
    sw_heap *dry = make_heap(1);
    CHECK(sw_heap_alloc(dry, 100, 0) != NULL);
    CHECK(addresses_kb() <= before + 4 * 1024);
    before = addresses_kb();
    sw_gc *gc = MADE_FROM(sw_gc, sw_heap_options, (void)o);
    CHECK(sw_heap_alloc(sw_gc_heap(gc), 100, SW_SCAN) != NULL);
    CHECK(addresses_kb() <= before + 4 * 1024);
    before = addresses_kb();
    sw_slabs *slabs = MADE(sw_slabs, (void)o);
    CHECK(sw_slabs_alloc(slabs, 4096, 0) != NULL);
    CHECK(addresses_kb() <= before + 4 * 1024);
    before = addresses_kb();
    sw_arena *arena = MADE(sw_arena, o.chunk_bytes = 32 * MIB);
    CHECK(sw_arena_alloc(arena, 100, 16, 0) != NULL);
    CHECK(addresses_kb() <= before + 66 * 1024); /* a region of 64 MiB */
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    sw_slabs_destroy(slabs);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    CHECK_EQ(sw_heap_destroy(dry), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Places do not overlap, only their mapped pieces count as the process's memory, and what another
 * mapping occupies is left alone. */
static void places(void) {
    enum { PLACES = 40 };
    size_t page = sw_os_page_bytes(), bytes = (size_t)5 << 30;
    char *place[PLACES];
    uint64_t before = status_kb("VmSize:");
    for (int i = 0; i < PLACES; i++) {
        place[i] = sw_os_place(bytes, page);
        CHECK(place[i] != NULL && all_are(place[i], page, 0));
        memset(place[i], i + 1, page);
        for (int k = 0; k < i; k++)
            CHECK(place[k] + bytes <= place[i] || place[i] + bytes <= place[k]);
    }
    CHECK(status_kb("VmSize:") < before + 2 * PLACES * (page >> 10));
    char *end = place[0] + bytes - page;
    CHECK_EQ(sw_os_map_at(end, page), SW_OS_MAPPED);
    CHECK(all_are(end, page, 0));
    memset(end, 7, page);
    CHECK_EQ(sw_os_map_at(end - page, 2 * page), SW_OS_OCCUPIED);
    CHECK_EQ(sw_os_map_at(end, page), SW_OS_OCCUPIED);
    CHECK(end[0] == 7 && end[page - 1] == 7);
    CHECK_EQ(sw_os_map_at(end - page, page), SW_OS_MAPPED); /* nothing was left there */
    CHECK(sw_os_unmap_at(end - page, 2 * page));
    CHECK_EQ(sw_os_map_at(end, page), SW_OS_MAPPED);
    CHECK(all_are(end, page, 0));
    CHECK(sw_os_unmap_at(end, page));
    for (int i = 0; i < PLACES; i++) CHECK(place[i][0] == i + 1 && sw_os_release(place[i], page));
    CHECK_EQ(status_kb("VmSize:"), before);
}

/* --- growth of the page map ------------------------------------------------------------------- */

/* Takes windows until the next one must be beyond the page map. */
static void use_up_page_map(void) {
    sw_space *space = sw_space_live();
    sw_window window = {.base = 0};
    for (uint64_t end = 0; end != space->view.frames;) {
        CHECK_EQ(sw_space_take_window(space, 64 * MIB, 0, &window), SW_WINDOW_TAKEN);
        end = (window.base - space->view.base) / 4096 + window.frames;
    }
}

enum { OBJECTS = 1000, LENGTH = 1000 };

/* The first object is below the old end of the page map, the others beyond it. */
static void *free_all(void *arg) {
    void **objects = arg;
    sw_heap *heap = objects[OBJECTS];
    for (size_t i = 0; i < OBJECTS; i++) sw_heap_free(heap, objects[i]);
    return NULL;
}

/* The cache of this thread was made while the page map was short. It must find the spans that it
 * gets later, and other threads must be able to free the objects. */
static void caches_follow(void) {
    static void *objects[OBJECTS + 1];
    sw_heap *heap = make_heap(0);
    sw_cache *cache = cache_of(heap);
    CHECK(sw_cache_alloc(cache, LENGTH, 0) != NULL);
    uint64_t frames = cache->frames;
    CHECK_EQ(frames, sw_space_live()->view.frames);
    use_up_page_map();
    void *large = sw_heap_alloc(heap, 64 * MIB - 500 * 1024, 0); /* the rest is for other objects */
    CHECK(large != NULL && sw_heap_alloc(heap, 64 * MIB, 0) != NULL);
    CHECK(sw_space_live()->view.frames > frames);
    CHECK_EQ(cache->frames, frames);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < OBJECTS; i++) { /* 1 MB, more than the rest of the first window */
            objects[i] = sw_cache_alloc(cache, LENGTH, 0);
            CHECK(objects[i] != NULL);
            memset(objects[i], (int)i, LENGTH);
        }
        CHECK_EQ(cache->frames, sw_space_live()->view.frames);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        objects[OBJECTS] = heap;
        in_thread(free_all, objects);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
    sw_heap_free(heap, large);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Adds nodes of 32 KiB to the front of the list. */
static void add_nodes(sw_gc *gc, void **list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        void **node = sw_heap_alloc(sw_gc_heap(gc), 32 << 10, SW_SCAN | SW_ZERO);
        CHECK(node != NULL);
        if (node == NULL) return;
        node[0] = *list;
        sw_gc_write(gc, list, node);
    }
}

static size_t count_nodes(sw_gc *gc, void **list) {
    size_t nodes = 0;
    for (void **node = *list; node != NULL; node = *node, nodes++)
        CHECK_EQ(sw_heap_usable_size(sw_gc_heap(gc), node), 32 << 10);
    return nodes;
}

/* A list of 96 MiB in a first window of 64 MiB and in a second one beyond the page map. It survives
 * a collection at once, and one in steps during which the page map grows. */
static void collector_follows(void) {
    enum { FIRST = 200, ALL = 3072 };
    static void *list, *garbage;
    uint32_t id;
    sw_gc *gc = NULL;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    for (int in_steps = 0; in_steps < 2; in_steps++) {
        CHECK_EQ(sw_gc_create(NULL, &gc), SW_OK);
        CHECK_EQ(sw_gc_add_roots(gc, &list, sizeof list, &id), SW_OK);
        add_nodes(gc, &list, FIRST);
        add_nodes(gc, &garbage, FIRST);
        use_up_page_map();
        uint64_t frames = sw_space_live()->view.frames;
        if (in_steps) CHECK_EQ(sw_gc_start(gc), SW_OK);
        if (in_steps) CHECK_EQ(sw_gc_step(gc, 10), SW_OK);
        add_nodes(gc, &list, ALL - FIRST);
        CHECK(sw_space_live()->view.frames > frames);
        CHECK_EQ(in_steps ? sw_gc_finish(gc, &cycle) : sw_gc_collect(gc, &cycle), SW_OK);
        CHECK_EQ(cycle.freed_objects, FIRST);
        CHECK_EQ(count_nodes(gc, &list), ALL);
        CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
        CHECK_EQ(cycle.freed_objects, 0);
        CHECK_EQ(count_nodes(gc, &list), ALL);
        CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
        list = garbage = NULL;
        CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
        CHECK_EQ(cycle.freed_objects, ALL);
        CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    }
}

/* --- mappings of others ----------------------------------------------------------------------- */

static unsigned char *map_page_at(uintptr_t at) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *p = mmap((void *)at, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK_EQ((uintptr_t)p, at);
    memset(p, 0x5A, 4096);
    return p;
}

static bool is_intact(const unsigned char *page) {
    for (size_t i = 0; i < 4096; i++)
        if (page[i] != 0x5A) return false;
    return true;
}

/* Another library has mapped a page in the middle of the heap's window, and one at the start of the
 * window that the heap would get next. The heap takes other addresses. */
static void around_others(void) {
    enum { PIECES = 100 };
    static unsigned char *pieces[PIECES];
    sw_heap *heap = make_heap(0);
    unsigned char *first = sw_heap_alloc(heap, 100, 0);
    uintptr_t window = (uintptr_t)first & ~((uintptr_t)64 * MIB - 1);
    unsigned char *inside = map_page_at(window + 20 * MIB);
    sw_window next;
    CHECK_EQ(sw_space_take_window(sw_space_live(), 128 * MIB, 0, &next), SW_WINDOW_TAKEN);
    unsigned char *before = map_page_at(next.base);
    sw_space_return_window(sw_space_live(), &next, 0);
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = sw_heap_alloc(heap, 3 * MIB, SW_ZERO);
        CHECK(pieces[i] != NULL);
        if (pieces[i] == NULL) return;
        CHECK(pieces[i] + 3 * MIB <= inside || pieces[i] >= inside + 4096);
        CHECK(pieces[i] + 3 * MIB <= before || pieces[i] >= before + 4096);
        pieces[i][0] = pieces[i][3 * MIB - 1] = (unsigned char)(i + 1);
    }
    CHECK(is_intact(inside) && is_intact(before));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK(!sw_space_has_extras(sw_space_live()));
    for (size_t i = 0; i < PIECES; i++) {
        CHECK(pieces[i][0] == i + 1 && pieces[i][3 * MIB - 1] == i + 1);
        sw_heap_free(heap, pieces[i]);
    }
    heap_end(heap);
    CHECK(is_intact(inside) && is_intact(before));
    heap = make_heap(0);
    for (size_t i = 0; i < PIECES; i++) CHECK(sw_heap_alloc(heap, 3 * MIB, SW_ZERO) != NULL);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    CHECK(is_intact(inside) && is_intact(before));
    CHECK(munmap(inside, 4096) == 0 && munmap(before, 4096) == 0);
}

/* What is created and destroyed again and again leaves no addresses mapped. */
static void no_leak(void) {
    uint64_t before = 0;
    for (int round = 0; round < 60; round++) {
        sw_gc *gc = NULL;
        sw_slabs *slabs = NULL;
        sw_heap *heap = make_heap(0), *dry = make_heap(1);
        CHECK_EQ(sw_gc_create(NULL, &gc), SW_OK);
        CHECK_EQ(sw_slabs_create(NULL, &slabs), SW_OK);
        CHECK(sw_heap_alloc(heap, 5 * MIB, 0) != NULL);
        CHECK(sw_heap_alloc(dry, (size_t)3 << 30, 0) != NULL);
        for (int i = 0; i < 1000; i++) CHECK(sw_slabs_alloc(slabs, 256, 0) != NULL); /* 4 slabs */
        sw_slabs_destroy(slabs);
        CHECK_EQ(sw_gc_destroy(gc), SW_OK);
        CHECK_EQ(sw_heap_destroy(dry), SW_OK);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
        if (round == 20) before = addresses_kb();
    }
    CHECK(addresses_kb() <= before + 1024); /* 39 times the smallest piece, of 64 KiB, are 2496 */
}

static void *nothing(void *arg) { return arg; }

/* 100 MiB more than what is mapped: all kinds of heaps can be made, and a thread and a mapping. */
static void all_under_limit(void) {
    struct rlimit old, limit;
    sw_heap *heap = make_heap(0);
    CHECK_EQ(getrlimit(RLIMIT_AS, &old), 0);
    limit = old;
    limit.rlim_cur = (addresses_kb() << 10) + 100 * MIB;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    few_addresses();
    unsigned char *p = sw_heap_alloc(heap, 60 * MIB, SW_ZERO);
    CHECK(p != NULL);
    if (p != NULL) memset(p, 1, 60 * MIB);
    CHECK(sw_heap_alloc(heap, 60 * MIB, 0) == NULL);
    in_thread(nothing, NULL);
    sw_heap_free(heap, p);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    p = sw_heap_alloc(heap, 90 * MIB, SW_ZERO); /* the 60 MiB must be unmapped for it */
    CHECK(p != NULL);
    if (p != NULL) memset(p, 2, 90 * MIB);
    sw_heap_free(heap, p);
    p = sw_heap_alloc(heap, 60 * MIB, SW_ZERO); /* there again */
    CHECK(p != NULL && p[0] == 0 && p[60 * MIB - 1] == 0);
    sw_heap_free(heap, p);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(setrlimit(RLIMIT_AS, &old), 0);
    CHECK((p = sw_heap_alloc(heap, 200 * MIB, 0)) != NULL);
    sw_heap_free(heap, p);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    places();
    few_addresses();
    no_leak();
    if (!SANITIZED) all_under_limit();
    caches_follow();
    collector_follows();
    around_others();
    return check_result();
}
