/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of structs other than heaps (test_grades.c): damage planted in each ends a forked
 * child with the broken rule at grade 2 and above; lower grades do not check. The verification of
 * a whole range finds what no local check can see, at every grade. */
#include "arena/arena.h"
#include "arena/chunk_cache.h"
#include "arena/track.h"
#include "base/base.h"
#include "buffer/backing.h"
#include "buffer/scalable.h"
#include "dying_words.h"
#include "gc/gc.h"
#include "gc/mark.h"
#include "gc/roots.h"
#include "gc/span_meta.h"
#include "gc/type.h"
#include "optimize/optimizer.h"
#include "page/runs.h"
#include "pool/pool.h"
#include "pool/slabs.h"
#include "range/range.h"
#include "spanwise/spanwise.h"
#include "stack/stack.h"
#include "trace/merge.h"
#include "trace/raw.h"
#include "trace/reader.h"
#include "trace/writer.h"

static sw_arena *arena;
static sw_range *range;
static bool can_be_safe;
static uint8_t bytes[64];

static void make_arena(void) {
    if (sw_arena_create(NULL, &arena) != SW_OK) abort();
    (void)sw_arena_alloc(arena, 100, 0, 0);
}

/* False where the system takes no access away. */
static bool make_safe_arena(void) {
    sw_arena_options options;
    sw_arena_options_init(&options);
    options.safe = 1;
    return sw_arena_create(&options, &arena) == SW_OK;
}

static void track(void) {
    sw_tracker *tracker;
    if (sw_tracker_create(NULL, &tracker) != SW_OK) abort();
    make_arena();
}

static void arenas(void) {
    PLANT(2, "(arena->own == NULL) == (arena->own_objects == 0)") {
        make_arena();
        arena->own_objects = 1;
        (void)sw_arena_reset(arena);
    }
    PLANT(2, "ends->front >= chunk->base") {
        make_arena();
        arena->ends->front = arena->chunks->base - 1;
        (void)sw_arena_reset(arena);
    }
    PLANT(2, "chunk->bytes == UINT64_C(1) << chunk->log2") {
        make_arena();
        sw_arena_set_keep(0, 0);
        arena->chunks->bytes *= 2;
        (void)sw_arena_free(arena);
    }
    PLANT_WHERE(sw_arena_chunk_cache_own() != NULL, 2, "chunk_cache->number != 0") {
        make_arena();
        sw_arena_chunk_cache_own()->number = 0;
        (void)sw_arena_free(arena);
    }
    PLANT(2, "region->taken <= region->count") {
        make_arena();
        sw_region *region =
            (sw_region *)(void *)((char *)arena->chunks - offsetof(sw_region, chunks));
        region->taken = region->count + 1;
        (void)sw_chunk_take(16);
    }
    /* Of the process's idle chunks of this size the newest has a newer one. */
    PLANT(2, "newest == NULL || newest->newer == NULL") {
        make_arena();
        sw_arena_set_keep(0, 64 << 20);
        sw_chunk *chunk = arena->chunks;
        (void)sw_arena_free(arena);
        chunk->newer = chunk;
        (void)sw_chunk_take(16);
    }
    /* A chunk is idle so often that more bytes are than were reserved. */
    PLANT(2, "pool->idle_bytes + pool->returned_bytes <= pool->reserved_bytes") {
        make_arena();
        sw_arena_set_keep(0, UINT64_MAX);
        sw_chunk *chunk = arena->chunks;
        for (int i = 0; i < 20000; i++) sw_chunk_give(chunk);
        (void)sw_chunk_take(16);
    }
    /* The newest chunk of the quarantine has a next one. */
    PLANT_WHERE(can_be_safe, 2, "queue->newest == NULL || queue->newest->next == NULL") {
        if (!make_safe_arena()) abort();
        (void)sw_arena_alloc(arena, 100, 0, 0);
        sw_chunk *chunk = arena->chunks;
        (void)sw_arena_free(arena);
        chunk->next = chunk;
        sw_arena_set_quarantine(UINT64_C(1) << 30);
    }
    PLANT(2, "log->made.count <= ") {
        sw_arena_log *log = sw_arena_log_new("log", 1);
        log->made.count = SW_LOG_FRAMES + 1;
        sw_arena_log_drop(log);
    }
    PLANT(2, "tracker->count <= tracker->ids") {
        track();
        sw_track_current()->ids = 0;
        make_arena();
    }
    PLANT(2, "track->id != 0") {
        track();
        sw_track_current()->newest->id = 0;
        (void)sw_arena_free(arena);
    }
    PLANT(2, "(tracker->oldest == NULL) == (tracker->count == 0)") {
        track();
        sw_track_current()->count = 0;
        make_arena();
    }
    PLANT(2, "track->frame_count <= SW_TRACKER_FRAMES_MAX") {
        track();
        sw_track_current()->newest->frame_count = SW_TRACKER_FRAMES_MAX + 1;
        (void)sw_arena_free(arena);
    }
}

