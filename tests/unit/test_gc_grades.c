/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the collector, as test_grades.c has those of heaps: a damage planted in each struct ends a
 * forked child with the broken rule at grade 2 and above, and is not looked for below. */
#include "base/assert.h"
#include "dying_words.h"
#include "gc/grey.h"
#include "gc/shadow.h"
#include "gc/span_cursor.h"
#include "gc/span_meta.h"
#include "gc/stack.h"
#include "gc/type.h"
#include "spanwise/spanwise.h"

static sw_gc *make_gc(void) {
    sw_gc *gc;
    if (sw_gc_create(NULL, &gc) != SW_OK) abort();
    return gc;
}

static void damage_span_meta(void) {
    sw_gc *gc = make_gc();
    void *object = sw_heap_alloc(sw_gc_heap(gc), 64, SW_SCAN);
    sw_gc_span_metas[sw_space_id_of(&sw_live_space, (uintptr_t)object)].magic++;
    (void)sw_gc_collect(gc, NULL);
}

static void damage_gc_stack(void) {
    sw_gc_stack stack = {.reserved = 0};
    stack.top = stack.base + 1;
    (void)sw_gc_stack_grow(&stack);
}

static void damage_gc_refs(void) {
    sw_gc *gc = make_gc();
    sw_gc_ref ref;
    gc->refs.hashed = 1;
    (void)sw_gc_ref_new(gc, SW_GC_STRONG, NULL, &ref);
}

static void damage_gc_array(void) {
    sw_gc_array array = {.count = 1};
    (void)sw_gc_array_add(&array, 8);
}

static void damage_gc_thread(void) {
    sw_gc *gc = make_gc();
    (void)sw_gc_join(gc, "thread");
    sw_gc_thread *thread = gc->threads.items;
    *thread = (sw_gc_thread){.is_away = true};
    (void)sw_gc_leave(gc);
}

static void damage_gc_shadow(void) {
    sw_gc *gc = make_gc();
    sw_gc_shadow *shadow;
    (void)sw_gc_shadow_create(gc, &shadow);
    shadow->depth = 1;
    (void)sw_gc_shadow_destroy(shadow);
}

static void damage_gc(void) {
    sw_gc *gc = make_gc();
    gc->type_count = 0;
    (void)sw_gc_collect(gc, NULL);
}

/* Slots wait to be scanned that nobody has marked. */
static void damage_grey_bits(void) {
    sw_gc *gc = make_gc();
    void **list = NULL;
    uint32_t root;
    if (sw_gc_set_order(gc, SW_GC_BY_SPAN) != SW_OK) abort();
    if (sw_gc_add_roots(gc, &list, sizeof list, &root) != SW_OK) abort();
    for (int i = 0; i < 1000; i++) {
        void **object = sw_heap_alloc(sw_gc_heap(gc), 64, SW_SCAN | SW_ZERO);
        *object = list;
        list = object;
    }
    if (sw_gc_start(gc) != SW_OK) abort();
    while (gc->queue.first == 0) (void)sw_gc_step(gc, 1);
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[gc->queue.first];
    for (uint32_t k = 0; k < grey_bits->words; k++) grey_bits->bits[k] = ~0ull;
    (void)sw_gc_finish(gc, NULL);
}

static void damage_span_queue(void) {
    sw_gc_span_queue queue = {.first = 1};
    sw_gc_queue_take(&queue);
}

static void damage_place(void) {
    sw_gc *gc = make_gc();
    sw_gc_span_cursor place = {.first = 1, .id = 1 + SW_SPAN_BATCH};
    (void)sw_gc_span_cursor_next(sw_gc_heap(gc), &place);
}

/* More events were taken out than have ended. */
static void damage_ring(void) {
    sw_gc *gc = make_gc();
    if (sw_gc_record_events(gc, 4) != SW_OK) abort();
    gc->ring.taken = 9;
    (void)sw_gc_collect(gc, NULL);
}

/* The list of sources does not know the source that is to be taken out. */
static void damage_source(void) {
    sw_gc *gc = make_gc();
    static sw_gc_source source;
    sw_gc_add_source(gc, &source);
    gc->sources = NULL;
    sw_gc_remove_source(&source);
}

static const planted cases[] = {
    {"meta->magic == span->magic", damage_span_meta},
    {"stack->top <= stack->end", damage_gc_stack},
    {"refs->hashed <= refs->entries.count", damage_gc_refs},
    {"array->count <= array->capacity", damage_gc_array},
    {"gc->type_count >= 1", damage_gc},
    {"thread->at != 0 || !thread->is_away", damage_gc_thread},
    {"(shadow->top == NULL) == (shadow->depth == 0)", damage_gc_shadow},
    {"unmarked == 0", damage_grey_bits},
    {"(queue->first == 0) == (queue->last == 0)", damage_span_queue},
    {"place->first == 0 || place->id - place->first < ", damage_place},
    {"ring->taken <= ring->ended", damage_ring},
    {"*source->back == source", damage_source},
};

int main(void) {
    check_planted(cases, sizeof cases / sizeof *cases);
    return check_result();
}
