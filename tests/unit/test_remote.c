/* SPDX-License-Identifier: Apache-2.0 */
/* Frees by other caches: at random and at the heap's limit, against a list of live objects, pending
 * ones are neither lost nor unavailable when memory is needed; and at the worst moments, when the
 * owner is closing, has closed, or has freed the same slot itself. One thread executes the steps of
 * several caches, so that each order is certain to occur. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "heap/cache.h"
#include "heap/owned.h"
#include "heap/target.h"
#include "heaps.h"
#include "sizeclass/table.h"

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

static void begin(sw_heap *made) {
    heap = made;
    for (int i = 0; i < CACHES; i++) caches[i] = cache_of(heap);
}

static void end_heap(void) {
    for (int i = 0; i < CACHES; i++) sw_cache_close(caches[i]);
    heap_end(heap);
}

static sw_span *span_of(const void *p) { return sw_target_find(heap, p).span; }

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

enum { SIZE = 64, SMALL_SLOTS = 1024, LARGER = 1024, LARGER_SLOTS = 64 };

/* A span that its owner frees the most of, and another cache the little rest, has no live object:
 * at the limit its pages serve another class. */
static void pages_at_the_limit(void) {
    static void *small[SMALL_SLOTS];
    uint64_t held = 0;
    for (int round = 0; round < 2; round++) {
        begin(MADE(sw_heap, o.limit_bytes = held, o.table = long_spans()));
        for (int i = 0; i < SMALL_SLOTS; i++) small[i] = sw_cache_alloc(caches[0], SIZE, 0);
        CHECK(sw_cache_alloc(caches[0], SIZE, 0) != NULL); /* leaves the first span */
        for (int i = 0; i < LARGER_SLOTS; i++) CHECK(sw_cache_alloc(caches[0], LARGER, 0) != NULL);
        held = sw_heap_held_bytes(heap);
        for (int i = 0; i < SMALL_SLOTS; i++)
            sw_cache_free(caches[i < SMALL_SLOTS * 3 / 4 ? 0 : 1], small[i]);
        sw_cache_trim(caches[1]); /* clears its hazard */
        CHECK(sw_cache_alloc(caches[0], LARGER, 0) != NULL);
        end_heap();
    }
}

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
    CHECK_EQ(ledger_of(heap).live_objects, live);
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
    begin(MADE(sw_heap, o.table = seed % 4 == 0 ? sw_table_go() : o.table,
               o.batch_spans = (uint32_t)(seed % 3),
               o.limit_bytes = seed % 3 == 0 ? 0 : (1 + check_random(&rng) % 3) << 20));
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

enum { PAGE = 8192, SLOT = 512, SLOTS = 16 }; /* one page and one word a span */

static sw_cache *owner;
static sw_table *table;
static int doubles;
static const void *doubled;