static sw_pool *make_pool(void) { return MADE(sw_pool, o.item_bytes = 64, o.locked = 1); }

static sw_slabs *make_slabs(void) {
    sw_slabs *slabs;
    if (sw_slabs_create(NULL, &slabs) != SW_OK) abort();
    (void)sw_slabs_alloc(slabs, 100, 0);
    return slabs;
}

static void pools(void) {
    PLANT(2, "pool->victims <= pool->count") {
        sw_pool *pool = make_pool();
        pool->victims = 1;
        (void)sw_pool_get(pool);
    }
    /* A pool that is watched has its idle items in a set. */
    PLANT(2, "(set->mask & (set->mask + 1)) == 0") {
        sw_pool *pool = make_pool();
        if (sw_pool_watch_puts(pool) != SW_OK) abort();
        pool->idle.mask = 2;
        (void)sw_pool_get(pool);
    }
    PLANT(2, "pool->idle.count == pool->count") {
        sw_pool *pool = make_pool();
        if (sw_pool_watch_puts(pool) != SW_OK) abort();
        pool->idle.count = 1;
        (void)sw_pool_get(pool);
    }
    PLANT(2, "*entry->back == entry") {
        sw_pool *pool = make_pool();
        *pool->fork.back = NULL;
        sw_pool_destroy(pool);
    }
    /* What is above the largest tier is noted. */
    PLANT(2, "slabs->tiers[i - 1].slot_bytes < slabs->tiers[i].slot_bytes") {
        sw_slabs *slabs = make_slabs();
        slabs->tiers[1].slot_bytes = slabs->tiers[0].slot_bytes;
        (void)sw_slabs_alloc(slabs, 1 << 20, 0);
    }
    PLANT(2, "tier->frees <= tier->allocs") {
        sw_slabs *slabs = make_slabs();
        slabs->tiers[0].frees = slabs->tiers[0].allocs + 1;
        (void)sw_slabs_alloc(slabs, 100, 0);
    }
    PLANT(2, "(sw_slab_tier_used(tier) == tier->frontier) ==") {
        sw_slabs *slabs = make_slabs();
        slabs->tiers[0].frees = 1;
        (void)sw_slabs_alloc(slabs, 100, 0);
    }
    /* The group of a free slot says that it has none. */
    PLANT(2, "tier->freed[first * 64 + sw_ctz(group)] != 0") {
        sw_slabs *slabs = make_slabs();
        void *slot = sw_slabs_alloc(slabs, 100, 0);
        (void)sw_slabs_alloc(slabs, 100, 0);
        (void)sw_slabs_free(slabs, slot);
        slabs->tiers[0].freed[0] = 0;
        (void)sw_slabs_alloc(slabs, 100, 0);
    }
}

static sw_scalable *make_scalable(void) {
    sw_scalable *scalable;
    if (sw_scalable_create(NULL, &scalable) != SW_OK) abort();
    (void)sw_scalable_alloc(scalable, 100);
    return scalable;
}

static sw_stack *make_stack(void) {
    sw_stack *stack;
    if (sw_stack_create(NULL, &stack) != SW_OK) abort();
    (void)sw_stack_push(stack, 16);
    return stack;
}

