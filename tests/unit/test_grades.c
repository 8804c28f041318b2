/* SPDX-License-Identifier: Apache-2.0 */
/* Each grade of checks finds its damage, and lower grades do not: one planted damage per struct for
 * the local checks, one for those of the whole heap. A preset without the checks of its grade fails
 * here. The grade is that of the build; the test presets say which it must be (SPANWISE_GRADE).
 * Other structs: test_memory_grades.c. */
#include "base/assert.h"
#include "dying_words.h"
#include "heap/hint.h"
#include "heap/placement.h"
#include "heap/refill.h"
#include "heap/registry.h"
#include "heap/thread.h"
#include "heaps.h"
#include "inspect/verify_points.h"
#include "simulator/runner.h"
#include "spanwise/spanwise.h"

/* A heap with this thread's cache, which a forked child keeps as it is. */
static sw_heap *heap;
static sw_cache *cache;

static void make_heap(void) {
    heap = heap_with((heap_setting){.manual_clock = true});
    cache = sw_thread_cache(heap);
    for (size_t size = 16; size <= 4096; size *= 2)
        for (int i = 0; i < 100; i++)
            if (sw_cache_alloc(cache, size, 0) == NULL) abort();
}

/* --- slow paths that a damage is led to ------------------------------------------------------- */

static uint32_t class_of(size_t size) {
    return sw_span_class_of(sw_size_class(heap->table, size), true);
}

static sw_span *current_span(void) { return cache->bins[class_of(64)].span; }

/* Fresh spans of a class until the pages, the records and the metadata of several were taken. */
static void take_spans(void) {
    for (int i = 0; i < 1000; i++) (void)sw_cache_alloc(cache, 96, 0);
}

/* Pages come and go. */
static void turn_pages(void) {
    sw_cache_free(cache, sw_cache_alloc(cache, 3 << 20, 0));
    (void)sw_heap_trim(heap);
}

/* --- local damage: grade 2 -------------------------------------------------------------------- */

static void damage_meta(void) {
    heap->meta.next_chunk_bytes += 1;
    take_spans();
}

static void damage_runs(void) {
    heap->pages.runs.low = heap->pages.runs.leaves + 1;
    turn_pages();
}

static void damage_pages(void) {
    heap->pages.free_held_pages = heap->pages.held_pages + 1;
    turn_pages();
}

static void damage_window(void) {
    sw_window *window = &heap->pages.windows[0];
    window->map = NULL;
    (void)sw_pages_grow(&heap->pages, window->frontier + 1, 1);
}

static void damage_space(void) {
    sw_live_space.extra_count = SW_SPACE_EXTRAS + 1;
    (void)sw_space_take_spans(&sw_live_space);
}

static void damage_span(void) {
    current_span()->cursor = 200;
    uintptr_t doubled;
    (void)sw_span_find_word(current_span(), &doubled);
}

static void damage_cold(void) {
    sw_span_list list = {0};
    sw_span_cold *cold = sw_space_cold(heap->space, current_span());
    cold->next = cold->prev = 77;
    sw_span_list_push(&list, heap->space, current_span());
}

static void damage_list(void) {
    sw_span_list list = {.count = 1};
    sw_span_list_push(&list, heap->space, current_span());
}

/* Of a heap of its own, whose policy has histories: the first object's span is full when it is
 * freed, and chosen when the current one is full. */
static void damage_history(void) {
    sw_heap *other = heap_with((heap_setting){.placement = SW_PLACE_LASTING});
    void *first = sw_heap_alloc(other, 800, 0);
    for (int i = 0; i < 1000; i++) (void)sw_heap_alloc(other, 800, 0);
    uint32_t span_class = sw_span_class_of(sw_size_class(other->table, 800), true);
    other->histories[span_class].gone[3] = SW_HISTORY_MAX;
    sw_heap_free(other, first);
    for (int i = 0; i < 1000; i++) (void)sw_heap_alloc(other, 800, 0);
}

static void damage_bin(void) {
    cache->bins[class_of(64)].hinted = cache->bins[class_of(64)].hinted_max + sizeof(sw_hint);
    (void)sw_refill_alloc(cache, 64, 0, class_of(64));
}

