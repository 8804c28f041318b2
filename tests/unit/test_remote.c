/* SPDX-License-Identifier: Apache-2.0 */
/* Frees by other caches: when an owner drains them, and that pending ones are neither lost nor
 * unavailable when memory is needed. One thread uses several caches, so that each step is exact: by
 * hand, at random and at the heap's limit, against a list of live objects. */
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "heap/remote.h"
#include "heap/target.h"
#include "heaps.h"
#include "sizeclass/table.h"
#include "spanwise/spanwise.h"

enum { SIZE = 64, SLOTS = 1024, SPANS = 8, WORD = 64 };

/* c16 with spans that do not grow: all are as long as its longest. Made at the first call. */
static const sw_table *long_spans(void) {
    static sw_table *made;
    if (made != NULL) return made;
    const sw_table *c16 = sw_table_c16();
    static sw_class_spec specs[SW_TABLE_CLASSES_MAX];
    for (uint32_t cls = 1; cls < c16->class_count; cls++)
        specs[cls - 1] = (sw_class_spec){c16->classes[cls].size, c16->classes[cls].pages, 0};
    CHECK_EQ(sw_table_create("long", 1u << c16->page_shift, specs, c16->class_count - 1, &made),
             SW_OK);
    return made;
}

typedef struct scene {
    sw_heap *heap;
    sw_cache *owner, *freer;
    void *objects[SPANS][SLOTS]; /* the owner's spans, all full */
} scene;

static scene s;

static const sw_span *span_in(const void *p) { return sw_target_find(s.heap, p).span; }

static void open_scene(uint64_t limit_bytes) {
    s.heap = heap_with((heap_setting){.limit_bytes = limit_bytes, .table = long_spans()});
    CHECK_EQ(sw_cache_open(s.heap, &s.owner), SW_OK);
    CHECK_EQ(sw_cache_open(s.heap, &s.freer), SW_OK);
    for (int i = 0; i < SPANS; i++) {
        for (int k = 0; k < SLOTS; k++) {
            s.objects[i][k] = sw_cache_alloc(s.owner, SIZE, 0);
            CHECK(s.objects[i][k] != NULL);
        }
        CHECK_EQ(span_in(s.objects[i][0])->slots, SLOTS);
        CHECK(span_in(s.objects[i][0]) == span_in(s.objects[i][SLOTS - 1]));
    }
}

static void close_scene(void) {
    CHECK_EQ(sw_heap_verify(s.heap), SW_OK);
    sw_cache_close(s.freer);
    sw_cache_close(s.owner);
    CHECK_EQ(sw_heap_destroy(s.heap), SW_OK);
}

/* Frees count objects of a span from the other cache. */
static void free_others(int span, int first, int count) {
    for (int k = first; k < first + count; k++) sw_cache_free(s.freer, s.objects[span][k]);
    CHECK_EQ(sw_heap_verify(s.heap), SW_OK);
}

/* Allocates count objects; how many of them are in the span. */
static int allocate_in(int span, int count) {
    const sw_span *wanted = span_in(s.objects[span][0]);
    int found = 0;
    for (int i = 0; i < count; i++) {
        void *p = sw_cache_alloc(s.owner, SIZE, 0);
        found += p != NULL && span_in(p) == wanted;
    }
    CHECK_EQ(sw_heap_verify(s.heap), SW_OK);
    return found;
}

static void frees_serve_at_the_limit(void) {
    open_scene(0);
    uint64_t held = sw_heap_held_bytes(s.heap);
    close_scene();
    open_scene(held);
    free_others(2, 100, 3);
    CHECK_EQ(allocate_in(2, 3), 3);
    errno = 0;
    CHECK(sw_cache_alloc(s.owner, SIZE, 0) == NULL);
    CHECK_EQ(errno, ENOMEM);
    free_others(3, 7, 1);
    sw_cache_trim(s.owner);
    CHECK_EQ(allocate_in(3, 1), 1);
    close_scene();
}

/* --- objects of several caches ------------------------------------------------------------------ */

enum { CACHES = 5, OBJECTS_MAX = 40000, SIZES_MAX = 12, SPANS_MAX = 4096 };

typedef struct object {
    uint64_t *at; /* its first and last word hold `tag` */
    uint32_t words;
    uint64_t tag;
} object;

static sw_heap *heap;
static sw_cache *caches[CACHES];
static object objects[OBJECTS_MAX];
static uint32_t live;
static uint64_t tags, seed;
static int refusals;

static void make_heap(heap_setting setting) {
    heap = heap_with(setting);
    for (int i = 0; i < CACHES; i++) caches[i] = cache_of(heap);
}

static void end_heap(void) {
    for (int i = 0; i < CACHES; i++) sw_cache_close(caches[i]);
    heap_end(heap);
}

static sw_span *span_of(const void *p) { return sw_target_find(heap, p).span; }

/* --- one thing at a time ---------------------------------------------------------------------- */

enum { LARGER = 1024, LARGER_SLOTS = 64 };