static void buffers(void) {
    PLANT(2, "(memory->buffers == memory->few) == (memory->capacity == ") {
        sw_memory memory;
        sw_memory_init(&memory, NULL);
        memory.capacity++;
        sw_memory_reset(&memory);
    }
    /* More bytes are left than there ever were. */
    PLANT(2, "sw_reader_length(reader) <= reader->size") {
        sw_memory memory;
        uint8_t byte[2];
        sw_memory_init(&memory, NULL);
        (void)sw_memory_push(&memory, bytes, 1);
        (void)sw_memory_push(&memory, bytes, 8);
        sw_reader reader = sw_reader_of(&memory);
        reader.size = 1;
        (void)sw_reader_read_bytes(&reader, byte, sizeof byte);
    }
    PLANT(2, "memory->count != 0 || memory->size == 0") {
        sw_recyclable recyclable;
        sw_recyclable_init(&recyclable, NULL);
        recyclable.owned.size = 1;
        (void)sw_recyclable_recycle(&recyclable);
    }
    PLANT(2, "scalable->child_allocs - scalable->child_frees == scalable->count") {
        sw_scalable *scalable = make_scalable();
        scalable->child_allocs++;
        (void)sw_scalable_alloc(scalable, scalable->options.child_bytes_max);
    }
    PLANT(2, "child->size == child->range->size") {
        sw_scalable *scalable = make_scalable();
        scalable->list[0].size--;
        sw_scalable_destroy(scalable);
    }
    PLANT(2, "pool->count <= ") {
        const sw_allocator *pools = sw_allocator_of(SW_BACKING_POOLS);
        sw_block_pools[0].count = SW_BACKING_KEPT + 1;
        (void)pools->allocate(pools->context, 100, 16);
    }
    PLANT(2, "region->base != NULL && region->range != NULL") {
        const sw_allocator *regions = sw_allocator_of(SW_BACKING_BUDDY);
        void *block = regions->allocate(regions->context, 100, 16);
        sw_buddy_regions[0].range = NULL;
        regions->release(regions->context, block, 100);
    }
    PLANT(2, "held == stack->held_bytes") {
        sw_stack *stack = make_stack();
        stack->held_bytes++;
        (void)sw_stack_release(stack, 0);
    }
    PLANT(2, "slots->count <= slots->capacity") {
        sw_stack *stack = make_stack();
        stack->outer.count = 1;
        (void)sw_stack_release(stack, 0);
    }
}

/* A range of 64 pieces of 16, every other one free. */
static void make_range(uint32_t backend) {
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = backend;
    options.unit = 16;
    if (sw_range_create(1024, &options, &range) != SW_OK) abort();
    for (int i = 0; i < 64; i++) (void)sw_range_alloc(range, 16);
    for (uint64_t i = 0; i < 64; i += 2) (void)sw_range_free(range, i * 16, 16);
}

static void ranges(void) {
    PLANT(2, "range->rover <= range->size") {
        make_range(SW_RANGE_BTREE);
        range->rover = 1025;
        (void)sw_range_alloc(range, 1);
    }
    PLANT(2, "grown->recorded <= grown->hole.size") {
        make_range(SW_RANGE_BTREE);
        range->grown.recorded = 17;
        (void)sw_range_alloc(range, 1);
    }
    PLANT(2, "(nodes->waiting == NULL) == (nodes->waiting_count == 0)") {
        make_range(SW_RANGE_TREAP);
        range->as.treap.nodes.waiting_count = 1;
        (void)sw_range_alloc(range, 16);
    }
    PLANT(2, "tree->seed != 0") {
        make_range(SW_RANGE_TWO_TREAPS);
        range->as.treap.seed = 0;
        (void)sw_range_alloc(range, 16);
    }
    PLANT(2, "node->largest == largest") {
        make_range(SW_RANGE_TREAP);
        sw_treap_first(&range->as.treap, 1)->largest = 17;
        (void)sw_range_alloc(range, 16);
    }
    PLANT(2, "btree->height < SW_BTREE_HEIGHT_MAX") {
        make_range(SW_RANGE_BTREE);
        range->as.btree.height = SW_BTREE_HEIGHT_MAX;
        sw_btree_path path = {{{range->as.btree.root, 0}}};
        sw_btree_remove(&range->as.btree, &path);
    }
    PLANT(2, "i == 0 || node->low[i] > node->low[i - 1]") {
        make_range(SW_RANGE_BTREE);
        sw_btree_path path;
        (void)sw_btree_before(&range->as.btree, 512, &path);
        path.at[0].node->low[0] = path.at[0].node->low[1];
        sw_btree_remove(&range->as.btree, &path);
    }
    PLANT(2, "buddy->free_units <= buddy->units") {
        make_range(SW_RANGE_BUDDY);
        range->as.buddy.free_units = range->as.buddy.units + 1;
        (void)sw_range_largest_hole(range);
    }
    PLANT(2, "summary->levels <= SW_SUMMARY_LEVELS_MAX") {
        make_range(SW_RANGE_BUDDY);
        sw_buddy_join(&range->as.buddy);
        range->as.buddy.free[0].levels = SW_SUMMARY_LEVELS_MAX + 1;
        (void)sw_summary_first(&range->as.buddy.free[0]);
    }
}

static void expect_verified(const char *rule) {
    CHECK_EQ(sw_range_verify(range), SW_FORMAT);
    if (strstr(sw_last_error()->message, rule) == NULL)
        fprintf(stderr, "not %s: \"%s\"\n", rule, sw_last_error()->message);
    CHECK(strstr(sw_last_error()->message, rule) != NULL);
}

