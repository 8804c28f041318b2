/* SPDX-License-Identifier: Apache-2.0 */
/* Hints that are out of date: each way in which a slot's bit leaves `local` while a hint still names the
 * slot, and ways that look like one. Whether a slot is handed out twice is told by a list of what
 * lives, which is this program's own. */
#include <stdbool.h>

#include "check.h"
#include "heap/hint.h"
#include "heap/remote.h"
#include "spanwise/spanwise.h"

enum { PAGE = 8192, SLOT = 512, SLOTS = PAGE / SLOT, OTHER_SLOT = 1024, LIVE_MAX = 4096 };
enum { LIMIT = 1 << 20 };

static sw_table *table; /* made here, so that no specialised path serves it */
static sw_heap *heap;
static sw_cache *cache, *second;
static void *live[LIVE_MAX]; /* in the order of their allocation */
static int live_count, doubles;

static bool is_live(const void *p) {
    for (int i = 0; i < live_count; i++)
        if (live[i] == p) return true;
    return false;
}

static void keep(void *p) {
    CHECK(p != NULL && !is_live(p) && live_count < LIVE_MAX);
    live[live_count++] = p;
}

static void *take(int index) {
    void *p = live[index];
    live_count--;
    memmove(&live[index], &live[index + 1], (size_t)(live_count - index) * sizeof *live);
    return p;
}

static bool hints_are_on(void) { return cache->unhinted_owner == SW_NO_CACHE; }

static void switch_on(void) {
    sw_hint_reset(cache);
    cache->unhinted_owner = SW_NO_CACHE;
}

/* Hints of the class of SLOT bytes whose slot is not free in `local`. */
static int stale_hints(void) {
    const sw_cache_bin *bin = &cache->bins[sw_span_class_of(sw_size_class(table, SLOT), true)];
    int count = 0;
    for (const sw_hint *hint = bin->hints; hint < sw_bin_hints_end(bin); hint++)
        count += (sw_word_local(hint->word) >> hint->slot % 64 & 1) == 0;
    return count;
}

/* by_word: paths that look at the word before they look at hints; else those that look at hints. */
static void *alloc(bool by_word) {
    return by_word ? sw_cache_alloc_aligned(cache, SLOT, 16, 0) : sw_cache_alloc(cache, SLOT, 0);
}

static void begin(uint64_t limit_bytes) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    options.limit_bytes = limit_bytes;
    options.manual_clock = 1;
    options.batch_spans = 1; /* a span of a class may stay when it is empty */
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &second), SW_OK);
    live_count = doubles = 0;
}

/* Allocates more than all free slots give, so that every hint has been looked at, and frees all. */
static void finish(bool by_word) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < 3 * SLOTS; i++) {
        void *p = alloc(by_word);
        if (p != NULL) keep(p);
    }
    CHECK_EQ(stale_hints(), 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    while (live_count > 0) sw_cache_free(cache, take(live_count - 1));
    sw_cache_trim(second);
    sw_cache_trim(cache);
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.requested_bytes + ledger.roundup_bytes, 0);
    sw_cache_close(second);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* --- the hook of the limit ---------------------------------------------------------------------- */

static int hook_frees; /* objects that the hook frees when it is called next */

/* Frees neighbours: the first two leave hints, the third makes their span partial, whose words the
 * search goes on with. While hints are on it takes as many frees as there are hints. */
static int free_neighbours(sw_heap *limited, uint64_t bytes, void *arg) {
    int count = hook_frees;
    (void)limited, (void)bytes, (void)arg;
    hook_frees = 0;
    for (int i = 0; i < count; i++) /* one in 16 stays, so that no span becomes empty */
        sw_cache_free(cache, take(i / (SLOTS - 1)));
    return count > 0;
}

static void by_limit_hook(bool on, bool by_word) {
    begin(LIMIT);
    for (void *p; (p = alloc(by_word)) != NULL;) keep(p);
    CHECK(live_count > 4 * SLOTS);
    if (on) switch_on();
    hook_frees = on ? SW_HINTS_MAX + 3 : 4;
    sw_heap_set_limit_hook(heap, free_neighbours, NULL);
    keep(alloc(by_word));
    CHECK_EQ(hook_frees, 0);
    CHECK(stale_hints() > 0);
    keep(alloc(by_word));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    finish(by_word);
}

/* --- the fault handler ---------------------------------------------------------------------------- */

static int handler_frees, handler_first; /* objects that the handler frees, from which index on */

