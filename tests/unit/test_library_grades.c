/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the collector, recordings and the optimiser, like those of heaps in test_grades.c:
 * a damage planted in each struct ends a forked child with the broken rule at grade 2 and above. */
#include "base/assert.h"
#include "dying_words.h"
#include "gc/grey.h"
#include "gc/shadow.h"
#include "gc/span_cursor.h"
#include "gc/span_meta.h"
#include "gc/stack.h"
#include "gc/type.h"
#include "optimize/hull.h"
#include "optimize/optimizer.h"
#include "optimize/profile.h"
#include "page/touch_map.h"
#include "spanwise/spanwise.h"
#include "trace/merge.h"
#include "trace/raw.h"
#include "trace/reader.h"
#include "trace/writer.h"

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

/* Slots wait to be scanned that no one has marked. */
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

/* --- recordings and the optimiser ------------------------------------------------------------- */

static void damage_ids(void) {
    swt_ids ids = {.free_count = 1};
    (void)swt_ids_grow(&ids);
}

static void damage_stream(void) {
    swt_merge merge = {.ended = true};
    swt_stream stream = {.left = 1};
    (void)swt_stream_load(&merge, &stream);
}

static void damage_merge(void) {
    swt_merge merge = {.queue_count = 1, .ended = true};
    size_t count;
    (void)swt_merge_next(&merge, NULL, &count);
}

static void damage_buffer(void) {
    swt_buffer buffer = {.used = 8, .capacity = 8};
    (void)swt_put_meta(&buffer, "key", "value");
}

static void damage_addresses(void) {
    swt_addresses map = {.spare_count = 1};
    uint32_t old;
    (void)swt_addresses_put(&map, 64, 1, &old);
}

static void damage_raw(void) {
    size_t bytes = swt_encoder_bytes();
    swt_encoder *encoder = swt_encoder_init(aligned_alloc(64, (bytes + 63) / 64 * 64), bytes);
    swt_event events[4] = {{0}};
    swt_raw raw = {.events = events, .next = events + 2, .limit = events + 1};
    const uint8_t *block;
    if (encoder == NULL) abort();
    (void)swt_encode_raw(encoder, &raw, 0, &block);
}

static void damage_notes(void) {
    swt_notes notes = {.meta_used = 3, .meta_capacity = 2};
    swt_block block = {.kind = SWT_BLOCK_META};
    (void)swt_notes_add(&notes, &block, NULL, 0);
}

static void damage_file(void) {
    swt_file file = {.stream = fopen("/dev/null", "rb"), .damaged = true};
    swt_entry entry = {0};
    swt_block block;
    bool whole;
    (void)swt_file_load(&file, &entry, &block, &whole);
}

static void damage_trace_source(void) {
    swt_file file = {.header = {.form = SW_TRACE_ORDERED, .version = 2}};
    swt_source source = {.file = &file, .entry = 1};
    size_t count;
    (void)swt_source_next(&source, &count);
}

static void damage_state(void) {
    swt_file file = {.header = {.form = SW_TRACE_ORDERED, .version = 2}};
    swt_source source = {.file = &file, .state = {.thread = 3, .threads = 3}};
    size_t count;
    (void)swt_source_next(&source, &count);
}

static void damage_columns(void) {
    swt_ops_columns columns = {.scratch = malloc(SWT_OPS_SCRATCH_BYTES)};
    if (columns.scratch == NULL) abort();
    swt_ops_begin(&columns);
    columns.count = 1;
    (void)swt_ops_end(&columns);
}

static void damage_totals(void) {
    swt_totals totals = {.sum = {.allocs = 2, .frees = 2, .end_live_objects = 1}};
    (void)swt_totals_add(&totals, NULL, 0);
}

static void damage_trace(void) {
    struct sw_trace *trace;
    char path[] = "/tmp/spanwise-grades-XXXXXX";
    sw_trace_writer *writer;
    int file = mkstemp(path);
    if (file < 0 || sw_trace_create(path, &writer) != SW_OK) abort();
    sw_status status = sw_trace_commit(writer, NULL);
    if (status == SW_OK) status = sw_trace_open(path, 0, &trace);
    (void)unlink(path);
    if (status != SW_OK) abort();
    const sw_op *ops;
    size_t count;
    trace->rest_count = 1;
    (void)sw_trace_next(trace, &ops, &count);
}

static void damage_writer(void) {
    sw_trace_writer *writer;
    if (sw_trace_create("/dev/null", &writer) != SW_OK) abort();
    writer->state.count = 1;
    (void)sw_trace_commit(writer, NULL);
}

static void damage_profile(void) {
    sw_profile *profile;
    if (sw_profile_create(0, &profile) != SW_OK) abort();
    profile->objects = sw_os_map(1);
    (void)sw_profile_add(profile, &(sw_op){.kind = SW_OP_ALLOC}, 1);
}

static void damage_optimizer(void) {
    static double weights[SW_PROFILE_SIZES];
    sw_optimize_options options;
    sw_optimizer *optimizer;
    sw_class_spec specs[32];
    sw_optimize_result result;
    uint32_t count;
    sw_optimize_options_init(&options);
    weights[64] = weights[100] = 1;
    if (sw_optimizer_create(&options, weights, &optimizer) != SW_OK) abort();
    optimizer->stride = 0;
    (void)sw_optimizer_table(optimizer, 1, specs, &count, &result);
}

static void damage_hull(void) {
    int32_t nodes[6];
    sw_hull hull = {.count = 1, .width = 3, .nodes = nodes};
    sw_hull_clear(&hull);
}

static void damage_choices(void) {
    sw_candidate candidates[2] = {{0}};
    sw_choices choices = {.candidates = candidates, .cost_count = 1};
    sw_check2(sw_choices_check(&choices));
}

static void damage_touch_map(void) {
    sw_touch_map touch = {.capacity = 64};
    sw_touch_map_remove(&touch, 0, 0);
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
    {"ids->free_count <= ids->next", damage_ids},
    {"stream->left == 0 || stream->payload != NULL", damage_stream},
    {"merge->queue_count <= merge->stream_count", damage_merge},
    {"buffer->capacity == 0 || buffer->data != NULL", damage_buffer},
    {"map->count + map->spare_count == map->leaf_count", damage_addresses},
    {"raw->next <= raw->limit", damage_raw},
    {"notes->meta_used <= notes->meta_capacity", damage_notes},
    {"!file->damaged || file->prefix", damage_file},
    {"source->entry <= source->file->entry_count", damage_trace_source},
    {"state->thread == 0 || state->thread < state->threads", damage_state},
    {"columns->tag == columns->scratch + ", damage_columns},
    {"sum->frees + sum->end_live_objects == sum->allocs", damage_totals},
    {"trace->rest_count == 0 || trace->rest != NULL", damage_trace},
    {"writer->state.count == writer->totals.sum.ops", damage_writer},
    {"(profile->capacity == 0) == (profile->objects == NULL)", damage_profile},
    {"optimizer->stride == optimizer->choices.count + 1", damage_optimizer},
    {"sw_is_pow2(hull->width)", damage_hull},
    {"choices->cost_count <= choices->choice_count", damage_choices},
    {"(touch->capacity == 0) == (touch->bits == NULL)", damage_touch_map},
};

int main(void) {
    check_planted(cases, sizeof cases / sizeof *cases);
    return check_result();
}