static void damage_cache(void) {
    cache->cold->hazard_id = 5;
    take_spans();
}

static void damage_hints(void) {
    cache->unhinted_owner = NULL;
    take_spans();
}

static void damage_scarcity(void) {
    cache->cold->scarcity = SW_SCARCITY_MAX;
    take_spans();
}

static void damage_idle_credit(void) {
    cache->cold->idle_credit = 64 * 64 + 1;
    take_spans();
}

static void damage_cache_cold(void) {
    cache->cold->tiny_used = 17;
    take_spans();
}

static void damage_heap(void) {
    heap->cache_numbers = 0;
    take_spans();
}

static void damage_thread(void) {
    sw_registry_own()->used = SW_HEAPS_MAX + 1;
    sw_registry_leave(sw_registry_own());
}

/* Below grade 2 it waits for ever, until the alarm; above, the alarm must not come before the
 * words. */
static void damage_lock(void) {
    sw_os_lock lock = {.state = 7};
    alarm(SW_CHECK < 2 ? 1 : 200);
    sw_os_lock_acquire(&lock);
}

static sw_table *one_class(void) {
    static const sw_class_spec specs[] = {{64, 1, 0}};
    return table_of("one", 8192, specs, 1);
}

static void damage_table(void) {
    sw_table *table = one_class();
    table->max_size += 8;
    (void)heap_with((heap_setting){.table = table});
}

static void damage_class(void) {
    sw_table *table = one_class();
    ((sw_class *)(uintptr_t)table->classes)[1].slots = 127;
    (void)heap_with((heap_setting){.table = table});
}

static void damage_runner(void) {
    sw_runner *runner;
    if (sw_runner_create(heap, &runner) != SW_OK) abort();
    runner->sample_count = SW_RUNNER_SAMPLES_MAX + 1;
    (void)sw_runner_run(runner, NULL, 0, 0, NULL, NULL);
}

/* --- damage that no local check can see: grade 3 ---------------------------------------------- */

/* Local checks run on this way too; none of them reads what these cases have damaged. */
static void refill(void) {
    sw_verify_every(1);
    const sw_span *span = current_span();
    while (current_span() == span) (void)sw_cache_alloc(cache, 64, 0);
}

static sw_span *full_span(void) {
    return sw_space_span(heap->space, cache->cold->full[class_of(4096)].head);
}

static void lost_meta(void) {
    heap->meta.held_bytes += 64;
    refill();
}

static void lost_slack(void) {
    heap = heap_with((heap_setting){.tracked = true});
    cache = sw_thread_cache(heap);
    (void)sw_cache_alloc(cache, 64, 0);
    heap->instrument->held_bytes += 64;
    refill();
}

static void lost_runs(void) {
    sw_runs *runs = &heap->pages.runs;
    runs->tree[2 * runs->leaves - 1].max = 7;
    refill();
}

static void lost_pages(void) {
    heap->pages.dirty[heap->pages.capacity / 64 - 1] = 1;
    refill();
}

static void lost_window(void) {
    sw_window *window = &heap->pages.windows[0];
    uint64_t frames = (uint64_t)window->frontier << (heap->pages.page_shift - SW_FRAME_SHIFT);
    window->map[frames - 1] = 5;
    refill();
}

/* Of a cache that is idle: one that takes a span renews its copy first. A heap of two caches is
 * checked only where the process is known to have one thread. */
static void lost_view(void) {
    sw_cache *other = NULL;
    CHECK_EQ(sw_cache_open(heap, &other), SW_OK);
    other->frames = UINT64_MAX; /* the space may grow meanwhile */
    refill();
}

static void lost_span(void) {
    full_span()->magic ^= 1;
    refill();
}

static void lost_cold(void) {
    sw_space_cold(heap->space, full_span())->remote_words[1] = 1;
    refill();
}

static void lost_list(void) {
    cache->cold->full[class_of(4096)].count++;
    refill();
}

static void lost_bin(void) {
    cache->bins[class_of(4096)].bytes ^= 16;
    refill();
}