static sw_fault_action note(const sw_fault *fault, void *arg) {
    (void)arg;
    doubles += fault->code == SW_MISUSE_DOUBLE_FREE;
    doubled = fault->ptr;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* of: a built-in table, whose sizes have paths of their own, or NULL for one that has none. */
static void make(const sw_table *of) {
    static const sw_class_spec specs[] = {{SLOT, 1, 0}};
    table = NULL;
    if (of == NULL) table = table_of("sixteen", PAGE, specs, 1);
    heap = MADE(sw_heap, o.table = of == NULL ? table : of, o.manual_clock = 1);
    owner = cache_of(heap);
}

static void end(void) {
    heap_end(heap);
    sw_table_destroy(table);
}

static void fill(void **objects) {
    for (int i = 0; i < SLOTS; i++) objects[i] = sw_cache_alloc(owner, SLOT, 0);
    CHECK((char *)objects[SLOTS - 1] - (char *)objects[0] == (SLOTS - 1) * SLOT);
}

/* The first step of a free by another thread: the slot's bit. What comes next is the push. */
static sw_span *set_remote(const void *p) {
    sw_target target = sw_target_find(heap, p);
    CHECK_EQ(target.misuse, SW_MISUSE_NONE);
    CHECK_EQ(sw_span_remote_free(heap->space, target.span, target.slot), SW_REMOTE_ANNOUNCE);
    return target.span;
}

static uint64_t count_spans(void) { return ledger_of(heap).spans; }

static void *close_owner(void *arg) {
    sw_cache_close(owner);
    return arg;
}

static void wait_for_waiter(const sw_os_lock *lock) {
    enum { CONTENDED = 2 };
    while (__atomic_load_n(&lock->state, __ATOMIC_ACQUIRE) != CONTENDED) sched_yield();
}

/* The owner has looked at its stack, and waits for the lock under which it says that it is closed.
 * The push that comes now sees an open cache and leaves the span to it. It was the last live
 * object: no one but the owner's last look gives the pages back. */
static void pushed_while_closing(void) {
    void *objects[SLOTS];
    pthread_t closer;
    make(NULL);
    fill(objects);
    CHECK(sw_cache_alloc(owner, SLOT, 0) != NULL); /* leaves the span, which is full */
    for (int i = 1; i < SLOTS; i++) sw_cache_free(owner, objects[i]);
    sw_span *span = set_remote(objects[0]);
    CHECK_EQ(count_spans(), 2);
    sw_os_lock_acquire(&heap->lock);
    CHECK_EQ(pthread_create(&closer, NULL, close_owner, NULL), 0);
    wait_for_waiter(&heap->lock);
    sw_remote_announce(owner, span, 0);
    sw_os_lock_release(&heap->lock);
    CHECK_EQ(pthread_join(closer, NULL), 0);
    CHECK_EQ(count_spans(), 1); /* the one with the object that still lives */
    end();
}

/* The span, fresh when its object was freed, belongs to no cache. A cache that takes it over gets
 * zeroes out of it where it asks for them. */
static void pushed_after_closing(void) {
    make(NULL);
    unsigned char *p = sw_cache_alloc(owner, SLOT, 0);
    CHECK(sw_cache_alloc(owner, SLOT, 0) == p + SLOT);
    memset(p, 0xAA, SLOT);
    sw_span *span = set_remote(p);
    CHECK_EQ(span->needzero, 0);
    sw_cache_close(owner);
    sw_remote_announce(owner, span, 0);
    CHECK_EQ(span->needzero, 1);
    sw_cache *next = cache_of(heap);
    bool again = false;
    for (int i = 0; i < SLOTS - 1; i++) {
        unsigned char *q = sw_cache_alloc(next, SLOT, SW_ZERO);
        CHECK(sw_target_find(heap, q).span == span);
        again = again || q == p;
        for (int k = 0; k < SLOT; k++) CHECK_EQ(q[k], 0);
    }
    CHECK(again);
    sw_cache_close(next);
    end();
}

/* Announces the span, drains it, and expects that the object is handed out once and that the second
 * free is reported once. */
static void ends_once(sw_span *span, const void *object) {
    enum { LATER = 4 * SLOTS };
    int handed_out = 0;
    sw_remote_announce(owner, span, 0);
    for (int i = 0; i < LATER; i++) handed_out += sw_cache_alloc(owner, SLOT, 0) == object;
    sw_remote_drain(owner);
    for (int i = 0; i < LATER; i++) handed_out += sw_cache_alloc(owner, SLOT, 0) == object;
    CHECK_EQ(handed_out, 1);
    CHECK_EQ(doubles, 1);
    CHECK(doubled == object);
    sw_cache_close(owner);
    end();
}

/* The owner's free came first by a moment, so that neither saw the other's bit: the slot has a hint
 * and a bit by another thread. */
static void hinted_and_remote(const sw_table *of) {
    void *objects[SLOTS];
    make(of);
    doubles = 0;
    fill(objects);
    CHECK(sw_cache_alloc(owner, SLOT, 0) != NULL); /* leaves the span, which is full */
    sw_target target = sw_target_find(heap, objects[3]);
    sw_cache_free(owner, objects[3]);
    CHECK(sw_hint_names(owner, target.span, target.slot));
    (void)__atomic_fetch_or(&target.span->words->remote, 1ull << target.slot, __ATOMIC_ACQ_REL);
    CHECK(sw_span_announce(heap->space, target.span, target.slot));
    CHECK(sw_cache_alloc(owner, SLOT, 0) != objects[3]); /* not before it is drained */
    ends_once(target.span, objects[3]);
}

int main(void) {
    pages_at_the_limit();
    for (seed = 1; seed <= 24; seed++) at_random(1500);
    CHECK(refusals > 100); /* or the limits were none */
    sw_set_fault_handler(note, NULL);
    if (sw_os_lock_has_barrier)
        pushed_while_closing(); /* else no lock says that it is waited for */
    pushed_after_closing();
    hinted_and_remote(NULL);
    hinted_and_remote(sw_table_go());
    return check_result();
}
