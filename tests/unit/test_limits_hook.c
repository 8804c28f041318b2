/* SPDX-License-Identifier: Apache-2.0 */
/* The hook of a heap's limit, huge pages, and the default heap with options of one's own. */
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

enum { LIMIT = 8 << 20, PIECE = 1 << 20, PIECES = 16 };

typedef struct store {
    void *pieces[PIECES];
    int calls, freed;
    uint64_t asked;
} store;

/* Gives up the oldest piece that is left. */
static int give_up(sw_heap *heap, uint64_t bytes, void *arg) {
    store *s = arg;
    s->calls++;
    s->asked = bytes;
    for (int i = 0; i < PIECES; i++) {
        if (s->pieces[i] == NULL) continue;
        sw_heap_free(heap, s->pieces[i]);
        s->pieces[i] = NULL;
        s->freed++;
        return 1;
    }
    return 0;
}

static sw_heap *make_heap(bool dry) {
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_heap_options_init(&options);
    options.limit_bytes = LIMIT;
    options.dry = dry;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    return heap;
}

static void hook_makes_room(bool dry) {
    sw_heap *heap = make_heap(dry);
    store s = {.calls = 0};
    sw_heap_set_limit_hook(heap, give_up, &s);
    for (int i = 0; i < PIECES; i++) {
        s.pieces[i] = sw_heap_alloc(heap, PIECE, 0);
        CHECK(s.pieces[i] != NULL);
        CHECK(sw_heap_held_bytes(heap) <= LIMIT);
    }
    CHECK(s.calls > 0 && s.calls == s.freed);
    CHECK_EQ(s.asked, PIECE);
    int before = s.calls;
    void *p = sw_heap_alloc(heap, 2 * PIECE, 0); /* two holes side by side are needed, or more */
    CHECK(p != NULL && s.calls > before);
    sw_heap_free(heap, p);
    /* More than the limit: the hook gives up all that it has, and then the answer is no. */
    errno = 0;
    CHECK(sw_heap_alloc(heap, 2 * LIMIT, 0) == NULL && errno == ENOMEM);
    CHECK_EQ(s.freed, PIECES);
    CHECK_EQ(s.calls, PIECES + 1);
    sw_heap_set_limit_hook(heap, NULL, NULL);
    CHECK(sw_heap_alloc(heap, 2 * LIMIT, 0) == NULL);
    CHECK_EQ(s.calls, PIECES + 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Small objects of one class: the hook frees objects into the cache that is being refilled. */
enum { SMALL = 1000, SMALL_COUNT = 3 * LIMIT / SMALL };

typedef struct chain {
    void *objects[SMALL_COUNT];
    int first, last; /* live: [first, last) */
} chain;

static int give_up_some(sw_heap *heap, uint64_t bytes, void *arg) {
    chain *c = arg;
    (void)bytes;
    int count = c->last - c->first < 100 ? c->last - c->first : 100;
    for (int i = 0; i < count; i++) sw_heap_free(heap, c->objects[c->first++]);
    return count > 0;
}

static void hook_serves_small_objects(bool dry) {
    static chain c;
    sw_heap *heap = make_heap(dry);
    c.first = c.last = 0;
    sw_heap_set_limit_hook(heap, give_up_some, &c);
    while (c.last < SMALL_COUNT) {
        void *p = sw_heap_alloc(heap, SMALL, 0);
        CHECK(p != NULL);
        c.objects[c.last++] = p;
    }
    CHECK(c.first > SMALL_COUNT / 2 && sw_heap_held_bytes(heap) <= LIMIT);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* A hook that says "again" and frees nothing: the request fails all the same. */
static int promise(sw_heap *heap, uint64_t bytes, void *arg) {
    (void)heap;
    (void)bytes;
    ++*(int *)arg;
    return 1;
}

static void empty_promises_end(bool dry) {
    const size_t sizes[] = {2 * LIMIT, SMALL};
    sw_heap *heap = make_heap(dry);
    while (sw_heap_alloc(heap, SMALL, 0) != NULL) {
    }
    for (int i = 0; i < 2; i++) {
        int calls = 0;
        sw_heap_set_limit_hook(heap, promise, &calls);
        errno = 0;
        CHECK(sw_heap_alloc(heap, sizes[i], 0) == NULL && errno == ENOMEM);
        CHECK_EQ(calls, 65536);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void huge_pages_are_only_advice(bool dry) {
    sw_heap_options options;
    sw_heap *heap[2];
    for (int huge = 0; huge < 2; huge++) {
        sw_heap_options_init(&options);
        options.dry = dry;
        options.huge_pages = huge != 0;
        CHECK_EQ(sw_heap_create(&options, &heap[huge]), SW_OK);
        unsigned char *p = sw_heap_alloc(heap[huge], 20 << 20, SW_ZERO);
        CHECK(p != NULL);
        if (!dry) CHECK(p[0] == 0 && p[(20 << 20) - 1] == 0);
        sw_heap_free(heap[huge], p);
        CHECK_EQ(sw_heap_verify(heap[huge]), SW_OK);
    }
    sw_ledger plain, advised;
    CHECK_EQ(sw_heap_ledger(heap[0], &plain, NULL, 0), SW_OK);
    CHECK_EQ(sw_heap_ledger(heap[1], &advised, NULL, 0), SW_OK);
    CHECK_EQ(plain.free_page_bytes, advised.free_page_bytes);
    for (int huge = 0; huge < 2; huge++) CHECK_EQ(sw_heap_destroy(heap[huge]), SW_OK);
}

static void default_heap_with_options(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    CHECK_EQ(sw_heap_default_init(&options), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "go") != NULL);
    sw_heap_options_init(&options);
    options.dry = 1;
    CHECK_EQ(sw_heap_default_init(&options), SW_INVALID);
    sw_heap_options_init(&options);
    options.tracked = 1;
    options.limit_bytes = LIMIT;
    CHECK_EQ(sw_heap_default_init(&options), SW_OK);
    CHECK_EQ(sw_heap_default_init(&options), SW_STATE);
    CHECK_EQ(sw_heap_id(sw_heap_default()), 1);
    /* Tracked: every call keeps the requested size, whatever road it takes. */
    void *all[] = {sw_malloc(33), sw_calloc(11, 9), sw_realloc(NULL, 700), sw_aligned_alloc(64, 5),
                   sw_malloc(100000)};
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(sw_heap_default(), &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.tracked, 1);
    CHECK_EQ(ledger.requested_bytes, 33 + 99 + 700 + 5 + 100000);
    CHECK(sw_malloc(LIMIT) == NULL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sw_free(all[i]);
    CHECK_EQ(sw_heap_verify(sw_heap_default()), SW_OK);
}

int main(void) {
    default_heap_with_options();
    for (int dry = 0; dry < 2; dry++) {
        hook_makes_room(dry != 0);
        hook_serves_small_objects(dry != 0);
        empty_promises_end(dry != 0);
        huge_pages_are_only_advice(dry != 0);
    }
    return check_result();
}