static void lost_cache(void) {
    cache->plain_end--;
    refill();
}

static void lost_cache_cold(void) {
    cache->cold->idle_spans[class_of(4096)] = 1;
    refill();
}

static void lost_heap(void) {
    heap->free_records = 0;
    refill();
}

/* --- what ships: grade 1 ---------------------------------------------------------------------- */

/* First fit finds no free page though there are some. */
static void damage_tree(void) { (void)sw_pages_grow(&heap->pages, 1, 1); }

/* --- the table -------------------------------------------------------------------------------- */

static const struct {
    int grade; /* the lowest that finds it */
    const char *rule;
    void (*fn)(void);
} cases[] = {
    {1, "have < n", damage_tree},
    {2, "sw_is_pow2(meta->next_chunk_bytes)", damage_meta},
    {2, "runs->low <= runs->leaves", damage_runs},
    {2, "pages->free_held_pages <= pages->held_pages", damage_pages},
    {2, "window->map != NULL", damage_window},
    {2, "space->extra_count <= SW_SPACE_EXTRAS", damage_space},
    {2, "span->cursor < sw_span_word_count(span)", damage_span},
    {2, "cold->next == 0 || cold->next != cold->prev", damage_cold},
    {2, "(list->head == 0) == (list->count == 0)", damage_list},
    {2, "bin->hinted <= bin->hinted_max", damage_bin},
    {2, "load(&history->gone[i]) < ", damage_history},
    {2, "(cache->hazard == NULL) == (cache->cold->hazard_id == 0)", damage_cache},
    {2, "cold->tiny_used <= 16", damage_cache_cold},
    {2, "cache->unhinted_owner == cache || cache->unhinted_owner == ", damage_hints},
    {2, "cold->scarcity < SW_SCARCITY_MAX", damage_scarcity},
    {2, "cold->idle_credit <= SW_IDLE_CREDIT_MAX", damage_idle_credit},
    {2, "heap->cache_count <= heap->cache_numbers", damage_heap},
    {2, "thread->used <= SW_HEAPS_MAX", damage_thread},
    {2, "__atomic_load_n(&lock->state, __ATOMIC_RELAXED) <= ", damage_lock},
    {2, "table->max_size == table->classes[table->class_count - 1].size", damage_table},
    {2, "cls->slots == span_bytes / cls->size", damage_class},
    {2, "runner->sample_count <= SW_RUNNER_SAMPLES_MAX", damage_runner},
    {3, "metadata pool: held bytes disagree with its chunks", lost_meta},
    {3, "pool of slack arrays: held bytes disagree with its chunks", lost_slack},
    {3, "page runs: a summary disagrees with the bitmap", lost_runs},
    {3, "and on: one is dirty that the OS has", lost_pages},
    {3, "free, but mapped", lost_window},
    {3, "cache 2: its record is damaged", lost_view},
    {3, "record and class ", lost_span},
    {3, "frees by other threads are not announced", lost_cold},
    {3, "spans, counted as", lost_list},
    {3, "is damaged", lost_bin},
    {3, "cache 1: its record is damaged", lost_cache},
    {3, "wholly free spans, counted as 1", lost_cache_cold},
    {3, "span records: ", lost_heap},
};

/* The grade that the preset promises; without a preset, the one that was compiled. */
static int promised_grade(void) {
    const char *promise = getenv("SPANWISE_GRADE");
    return promise == NULL ? SW_CHECK : atoi(promise);
}

int main(void) {
    int grade = promised_grade();
    make_heap();
    CHECK_EQ(SW_CHECK, grade);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[DYING_WORDS_MAX];
        if (cases[i].fn == lost_view && !sw_os_is_single_threaded()) continue;
        bool died = died_with(cases[i].fn, words);
        bool reported = strstr(words, "ASSERT ") != NULL && strstr(words, cases[i].rule) != NULL;
        if (reported != (grade >= cases[i].grade) || (reported && !died))
            fprintf(stderr, "grade %d of %s: \"%s\"\n", grade, cases[i].rule, words);
        CHECK_EQ(reported, grade >= cases[i].grade);
        CHECK(!reported || died);
    }
    return check_result();
}