/* A span that its owner frees the most of, and another cache the little rest, has no live object:
 * at the limit its pages serve another class. */
static void pages_at_the_limit(void) {
    static void *small[SLOTS];
    uint64_t held = 0;
    for (int round = 0; round < 2; round++) {
        make_heap((heap_setting){.limit_bytes = held, .table = long_spans()});
        for (int i = 0; i < SLOTS; i++) small[i] = sw_cache_alloc(caches[0], SIZE, 0);
        CHECK(sw_cache_alloc(caches[0], SIZE, 0) != NULL); /* leaves the first span */
        for (int i = 0; i < LARGER_SLOTS; i++) CHECK(sw_cache_alloc(caches[0], LARGER, 0) != NULL);
        held = sw_heap_held_bytes(heap);
        for (int i = 0; i < SLOTS; i++) sw_cache_free(caches[i < SLOTS * 3 / 4 ? 0 : 1], small[i]);
        sw_cache_trim(caches[1]); /* clears its hazard */
        CHECK(sw_cache_alloc(caches[0], LARGER, 0) != NULL);
        end_heap();
    }
}

/* At the limit frees by others serve each refill before anything else is tried. */
static void refills_at_the_limit(void) {
    enum { SPANS = 4, ROUNDS = 5 };
    static void *firsts[SPANS];
    uint64_t held = 0;
    for (int attempt = 0; attempt < 2; attempt++) {
        make_heap((heap_setting){.limit_bytes = held, .table = long_spans()});
        for (int i = 0; i < SPANS; i++)
            for (int k = 0; k < SLOTS; k++) {
                void *p = sw_cache_alloc(caches[0], SIZE, 0);
                CHECK(p != NULL);
                if (k == 0) firsts[i] = p;
            }
        held = sw_heap_held_bytes(heap);
        for (int round = 0; round < ROUNDS && attempt != 0; round++) {
            for (int i = 0; i < SPANS; i++) sw_cache_free(caches[1], firsts[i]);
            sw_clear_error();
            for (int i = 0; i < SPANS; i++) CHECK(sw_cache_alloc(caches[0], SIZE, 0) != NULL);
            CHECK_EQ(sw_last_error()->status, SW_OK);
        }
        end_heap();
    }
}

/* Whichever thread has a hazard on a span and then owns it frees into it as its owner. */
static void freer_becomes_owner(void) {
    static void *own[SLOTS];
    make_heap((heap_setting){.limit_bytes = 0, .table = long_spans()});
    sw_cache *freer = caches[1];
    void *first = sw_cache_alloc(caches[0], SIZE, 0), *p = sw_cache_alloc(caches[0], SIZE, 0);
    sw_cache_free(freer, p);
    sw_span *span = span_of(first);
    CHECK(freer->hazard == span);
    sw_cache_close(caches[0]);
    caches[0] = cache_of(heap);
    for (int i = 0; i < SLOTS - 1; i++) own[i] = sw_cache_alloc(freer, SIZE, 0);
    CHECK(span_of(own[0]) == span && sw_span_owner(span) == freer);
    CHECK(freer->hazard == NULL);
    CHECK(sw_cache_alloc(freer, SIZE, 0) != NULL); /* the span is full, so its owner is marked */
    for (int i = 0; i < SLOTS - 1; i += 100) {
        uint32_t slot = sw_span_slot_of(span, (uintptr_t)own[i]);
        sw_cache_free(freer, own[i]);
        CHECK_EQ(sw_word_remote(&span->words[slot / 64]), 0);
        CHECK_EQ(sw_word_local(&span->words[slot / 64]) >> (slot % 64) & 1, 1);
    }
    end_heap();
}

/* A free that is announced so late that its span is another cache's, and the cache that it was
 * meant for a new one. */
static void late_announcement(void) {
    static void *own[SLOTS];
    make_heap((heap_setting){.limit_bytes = 0, .table = long_spans()});
    sw_cache *first = caches[0], *next = caches[1];
    for (int i = 0; i < SLOTS; i++) own[i] = sw_cache_alloc(first, SIZE, 0);
    sw_span *span = span_of(own[0]);
    sw_cache_free(first, own[0]);
    CHECK_EQ(sw_span_remote_free(heap->space, span, 5), SW_REMOTE_ANNOUNCE);
    first->cold->holder =
        SW_CACHE_OF_LIBRARY; /* no user's: its record serves the next one at once */
    sw_cache_close(first);
    caches[0] = cache_of(heap);
    CHECK(caches[0] == first && sw_cache_alloc(next, SIZE, 0) == own[0]);
    CHECK(sw_span_owner(span) == next);
    sw_remote_announce(first, span, 0); /* the freer goes on */
    CHECK(sw_cache_alloc(first, SIZE, 0) != NULL);
    CHECK_EQ(first->cold->remote_head, 0);
    sw_cache_trim(next);
    CHECK(sw_cache_alloc(next, SIZE, 0) == own[5]);
    end_heap();
}

/* --- at random -------------------------------------------------------------------------------- */

