/* SPDX-License-Identifier: Apache-2.0 */
/* Hints: when a free leaves one, and that none reallocates a slot in use, whatever happens between
 * the free and the next allocation: drains, hand-over, exit, fork, a hook or a handler that
 * frees. */
#include "heap/cache.h"
#include "heap/owned.h"
#include "heaps.h"
#include "live_list.h"
#include "spawn.h"

enum {
    SLOT = 512,
    SLOTS = 16,
    PAGE = SLOT * SLOTS,
    OTHER_SLOT = 1024
}; /* table go: a page, so 16 slots, a span */

static sw_heap *heap;
static sw_cache *owner, *other;
static int doubles;
static void *freed; /* by the owner, last; NULL: it may be in use again */

static bool hints_are_on(const sw_cache *cache) { return cache->unhinted_owner == SW_NO_CACHE; }

static void make(sw_placement placement) {
    heap = MADE(sw_heap, o.table = sw_table_go(), o.placement = placement, o.manual_clock = 1);
}

/* Frees one of `count` objects at random and allocates another, `times` times. */
static void replace(void **objects, uint32_t count, int times, unsigned flags) {
    uint64_t rng = 7;
    for (int i = 0; i < times; i++) {
        uint32_t k = (uint32_t)(check_random(&rng) >> 32) % count;
        sw_cache_free(owner, objects[k]);
        objects[k] = sw_cache_alloc_aligned(owner, SLOT, 16, flags);
    }
}

/* By hand: a word that serves 8 allocations is worth its change, which costs 3 of them. Of 800
 * objects in 50 full spans nearly every free meets a full one, and each costs 7 allocations more
 * than it serves: after 12,288 / 7 of them hints are on. Of frees in a row each leaves a hint in
 * vain: 128 leave them on, 800 do not. */
