/* SPDX-License-Identifier: Apache-2.0 */
/* Each grade of checks finds what it is for, and nothing below it does: one planted damage a struct
 * for the local checks, one for those of the whole heap. A preset whose grade is hollow fails here.
 * The grade is the one of the build; the test presets say which it must be (SPANWISE_GRADE). */
#include "base/assert.h"
#include "dying_words.h"
#include "heap/thread.h"
#include "spanwise/spanwise.h"

/* A heap with this thread's cache, which a forked child keeps as it is. */
static sw_heap *heap;
static sw_cache *cache;

static void make_heap(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.manual_clock = 1;
    if (sw_heap_create(&options, &heap) != SW_OK) abort();
    cache = sw_thread_cache(heap);
    for (size_t size = 16; size <= 4096; size *= 2)
        for (int i = 0; i < 100; i++)
            if (sw_cache_alloc(cache, size, 0) == NULL) abort();
}

/* --- slow paths that a damage is led to ------------------------------------------------------- */

static sw_span *current_span(void) {
    return cache->bins[sw_span_class_of(sw_size_class(heap->table, 64), true)].span;
}

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
        char words[DYING_WORDS_MAX], want[DYING_WORDS_MAX];
        snprintf(want, sizeof want, "ASSERT %s at ", cases[i].rule);
        bool died = died_with(cases[i].fn, words);
        bool told = strstr(words, want) != NULL;
        if (told != (grade >= cases[i].grade) || (told && !died))
            fprintf(stderr, "grade %d of %s: \"%s\"\n", grade, cases[i].rule, words);
        CHECK_EQ(told, grade >= cases[i].grade);
        CHECK(!told || died);
    }
    return check_result();
}