static sw_fault_action free_in_handler(const sw_fault *fault, void *arg) {
    (void)arg;
    doubles += fault->code == SW_MISUSE_DOUBLE_FREE;
    for (; handler_frees > 0; handler_frees--) sw_cache_free(cache, take(handler_first));
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* A request of SLOT bytes finds no slot and drains. In what it drains there is an object of another
 * class that its owner and another thread have freed, which the handler is told; and the handler
 * frees objects of SLOT bytes. The search goes on with the words of their span. */
static void by_fault_handler(bool by_word) {
    void *twice[PAGE / OTHER_SLOT];
    begin(0);
    for (int i = 0; i < PAGE / OTHER_SLOT; i++)
        twice[i] = sw_cache_alloc_aligned(cache, OTHER_SLOT, 16, 0);
    void *next = sw_cache_alloc_aligned(cache, OTHER_SLOT, 16, 0); /* the first span is full */
    for (int i = 0; i < 2 * SLOTS; i++) keep(alloc(by_word));
    sw_cache_free(second, twice[1]);
    sw_cache_free(second, twice[2]); /* another word's worth: the half is announced once */
    sw_cache_free(cache, twice[1]);
    handler_frees = 4;
    handler_first = 2;
    keep(alloc(by_word));
    CHECK_EQ(doubles, 1);
    CHECK_EQ(handler_frees, 0);
    CHECK(stale_hints() > 0);
    keep(alloc(by_word));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < PAGE / OTHER_SLOT; i++)
        if (i != 1 && i != 2) sw_cache_free(cache, twice[i]);
    sw_cache_free(cache, next);
    finish(by_word);
}

/* --- ways that make none -------------------------------------------------------------------------- */

/* Objects in full spans, and hints of some of them. */
static void with_hints(bool on, bool by_word) {
    begin(0);
    for (int i = 0; i < 4 * SLOTS; i++) keep(alloc(by_word));
    if (on) switch_on();
    for (int i = 0; i < 6; i++) sw_cache_free(cache, take(i * (SLOTS / 2 - 1)));
}

/* Another thread's frees are drained into words that hints name. */
static void by_drain(bool on, bool by_word) {
    with_hints(on, by_word);
    for (int i = 0; i < 4; i++) sw_cache_free(second, take(3 * i));
    sw_remote_drain(cache);
    CHECK_EQ(stale_hints(), 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    finish(by_word);
}

/* A slot that a hint names is freed by another thread as well, at the same time: neither the hint nor
 * the drain hands it out twice. */
static void by_race(bool on, bool by_word) {
    with_hints(on, by_word);
    void *p = take(live_count / 2);
    sw_cache_free(second, p);
    sw_cache_free(cache, p);
    keep(alloc(by_word));
    sw_remote_drain(cache);
    CHECK_EQ(doubles, 1);
    finish(by_word);
}

/* realloc: within the slot, and by a move, which frees. */
static void by_realloc(bool on, bool by_word) {
    with_hints(on, by_word);
    for (int i = 0; i < 4; i++) {
        void *p = take(5);
        keep(sw_cache_realloc(cache, p, SLOT - 8, 0));
        CHECK(live[live_count - 1] == p);
        p = take(5);
        void *moved = sw_cache_realloc(cache, p, OTHER_SLOT, 0);
        CHECK(moved != NULL && moved != p);
        keep(sw_cache_realloc(cache, moved, SLOT, 0));
    }
    CHECK_EQ(stale_hints(), 0);
    finish(by_word);
}

/* The span that hints name becomes empty, and its pages serve another class. */
static void by_release(bool on, bool by_word) {
    void *larger[SLOTS];
    with_hints(on, by_word);
    while (live_count > 0) sw_cache_free(cache, take(0));
    keep(alloc(by_word));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_free(cache, take(0));
    for (int i = 0; i < SLOTS; i++) larger[i] = sw_cache_alloc_aligned(cache, OTHER_SLOT, 16, 0);
    CHECK_EQ(stale_hints(), 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < SLOTS; i++) sw_cache_free(cache, larger[i]);
    finish(by_word);
}

/* A trim, and a cache that closes and hands its spans over. */
static void by_hand_over(bool on, bool by_word) {
    with_hints(on, by_word);
    sw_cache_trim(cache);
    CHECK_EQ(stale_hints(), 0);
    sw_cache_close(cache);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    CHECK(!hints_are_on());
    for (int i = 0; i < 4; i++) sw_cache_free(cache, take(2 * i));
    finish(by_word);
}

static void each_way(bool on, bool by_word) {
    by_limit_hook(on, by_word);
    by_drain(on, by_word);
    by_race(on, by_word);
    by_realloc(on, by_word);
    by_release(on, by_word);
    by_hand_over(on, by_word);
}

int main(void) {
    static const sw_class_spec specs[] = {{SLOT, 1, 0}, {OTHER_SLOT, 1, 0}};
    CHECK_EQ(sw_table_create("stale", PAGE, specs, 2, &table), SW_OK);
    sw_set_fault_handler(free_in_handler, NULL);
    for (int form = 0; form < 4; form++) each_way(form % 2 != 0, form / 2 != 0);
    by_fault_handler(false);
    by_fault_handler(true);
    sw_table_destroy(table);
    return check_result();
}