static void switched(void) {
    enum { MANY = 800, FEW = 8, TIMES = 5000 };
    static void *objects[MANY];
    make(SW_PLACE_LIFO);
    owner = cache_of(heap);
    for (int i = 0; i < FEW; i++) objects[i] = sw_cache_alloc(owner, SLOT, 0);
    replace(objects, FEW, TIMES, 0);
    CHECK(!hints_are_on(owner));
    for (int i = FEW; i < MANY; i++) objects[i] = sw_cache_alloc(owner, SLOT, 0);
    CHECK(!hints_are_on(owner));
    CHECK_EQ(owner->cold->scarcity, 0);
    sw_cache_free(owner, objects[0]);
    CHECK_EQ(owner->cold->scarcity, 7);
    objects[0] = sw_cache_alloc(owner, SLOT, 0);
    replace(objects, MANY, TIMES, 0);
    CHECK(hints_are_on(owner));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < SW_DROPPED_MAX / 2; i++) sw_cache_free(owner, objects[i]);
    CHECK(hints_are_on(owner));
    for (int i = SW_DROPPED_MAX / 2; i < MANY; i++) sw_cache_free(owner, objects[i]);
    CHECK(!hints_are_on(owner));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(owner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Neither objects with pointers have hints, nor heaps whose policy chooses the next slot. */
static void never_on(sw_placement placement, unsigned flags) {
    enum { MANY = 800 };
    static void *objects[MANY];
    make(placement);
    owner = cache_of(heap);
    for (int i = 0; i < MANY; i++) objects[i] = sw_cache_alloc(owner, SLOT, flags);
    replace(objects, MANY, 3000, flags);
    CHECK(!hints_are_on(owner));
    for (int i = 0; i < MANY; i++) sw_cache_free(owner, objects[i]);
    sw_cache_close(owner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* --- every order ------------------------------------------------------------------------------ */

static void switch_on(sw_cache *cache) {
    sw_hint_reset(cache);
    cache->unhinted_owner = SW_NO_CACHE;
}

static void keep_slot(void *p) {
    keep(p);
    if (p == freed) freed = NULL;
}

/* The owner's thread ends, and the next one adopts what it left. */
static void hand_over(void) {
    sw_cache_close(owner);
    owner = cache_of(heap);
    switch_on(owner);
    freed = NULL;
}

/* The slot is free since the owner's last free, and a second free of it is reported at the call. */
static void free_again(void) {
    if (freed == NULL) return;
    int before = doubles;
    sw_cache_free(owner, freed);
    CHECK_EQ(doubles, before + 1);
}

enum { STEPS = 8 };

static void step(unsigned which) {
    switch (which) {
    case 0: keep_slot(sw_cache_alloc_aligned(owner, SLOT, 16, 0)); break; /* looks at hints first */
    case 1: keep_slot(sw_cache_alloc(owner, SLOT, 0)); break;             /* at the word first */
    case 2: sw_cache_free(owner, freed = take(0)); break;
    case 3: sw_cache_free(owner, freed = take(live_count - 1)); break;
    case 4: sw_cache_free(other, take(live_count / 2)); break;
    case 5: sw_remote_drain(owner); break;
    case 6: hand_over(); break;
    default: free_again();
    }
}

static void begin(void) {
    make(SW_PLACE_LIFO);
    if (owner == NULL) owner = cache_of(heap);
    other = cache_of(heap);
    live_count = 0;
    freed = NULL;
    switch_on(owner);
    for (int i = 0; i < 2 * SLOTS + 1; i++) keep_slot(sw_cache_alloc(owner, SLOT, 0));
    sw_cache_free(owner, take(1)); /* a fresh span loses its mark */
    keep_slot(sw_cache_alloc(owner, SLOT, 0));
}

/* Everything is freed: no page and no hint is left. */
static void finish(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    while (live_count > 0) sw_cache_free(live_count % 2 != 0 ? owner : other, take(0));
    sw_remote_drain(owner);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_trim(other);
    sw_cache_trim(owner);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.requested_bytes + ledger.roundup_bytes, 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
}

/* The steps of the order with this number: its digits in base STEPS. */
static void run(unsigned order, int length) {
    for (int i = 0; i < length && !check_failed(); i++, order /= STEPS) {
        step(order % STEPS);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
}

static void every_order(void) {
    enum { LENGTH = 5, ORDERS = STEPS * STEPS * STEPS * STEPS * STEPS };
    for (unsigned order = 0; order < ORDERS && !check_failed(); order++) {
        if (!check_mine(order)) continue;
        owner = NULL;
        begin();
        run(order, LENGTH);
        finish();
        sw_cache_close(owner);
        sw_cache_close(other);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
        if (check_failed()) fprintf(stderr, "order %o: %s\n", order, sw_last_error()->message);
    }
}

/* --- hints that are out of date --------------------------------------------------------------- */

enum { LIMIT = 1 << 20 };

static sw_table *table; /* made here, so that no specialised path serves it */

/* Hints of the class of SLOT bytes whose slot is not free in `local`. */
static int stale_hints(void) {
    const sw_cache_bin *bin = &owner->bins[sw_span_class_of(sw_size_class(table, SLOT), true)];
    int count = 0;
    for (const sw_hint *hint = bin->hints; hint < sw_bin_hints_end(bin); hint++)
        count += (sw_word_local(hint->word) >> hint->slot % 64 & 1) == 0;
    return count;
}

/* by_word: paths that look at the word before they look at hints; else those that look at hints. */
static void *alloc_slot(bool by_word) {
    return by_word ? sw_cache_alloc_aligned(owner, SLOT, 16, 0) : sw_cache_alloc(owner, SLOT, 0);
}

static void begin_stale(uint64_t limit_bytes) {
    /* a span of a class may stay when it is empty */
    heap = MADE(sw_heap, o.table = table, o.limit_bytes = limit_bytes, o.manual_clock = 1,
                o.batch_spans = 1);
    owner = cache_of(heap);
    other = cache_of(heap);
    live_count = doubles = 0;
}

/* Allocates more than all free slots give, so that every hint has been looked at, and frees all. */
static void finish_stale(bool by_word) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < 3 * SLOTS; i++) {
        void *p = alloc_slot(by_word);
        if (p != NULL) keep(p);
    }
    CHECK_EQ(stale_hints(), 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    while (live_count > 0) sw_cache_free(owner, take(live_count - 1));
    sw_cache_trim(other);
    sw_cache_trim(owner);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.requested_bytes + ledger.roundup_bytes, 0);
    sw_cache_close(other);
    sw_cache_close(owner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static int hook_frees; /* objects that the hook frees when it is called next */

/* Frees neighbours: the first two leave hints, the third makes their span partial, whose words the
 * search goes on with. While hints are on it takes as many frees as there are hints. */
static int free_neighbours(sw_heap *limited, uint64_t bytes, void *arg) {
    int count = hook_frees;
    (void)limited, (void)bytes, (void)arg;
    hook_frees = 0;
    for (int i = 0; i < count; i++) /* one in 16 stays, so that no span becomes empty */
        sw_cache_free(owner, take(i / (SLOTS - 1)));
    return count > 0;
}

static void by_limit_hook(bool on, bool by_word) {
    begin_stale(LIMIT);
    for (void *p; (p = alloc_slot(by_word)) != NULL;) keep(p);
    CHECK(live_count > 4 * SLOTS);
    if (on) switch_on(owner);
    hook_frees = on ? SW_HINTS_MAX + 3 : 4;
    sw_heap_set_limit_hook(heap, free_neighbours, NULL);
    keep(alloc_slot(by_word));
    CHECK_EQ(hook_frees, 0);
    CHECK(stale_hints() > 0);
    keep(alloc_slot(by_word));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    finish_stale(by_word);
}

static int handler_frees, handler_first; /* objects that the handler frees, from which index on */

static sw_fault_action free_in_handler(const sw_fault *fault, void *arg) {
    (void)arg;
    doubles += fault->code == SW_MISUSE_DOUBLE_FREE;
    for (; handler_frees > 0; handler_frees--) sw_cache_free(owner, take(handler_first));
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* A request of SLOT bytes finds no slot and drains. In what it drains there is an object of another
 * class that its owner and another thread have freed, which the handler hears of; and the handler
 * frees objects of SLOT bytes. The search goes on with the words of their span. */
static void by_fault_handler(bool by_word) {
    void *twice[PAGE / OTHER_SLOT];
    begin_stale(0);
    for (int i = 0; i < PAGE / OTHER_SLOT; i++)
        twice[i] = sw_cache_alloc_aligned(owner, OTHER_SLOT, 16, 0);
    void *next = sw_cache_alloc_aligned(owner, OTHER_SLOT, 16, 0); /* the first span is full */
    for (int i = 0; i < 2 * SLOTS; i++) keep(alloc_slot(by_word));
    sw_cache_free(other, twice[1]);
    sw_cache_free(other, twice[2]); /* another word's worth: the half is announced once */
    sw_cache_free(owner, twice[1]);
    handler_frees = 4;
    handler_first = 2;
    keep(alloc_slot(by_word));
    CHECK_EQ(doubles, 1);
    CHECK_EQ(handler_frees, 0);
    CHECK(stale_hints() > 0);
    keep(alloc_slot(by_word));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < PAGE / OTHER_SLOT; i++)
        if (i != 1 && i != 2) sw_cache_free(owner, twice[i]);
    sw_cache_free(owner, next);
    finish_stale(by_word);
}

int main(void) {
    sw_set_fault_handler(free_in_handler, NULL);
    switched();
    never_on(SW_PLACE_LIFO, SW_SCAN);
    never_on(SW_PLACE_FULLEST, 0);
    every_order();
    static const sw_class_spec specs[] = {{SLOT, 1, 0}, {OTHER_SLOT, 1, 0}};
    table = table_of("stale", PAGE, specs, 2);
    sw_set_fault_handler(free_in_handler, NULL);
    for (int form = 0; form < 4; form++) by_limit_hook(form % 2 != 0, form / 2 != 0);
    by_fault_handler(false);
    by_fault_handler(true);
    sw_table_destroy(table);
    return check_result();
}
