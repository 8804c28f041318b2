/* SPDX-License-Identifier: Apache-2.0 */
/* Each grade of checks finds its damage, and lower grades do not: one planted damage per struct for
 * the local checks, one for those of the whole heap. A preset without the checks of its grade fails
 * here. The grade is that of the build; the presets say which it must be (SPANWISE_GRADE, check.h).
 * Other structs: test_memory_grades.c. */
#include "base/base.h"
#include "dying_words.h"
#include "heap/cache.h"
#include "heap/central.h"
#include "heap/refill.h"
#include "heap/registry.h"
#include "heaps.h"
#include "inspect/verify_points.h"
#include "simulator/runner.h"

/* A heap with this thread's cache, which a forked child keeps as it is. */
static sw_heap *heap;
static sw_cache *cache;

static void make_heap(void) {
    heap = MADE(sw_heap, o.manual_clock = true);
    cache = sw_thread_cache(heap);
    for (size_t size = 16; size <= 4096; size *= 2)
        for (int i = 0; i < 100; i++)
            if (sw_cache_alloc(cache, size, 0) == NULL) abort();
}

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

static sw_table *one_class(void) {
    static const sw_class_spec specs[] = {{64, 1, 0}};
    return table_of("one", 8192, specs, 1);
}

static void local_damage(void) {
    /* First fit finds no free page though there are some: in every build that ships. */
    PLANT(1, "have < n") { (void)sw_pages_grow(&heap->pages, 1, 1); }
    PLANT(2, "sw_is_pow2(meta->next_chunk_bytes)") {
        heap->meta.next_chunk_bytes += 1;
        take_spans();
    }
    PLANT(2, "runs->low <= runs->leaves") {
        heap->pages.runs.low = heap->pages.runs.leaves + 1;
        turn_pages();
    }
    PLANT(2, "pages->free_held_pages <= pages->held_pages") {
        heap->pages.free_held_pages = heap->pages.held_pages + 1;
        turn_pages();
    }
    PLANT(2, "window->map != NULL") {
        sw_window *window = &heap->pages.windows[0];
        window->map = NULL;
        (void)sw_pages_grow(&heap->pages, window->frontier + 1, 1);
    }
    PLANT(2, "space->extra_count <= SW_SPACE_EXTRAS") {
        sw_live_space.extra_count = SW_SPACE_EXTRAS + 1;
        (void)sw_space_take_spans(&sw_live_space);
    }
    PLANT(2, "span->cursor < sw_span_word_count(span)") {
        current_span()->cursor = 200;
        uintptr_t doubled;
        (void)sw_span_find_word(current_span(), &doubled);
    }
    PLANT(2, "cold->next == 0 || cold->next != cold->prev") {
        sw_span_list list = {0};
        sw_span_cold *cold = sw_space_cold(heap->space, current_span());
        cold->next = cold->prev = 77;
        sw_span_list_push(&list, heap->space, current_span());
    }
    PLANT(2, "(list->head == 0) == (list->count == 0)") {
        sw_span_list list = {.count = 1};
        sw_span_list_push(&list, heap->space, current_span());
    }
    /* Of a heap of its own, whose policy has histories: the first object's span is full when it is
     * freed, and chosen when the current one is full. */
    PLANT(2, "load(&history->gone[i]) < ") {
        sw_heap *other = MADE(sw_heap, o.placement = SW_PLACE_LASTING);
        void *first = sw_heap_alloc(other, 800, 0);
        for (int i = 0; i < 1000; i++) (void)sw_heap_alloc(other, 800, 0);
        uint32_t span_class = sw_span_class_of(sw_size_class(other->table, 800), true);
        other->histories[span_class].gone[3] = SW_HISTORY_MAX;
        sw_heap_free(other, first);
        for (int i = 0; i < 1000; i++) (void)sw_heap_alloc(other, 800, 0);
    }
    PLANT(2, "bin->hinted <= bin->hinted_max") {
        cache->bins[class_of(64)].hinted = cache->bins[class_of(64)].hinted_max + sizeof(sw_hint);
        (void)sw_refill_alloc(cache, 64, 0, class_of(64));
    }
    PLANT(2, "(cache->hazard == NULL) == (cache->cold->hazard_id == 0)") {
        cache->cold->hazard_id = 5;
        take_spans();
    }
    PLANT(2, "cache->unhinted_owner == cache || cache->unhinted_owner == ") {
        cache->unhinted_owner = NULL;
        take_spans();
    }
    PLANT(2, "cold->scarcity < SW_SCARCITY_MAX") {
        cache->cold->scarcity = SW_SCARCITY_MAX;
        take_spans();
    }
    PLANT(2, "cold->idle_credit <= SW_IDLE_CREDIT_MAX") {
        cache->cold->idle_credit = 64 * 64 + 1;
        take_spans();
    }
    PLANT(2, "cold->tiny_used <= 16") {
        cache->cold->tiny_used = 17;
        take_spans();
    }
    PLANT(2, "heap->cache_count <= heap->cache_numbers") {
        heap->cache_numbers = 0;
        take_spans();
    }
    PLANT(2, "thread->used <= SW_HEAPS_MAX") {
        sw_registry_own()->used = SW_HEAPS_MAX + 1;
        sw_registry_leave(sw_registry_own());
    }
    /* Below grade 2 it waits for ever, until the alarm; above, the alarm must not come before the
     * words. */
    PLANT(2, "__atomic_load_n(&lock->state, __ATOMIC_RELAXED) <= ") {
        sw_os_lock lock = {.state = 7};
        alarm(SW_CHECK < 2 ? 1 : 200);
        sw_os_lock_acquire(&lock);
    }
    PLANT(2, "table->max_size == table->classes[table->class_count - 1].size") {
        sw_table *table = one_class();
        table->max_size += 8;
        (void)MADE(sw_heap, o.table = table);
    }
    PLANT(2, "cls->slots == span_bytes / cls->size") {
        sw_table *table = one_class();
        ((sw_class *)(uintptr_t)table->classes)[1].slots = 127;
        (void)MADE(sw_heap, o.table = table);
    }
    PLANT(2, "runner->sample_count <= SW_RUNNER_SAMPLES_MAX") {
        sw_runner *runner;
        if (sw_runner_create(heap, &runner) != SW_OK) abort();
        runner->sample_count = SW_RUNNER_SAMPLES_MAX + 1;
        (void)sw_runner_run(runner, NULL, 0, 0, NULL, NULL);
    }
}