static void whole_damage(void) {
    make_range(SW_RANGE_TREAP);
    range->free_size--;
    expect_verified("sum == range->free_size");
    make_range(SW_RANGE_TREAP);
    range->as.treap.root[SW_TREAP_START]->priority = 0;
    expect_verified("child->priority <= node->priority");
    make_range(SW_RANGE_TWO_TREAPS);
    range->as.treap.root[SW_TREAP_SIZE]->priority = 0;
    expect_verified("priority");
    make_range(SW_RANGE_BTREE);
    range->as.btree.root->largest[0]++;
    expect_verified("== btree->largest");
    make_range(SW_RANGE_BUDDY);
    range->as.buddy.waste++;
    expect_verified("waste == buddy->waste");
}

static sw_gc *make_gc(void) {
    sw_gc *gc;
    if (sw_gc_create(NULL, &gc) != SW_OK) abort();
    return gc;
}

static void collectors(void) {
    PLANT(2, "meta->magic == span->magic") {
        sw_gc *gc = make_gc();
        void *object = sw_heap_alloc(sw_gc_heap(gc), 64, SW_SCAN);
        sw_gc_span_metas[sw_space_id_of(&sw_live_space, (uintptr_t)object)].magic++;
        (void)sw_gc_collect(gc, NULL);
    }
    PLANT(2, "stack->top <= stack->end") {
        sw_gc_stack stack = {.reserved = 0};
        stack.top = stack.base + 1;
        (void)sw_gc_stack_grow(&stack);
    }
    PLANT(2, "refs->hashed <= refs->entries.count") {
        sw_gc *gc = make_gc();
        sw_gc_ref ref;
        gc->refs.hashed = 1;
        (void)sw_gc_ref_new(gc, SW_GC_STRONG, NULL, &ref);
    }
    PLANT(2, "array->count <= array->capacity") {
        sw_gc_array array = {.count = 1};
        (void)sw_gc_array_add(&array, 8);
    }
    PLANT(2, "thread->at != 0 || !thread->is_away") {
        sw_gc *gc = make_gc();
        (void)sw_gc_join(gc, "thread");
        sw_gc_thread *thread = gc->threads.items;
        *thread = (sw_gc_thread){.is_away = true};
        (void)sw_gc_leave(gc);
    }
    PLANT(2, "(shadow->top == NULL) == (shadow->depth == 0)") {
        sw_gc *gc = make_gc();
        sw_gc_shadow *shadow;
        (void)sw_gc_shadow_create(gc, &shadow);
        shadow->depth = 1;
        (void)sw_gc_shadow_destroy(shadow);
    }
    PLANT(2, "gc->type_count >= 1") {
        sw_gc *gc = make_gc();
        gc->type_count = 0;
        (void)sw_gc_collect(gc, NULL);
    }
    /* Slots wait to be scanned that no one has marked. */
    PLANT(2, "unmarked == 0") {
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
    PLANT(2, "(queue->first == 0) == (queue->last == 0)") {
        sw_gc_span_queue queue = {.first = 1};
        sw_gc_queue_take(&queue);
    }
    PLANT(2, "place->first == 0 || place->id - place->first < ") {
        sw_gc *gc = make_gc();
        sw_gc_span_cursor place = {.first = 1, .id = 1 + SW_SPAN_BATCH};
        (void)sw_gc_span_cursor_next(sw_gc_heap(gc), &place);
    }
    /* More events were taken out than have ended. */
    PLANT(2, "ring->taken <= ring->ended") {
        sw_gc *gc = make_gc();
        if (sw_gc_record_events(gc, 4) != SW_OK) abort();
        gc->ring.taken = 9;
        (void)sw_gc_collect(gc, NULL);
    }
    /* The list of sources does not know the source that is to be taken out. */
    PLANT(2, "*source->back == source") {
        sw_gc *gc = make_gc();
        static sw_gc_source source;
        sw_gc_add_source(gc, &source);
        gc->sources = NULL;
        sw_gc_remove_source(&source);
    }
}

static void recordings(void) {
    PLANT(2, "ids->free_count <= ids->next") {
        swt_ids ids = {.free_count = 1};
        (void)swt_ids_grow(&ids);
    }
    PLANT(2, "stream->left == 0 || stream->payload != NULL") {
        swt_merge merge = {.ended = true};
        swt_stream stream = {.left = 1};
        (void)swt_stream_load(&merge, &stream);
    }
    PLANT(2, "merge->queue_count <= merge->stream_count") {
        swt_merge merge = {.queue_count = 1, .ended = true};
        size_t count;
        (void)swt_merge_next(&merge, NULL, &count);
    }
    PLANT(2, "buffer->capacity == 0 || buffer->data != NULL") {
        swt_buffer buffer = {.used = 8, .capacity = 8};
        (void)swt_put_meta(&buffer, "key", "value");
    }
    PLANT(2, "map->count + map->spare_count == map->leaf_count") {
        swt_addresses map = {.spare_count = 1};
        uint32_t old;
        (void)swt_addresses_put(&map, 64, 1, &old);
    }
    PLANT(2, "raw->next <= raw->limit") {
        size_t bytes = swt_encoder_bytes();
        swt_encoder *encoder = swt_encoder_init(aligned_alloc(64, (bytes + 63) / 64 * 64), bytes);
        swt_event events[4] = {{0}};
        swt_raw raw = {.events = events, .next = events + 2, .limit = events + 1};
        const uint8_t *block;
        if (encoder == NULL) abort();
        (void)swt_encode_raw(encoder, &raw, 0, &block);
    }
    PLANT(2, "notes->meta_used <= notes->meta_capacity") {
        swt_notes notes = {.meta_used = 3, .meta_capacity = 2};
        swt_block block = {.kind = SWT_BLOCK_META};
        (void)swt_notes_add(&notes, &block, NULL, 0);
    }
    PLANT(2, "!file->damaged || file->prefix") {
        swt_file file = {.stream = fopen("/dev/null", "rb"), .damaged = true};
        swt_entry entry = {0};
        swt_block block;
        bool whole;
        (void)swt_file_load(&file, &entry, &block, &whole);
    }
    PLANT(2, "source->entry <= source->file->entry_count") {
        swt_file file = {.header = {.form = SW_TRACE_ORDERED, .version = 2}};
        swt_source source = {.file = &file, .entry = 1};
        size_t count;
        (void)swt_source_next(&source, &count);
    }
    PLANT(2, "state->thread == 0 || state->thread < state->threads") {
        swt_file file = {.header = {.form = SW_TRACE_ORDERED, .version = 2}};
        swt_source source = {.file = &file, .state = {.thread = 3, .threads = 3}};
        size_t count;
        (void)swt_source_next(&source, &count);
    }
    PLANT(2, "columns->tag == columns->scratch + ") {
        swt_ops_columns columns = {.scratch = malloc(SWT_OPS_SCRATCH_BYTES)};
        if (columns.scratch == NULL) abort();
        swt_ops_begin(&columns);
        columns.count = 1;
        (void)swt_ops_end(&columns);
    }
    PLANT(2, "sum->frees + sum->end_live_objects == sum->allocs") {
        swt_totals totals = {.sum = {.allocs = 2, .frees = 2, .end_live_objects = 1}};
        (void)swt_totals_add(&totals, NULL, 0);
    }
    PLANT(2, "trace->rest_count == 0 || trace->rest != NULL") {
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
    PLANT(2, "writer->state.count == writer->totals.sum.ops") {
        sw_trace_writer *writer;
        if (sw_trace_create("/dev/null", &writer) != SW_OK) abort();
        writer->state.count = 1;
        (void)sw_trace_commit(writer, NULL);
    }
    PLANT(2, "(profile->capacity == 0) == (profile->objects == NULL)") {
        sw_profile *profile;
        if (sw_profile_create(0, &profile) != SW_OK) abort();
        profile->objects = sw_os_map(1);
        (void)sw_profile_add(profile, &(sw_op){.kind = SW_OP_ALLOC}, 1);
    }
    PLANT(2, "optimizer->stride == optimizer->choices.count + 1") {
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
    PLANT(2, "sw_is_pow2(hull->width)") {
        int32_t nodes[6];
        sw_hull hull = {.count = 1, .width = 3, .nodes = nodes};
        sw_hull_clear(&hull);
    }
    PLANT(2, "choices->cost_count <= choices->choice_count") {
        sw_candidate candidates[2] = {{0}};
        sw_choices choices = {.candidates = candidates, .cost_count = 1};
        sw_check2(sw_choices_check(&choices));
    }
    PLANT(2, "(touch->capacity == 0) == (touch->bits == NULL)") {
        sw_touch_map touch = {.capacity = 64};
        sw_touch_map_remove(&touch, 0, 0);
    }
}

int main(void) {
    can_be_safe = make_safe_arena();
    void (*const all[])(void) = {arenas, pools, buffers, ranges, collectors, recordings};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_planted(all[i], false);
    whole_damage();
    return check_result();
}