static void check_object(const object *o) {
    CHECK(o->at[0] == o->tag && o->at[o->words - 1] == o->tag); /* else handed out twice */
}

static void free_one(sw_cache *cache, uint32_t i) {
    check_object(&objects[i]);
    sw_cache_free(cache, objects[i].at);
    objects[i] = objects[--live];
}

/* The span of a hazard lives and is not the cache's own. */
static void check_hazards(void) {
    for (int i = 0; i < CACHES; i++) {
        uint32_t id = caches[i]->cold->hazard_id;
        const sw_span *span = caches[i]->hazard;
        CHECK(id < SW_SPAN_FIRST
                  ? span == NULL
                  : span == sw_space_span(heap->space, id) && sw_span_owner(span) != caches[i] &&
                        span->state != SW_SPAN_UNUSED);
    }
}

static void check_heap(void) {
    if (sw_heap_verify(heap) != SW_OK)
        fprintf(stderr, "seed %d: %s\n", (int)seed, sw_last_error()->message);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, live);
    for (uint32_t i = 0; i < live; i++) check_object(&objects[i]);
    check_hazards();
}

static bool has_hazard(const sw_span *span) {
    for (int i = 0; i < CACHES; i++)
        if (caches[i]->hazard == span) return true;
    return false;
}

/* The cache has no slot of the class, nor any span that could become one. */
static void check_refusal(const sw_cache *cache, uint32_t size) {
    static sw_span_info spans[SPANS_MAX];
    uint32_t cls = sw_size_class(heap->table, size);
    uint64_t bytes = (uint64_t)heap->table->classes[cls].first_pages << heap->table->page_shift;
    size_t count = sw_heap_spans(heap, spans, SPANS_MAX);
    CHECK(count <= SPANS_MAX);
    CHECK_EQ(errno, ENOMEM);
    for (size_t i = 0; i < count; i++) {
        const sw_span_info *s = &spans[i];
        if (s->cache != cache->cold->number && s->cache != 0) continue;
        CHECK(s->cls != cls || s->live == s->slots);
        CHECK(s->live != 0 || s->cache == 0 || s->bytes < bytes ||
              has_hazard(span_of((void *)s->address)));
    }
    refusals++;
}

static void allocate(sw_cache *cache, uint32_t size, uint32_t count) {
    for (uint32_t i = 0; i < count && live < OBJECTS_MAX; i++) {
        uint64_t *p = sw_cache_alloc(cache, size, 0);
        if (p == NULL) {
            check_refusal(cache, size);
            return;
        }
        object *o = &objects[live++];
        *o = (object){.at = p, .words = size / 8, .tag = ++tags};
        p[0] = p[o->words - 1] = o->tag;
    }
}

/* In the order of birth from a random place on, or at random. */
static void free_some(sw_cache *cache, uint64_t *rng, uint32_t count, bool in_order) {
    if (live == 0) return;
    uint32_t from = (uint32_t)(check_random(rng) % live);
    for (uint32_t i = 0; i < count && live > 0; i++)
        free_one(cache, in_order && from < live ? from : (uint32_t)(check_random(rng) % live));
}

static void at_random(int steps) {
    uint64_t rng = seed * 77777;
    uint32_t sizes[SIZES_MAX];
    make_heap(
        (heap_setting){.table = seed % 4 == 0 ? sw_table_go() : NULL,
                       .batch_spans = (uint32_t)(seed % 3),
                       .limit_bytes = seed % 3 == 0 ? 0 : (1 + check_random(&rng) % 3) << 20});
    uint64_t count = 2 + check_random(&rng) % (SIZES_MAX - 1);
    for (uint64_t i = 0; i < count; i++)
        sizes[i] = (uint32_t)(1 + check_random(&rng) % (i % 3 == 0 ? 1024 : 32)) * 8;
    for (int i = 0; i < steps; i++) {
        uint64_t r = check_random(&rng), kind = r % 100;
        sw_cache **cache = &caches[(r >> 8) % CACHES];
        uint32_t many = (uint32_t)((r >> 16) % ((r >> 32) % 4 == 0 ? 600 : 20));
        if (kind < 48) {
            allocate(*cache, sizes[(r >> 40) % count], many);
        } else if (kind < 94) {
            free_some(*cache, &rng, many, seed % 2 == 0);
        } else if (kind < 96) {
            sw_cache_trim(*cache);
        } else if (kind < 98) {
            sw_cache_close(*cache);
            CHECK((*cache)->hazard == NULL && (*cache)->cold->hazard_id == 0); /* records stay */
            CHECK_EQ(sw_cache_open(heap, cache), SW_OK);
        } else {
            check_heap();
        }
    }
    while (live > 0) free_one(caches[check_random(&rng) % CACHES], live - 1);
    check_heap();
    end_heap();
}

int main(void) {
    frees_serve_at_the_limit();
    pages_at_the_limit();
    refills_at_the_limit();
    freer_becomes_owner();
    late_announcement();
    for (seed = 1; seed <= 24; seed++) at_random(1500);
    CHECK(refusals > 100); /* or the limits were none */
    return check_result();
}