/* Local checks run on this way too; none of them reads what these cases have damaged. */
static void refill(void) {
    sw_verify_every(1);
    const sw_span *span = current_span();
    while (current_span() == span) (void)sw_cache_alloc(cache, 64, 0);
}

static sw_span *full_span(void) {
    return sw_space_span(heap->space, cache->cold->full[class_of(4096)].head);
}

static void whole_damage(void) {
    PLANT(3, "metadata pool: held bytes disagree with its chunks") {
        heap->meta.held_bytes += 64;
        refill();
    }
    PLANT(3, "pool of slack arrays: held bytes disagree with its chunks") {
        heap = MADE(sw_heap, o.tracked = true);
        cache = sw_thread_cache(heap);
        (void)sw_cache_alloc(cache, 64, 0);
        heap->instrument->held_bytes += 64;
        refill();
    }
    PLANT(3, "page runs: a summary disagrees with the bitmap") {
        sw_runs *runs = &heap->pages.runs;
        runs->tree[2 * runs->leaves - 1].max = 7;
        refill();
    }
    PLANT(3, "and on: one is dirty that the OS has") {
        heap->pages.dirty[heap->pages.capacity / 64 - 1] = 1;
        refill();
    }
    PLANT(3, "free, but mapped") {
        sw_window *window = &heap->pages.windows[0];
        uint64_t frames = (uint64_t)window->frontier << (heap->pages.page_shift - SW_FRAME_SHIFT);
        window->map[frames - 1] = 5;
        refill();
    }
    /* Of a cache that is idle: one that takes a span renews its copy first. A heap of two caches is
     * checked only where the process is known to have one thread. */
    PLANT_WHERE(sw_os_is_single_threaded(), 3, "cache 2: its record is damaged") {
        sw_cache *other = cache_of(heap);
        other->frames = UINT64_MAX; /* the space may grow meanwhile */
        refill();
    }
    PLANT(3, "record and class ") {
        full_span()->magic ^= 1;
        refill();
    }
    PLANT(3, "frees by other threads are not announced") {
        sw_space_cold(heap->space, full_span())->remote_words[1] = 1;
        refill();
    }
    PLANT(3, "spans, counted as") {
        cache->cold->full[class_of(4096)].count++;
        refill();
    }
    PLANT(3, "is damaged") {
        cache->bins[class_of(4096)].bytes ^= 16;
        refill();
    }
    PLANT(3, "cache 1: its record is damaged") {
        cache->plain_end--;
        refill();
    }
    PLANT(3, "wholly free spans, counted as 1") {
        cache->cold->idle_spans[class_of(4096)] = 1;
        refill();
    }
    PLANT(3, "span records: ") {
        heap->free_records = 0;
        refill();
    }
}

int main(void) {
    make_heap();
    check_planted(local_damage, true);
    check_planted(whole_damage, true);
    return check_result();
}
