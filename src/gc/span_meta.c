/* SPDX-License-Identifier: Apache-2.0 */
/* Span metadata, grey bits and their queue, the mark stack, and walks over spans. */
#include "gc/span_meta.h"

#include <string.h>

#include "base/base.h"
#include "gc/mark.h"
#include "gc/type.h"
#include "os/os.h"

/* --- span metadata ---------------------------------------------------------------------------- */

sw_gc_span_meta *sw_gc_span_metas;
uint32_t **sw_gc_slot_types;

/* Chooses addresses for the three arrays and maps the types of the first `count` spans. */
static bool find_place(uint32_t count) {
    size_t limit = sw_space_live()->span_limit;
    char *place = sw_os_place(limit * SW_GC_SPAN_META_BYTES, count * sizeof *sw_gc_slot_types);
    if (place == NULL) return false;
    sw_gc_slot_types = (uint32_t **)(void *)place;
    sw_gc_grey_bits_of = (sw_gc_grey_bits **)(void *)(sw_gc_slot_types + limit);
    sw_gc_span_metas = (sw_gc_span_meta *)(void *)(sw_gc_grey_bits_of + limit);
    return true;
}

/* Maps the span metadata of `count` span records, for sw_space_follow_records. Marking reads it for
 * every span of the process, so all of it is mapped. */
static bool map_span_metas(uint32_t first, uint32_t count) {
    size_t types_bytes = count * sizeof *sw_gc_slot_types;
    size_t grey_bits_bytes = count * sizeof *sw_gc_grey_bits_of;
    bool has_types = first == 0
                         ? find_place(count)
                         : sw_os_map_at(&sw_gc_slot_types[first], types_bytes) == SW_OS_MAPPED;
    if (!has_types) return false;
    if (sw_os_map_at(&sw_gc_grey_bits_of[first], grey_bits_bytes) == SW_OS_MAPPED) {
        if (sw_os_map_at(&sw_gc_span_metas[first], count * sizeof *sw_gc_span_metas) ==
            SW_OS_MAPPED)
            return true;
        (void)sw_os_unmap_at(&sw_gc_grey_bits_of[first], grey_bits_bytes);
    }
    (void)(first == 0 ? sw_os_release(sw_gc_slot_types, types_bytes)
                      : sw_os_unmap_at(&sw_gc_slot_types[first], types_bytes));
    return false;
}

bool sw_gc_span_meta_start(void) {
    return sw_space_follow_records(sw_space_live(), map_span_metas);
}

const char *sw_gc_span_meta_check(const sw_gc_span_meta *meta, const sw_span *span) {
    return SW_RULE(meta->base == span->base) ?: SW_RULE(meta->magic == span->magic)
        ?: SW_RULE(meta->marks != NULL)
        ?: SW_RULE(meta->scan_mask == 0 || meta->type != SW_GC_TYPE_UNSET);
}

/* Returns the bytes of the marks and pending bits of a span that needs several words of each. */
static size_t marks_bytes(uint32_t words) { return 2 * words * sizeof(uint64_t); }

/* While a cycle marks, the span has no objects to scan yet, or keeps its mask, or the mask becomes
 * 0; so the stores may be in either order. */
static void set_layout(sw_gc_span_meta *meta, uint32_t type, uint64_t scan_mask) {
    __atomic_store_n(&meta->type, type, __ATOMIC_RELAXED);
    __atomic_store_n(&meta->scan_mask, scan_mask, __ATOMIC_RELAXED);
}

bool sw_gc_span_meta_born(sw_heap *heap, sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    uint32_t words = sw_gc_mark_words(heap, span);
    uint64_t *marks = &meta->own;
    if (words > 1) marks = sw_meta_alloc(&heap->meta, marks_bytes(words));
    if (marks == NULL) return false;
    const sw_gc *gc = heap->collector;
    sw_gc_slot_types[id] = NULL; /* an ended heap leaves its pointers here */
    sw_gc_grey_bits_of[id] = NULL;
    meta->base = span->base;
    meta->magic = span->magic;
    meta->marks = marks;
    meta->pending = 0;
    meta->bytes = sw_span_is_large(span) ? 0 : sw_slot_bytes(heap->table, span);
    set_layout(meta, SW_GC_TYPE_UNSET, 0);
    memset(marks, 0xFF, words * sizeof *marks); /* objects in a new span are allocated black */
    /* If a cycle is abandoned meanwhile, both epochs are right: all objects of the span stay. */
    uint32_t epoch = __atomic_load_n(&gc->epoch, __ATOMIC_RELAXED);
    sw_gc_span_meta_set_stamp(meta, sw_gc_stamp(gc, epoch));
    return true;
}

void sw_gc_span_meta_gone(sw_heap *heap, sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    sw_gc_span_meta *meta = &sw_gc_span_metas[id]; /* all 0 if the span got no metadata */
    if (meta->stamp >> 32 != heap->id) return;
    uint32_t words = sw_gc_mark_words(heap, span);
    if (words > 1) sw_meta_free(&heap->meta, meta->marks, marks_bytes(words));
    sw_meta_free(&heap->meta, sw_gc_slot_types[id], span->slots * sizeof **sw_gc_slot_types);
    sw_gc_slot_types[id] = NULL;
    sw_gc_grey_bits_end(heap, id);
    sw_gc_span_meta_set_stamp(meta, 0);
    set_layout(meta, 0, 0);
    meta->own = meta->pending = meta->bytes = 0;
    /* After the stamp, for barriers of threads that were late when a cycle was abandoned. */
    __atomic_store_n(&meta->base, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&meta->magic, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&meta->marks, NULL, __ATOMIC_RELEASE);
}

void sw_gc_span_meta_prepare(sw_heap *heap, uint32_t id, uint64_t stamp) {
    sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    const sw_span *span = sw_space_span(heap->space, id);
    sw_check2(sw_gc_span_meta_check(meta, span));
    bool large = sw_span_is_large(span);
    uint32_t words = sw_gc_mark_words(heap, span), filled = large ? 0 : sw_span_word_count(span);
    for (uint32_t k = 0; k < words; k++)
        meta->marks[k] = k < filled ? sw_word_all_seen(&span->words[k]) : ~0ull;
    if (large) meta->own = ~1ull;
    sw_gc_span_meta_set_stamp(meta, stamp);
}

/* --- types ------------------------------------------------------------------------------------ */

enum { NARROW_WORDS = 64 };

static void unify(const sw_heap *heap, sw_gc_span_meta *meta, uint32_t type) {
    const sw_gc_layout *layout = sw_gc_layout_of(heap->collector, type);
    uint32_t words = meta->bytes / 8;
    bool narrow = meta->bytes != 0 && words <= NARROW_WORDS;
    set_layout(meta, type, narrow ? layout->pattern & sw_low_mask(words) : 0);
}

/* Gives each slot of the span its own type. Without memory for the types, the span counts as
 * untyped until an object of another type is allocated: marking then follows every word of its
 * objects, which may retain garbage but loses no objects. A concurrent marker scans only older
 * objects, which have the span's type before and after. */
static void diversify(sw_heap *heap, const sw_span *span, sw_gc_span_meta *meta) {
    sw_os_lock_acquire(&heap->lock);
    uint32_t *types = sw_meta_alloc_stale(&heap->meta, span->slots * sizeof *types);
    sw_os_lock_release(&heap->lock);
    if (types == NULL) {
        unify(heap, meta, SW_GC_UNTYPED);
        return;
    }
    for (uint32_t i = 0; i < span->slots; i++) types[i] = meta->type;
    __atomic_store_n(&sw_gc_slot_types[sw_space_span_id(heap->space, span)], types,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&meta->scan_mask, 0, __ATOMIC_RELAXED);
}

/* Records the type of the object at p, in a span whose objects have pointers. */
static void note_type(sw_heap *heap, const sw_span *span, uintptr_t p, uint32_t type) {
    sw_gc_span_meta *meta = sw_gc_span_meta_of(heap, span);
    uint32_t *const *types = &sw_gc_slot_types[sw_space_span_id(heap->space, span)];
    if (*types == NULL) {
        if (sw_likely(meta->type == type)) return;
        if (meta->type == SW_GC_TYPE_UNSET || sw_span_is_large(span))
            unify(heap, meta, type);
        else
            diversify(heap, span, meta);
    }
    if (*types != NULL) (*types)[sw_span_slot_of(span, p)] = type;
}

/* A hook: the generic path has allocated an object of this type. While the bin keeps this span,
 * sw_gc_new allocates more objects of the type from the bin's word without reading the metadata. A
 * bin of objects without pointers has no type and serves all such types. */
void sw_gc_span_meta_typed(sw_cache *cache, const sw_span *span, uintptr_t p, uint32_t type) {
    cache->bins[span->span_class].gc_next_bit = 0; /* the bin may have changed to another word */
    if ((span->span_class & 1) != 0) return;
    note_type(cache->heap, span, p, type);
    if (sw_span_is_large(span)) return;
    uint32_t id = sw_space_span_id(cache->heap->space, span);
    cache->bins[span->span_class].gc_type =
        sw_gc_slot_types[id] == NULL ? sw_gc_span_metas[id].type : SW_GC_UNTYPED;
}

/* --- grey objects ----------------------------------------------------------------------------- */

/* The queue is linked through the spans' grey_bits, so that adding a span needs no memory. */

sw_gc_grey_bits **sw_gc_grey_bits_of;

const char *sw_gc_grey_bits_check(const sw_gc_grey_bits *grey_bits, const sw_gc_span_meta *meta) {
    uint64_t grey = 0, unmarked = 0;
    for (uint32_t k = 0; k < grey_bits->words; k++) {
        grey |= grey_bits->bits[k];
        unmarked |= grey_bits->bits[k] & ~meta->marks[k];
    }
    return SW_RULE(unmarked == 0) ?: SW_RULE(grey == 0 || grey_bits->is_queued)
        ?: SW_RULE(grey_bits->next == 0 || grey_bits->is_queued);
}

static const char *sw_gc_span_queue_check(const sw_gc_span_queue *queue) {
    return SW_RULE((queue->first == 0) == (queue->last == 0))
               ?: SW_RULE(queue->last == 0 || sw_gc_grey_bits_of[queue->last]->next == 0);
}

static size_t grey_bits_bytes(uint32_t words) {
    return sizeof(sw_gc_grey_bits) + words * sizeof(uint64_t);
}

/* Allocates the grey_bits of a span, without a stamp. NULL: no memory. */
static sw_gc_grey_bits *make(sw_heap *heap, uint32_t id) {
    uint32_t words = sw_gc_mark_words(heap, sw_space_span(heap->space, id));
    sw_os_lock_acquire(&heap->lock);
    sw_gc_grey_bits *grey_bits = sw_meta_alloc(&heap->meta, grey_bits_bytes(words));
    sw_os_lock_release(&heap->lock);
    if (grey_bits == NULL) return NULL;
    grey_bits->words = words & INT32_MAX;
    sw_gc_grey_bits_of[id] = grey_bits;
    return grey_bits;
}

sw_gc_grey_bits *sw_gc_grey_bits_begin(const sw_gc_marker *marker, uint32_t id) {
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    if (grey_bits == NULL) grey_bits = make(marker->gc->heap, id);
    if (grey_bits == NULL) return NULL;
    grey_bits->stamp = marker->stamp;
    grey_bits->next = grey_bits->is_queued = 0;
    memset(grey_bits->bits, 0, grey_bits->words * sizeof *grey_bits->bits);
    return grey_bits;
}

void sw_gc_grey_bits_end(sw_heap *heap, uint32_t id) {
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    if (grey_bits != NULL) sw_meta_free(&heap->meta, grey_bits, grey_bits_bytes(grey_bits->words));
    sw_gc_grey_bits_of[id] = NULL;
}

/* --- the queue -------------------------------------------------------------------------------- */

void sw_gc_queue_append(sw_gc_span_queue *queue, uint32_t id) {
    sw_gc_grey_bits_of[id]->is_queued = 1;
    if (queue->last == 0)
        queue->first = id;
    else
        sw_gc_grey_bits_of[queue->last]->next = id;
    queue->last = id;
}

void sw_gc_queue_put_back(sw_gc_span_queue *queue, uint32_t id) {
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    grey_bits->is_queued = 1;
    grey_bits->next = queue->first;
    queue->first = id;
    if (queue->last == 0) queue->last = id;
}

void sw_gc_queue_take(sw_gc_span_queue *queue) {
    sw_check2(sw_gc_span_queue_check(queue));
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[queue->first];
    queue->first = grey_bits->next;
    if (queue->first == 0) queue->last = 0;
    grey_bits->next = grey_bits->is_queued = 0;
}

/* --- the mark stack --------------------------------------------------------------------------- */

/* The stack has at most 4 GiB, for 268 million entries; when it is full, the heap is rescanned
 * (mark.c). */
enum { FIRST_BYTES = 64 << 10, PURGED_BYTES = 512 << 10, MOST_LOG2 = 32, LEAST_LOG2 = 20 };

bool sw_gc_stack_start(sw_gc_stack *stack) {
    *stack = (sw_gc_stack){0};
    for (uint32_t log2 = MOST_LOG2; log2 >= LEAST_LOG2 && stack->base == NULL; log2 -= 4) {
        stack->base = sw_os_place((size_t)1 << log2, FIRST_BYTES);
        stack->reserved = ((size_t)1 << log2) / sizeof(sw_gc_grey);
    }
    if (stack->base == NULL) return false;
    stack->top = stack->dirty = stack->base;
    stack->end_seen = &stack->end;
    stack->end = stack->base + FIRST_BYTES / sizeof(sw_gc_grey);
    return true;
}

void sw_gc_stack_end(sw_gc_stack *stack) {
    if (stack->base != NULL)
        (void)sw_os_release(stack->base, (size_t)(stack->end - stack->base) * sizeof *stack->base);
    *stack = (sw_gc_stack){0};
}

static const char *sw_gc_stack_check(const sw_gc_stack *stack) {
    return SW_RULE(stack->base <= stack->top) ?: SW_RULE(stack->top <= stack->end)
        ?: SW_RULE((size_t)(stack->end - stack->base) <= stack->reserved)
        ?: SW_RULE(stack->base <= stack->dirty && stack->dirty <= stack->end);
}

bool sw_gc_stack_grow(sw_gc_stack *stack) {
    sw_check2(sw_gc_stack_check(stack));
    size_t entries = (size_t)(stack->end - stack->base);
    size_t more = sw_max_u64(entries, FIRST_BYTES / sizeof(sw_gc_grey));
    if (entries + more > stack->reserved) return false;
    if (sw_os_map_at(stack->end, more * sizeof *stack->end) != SW_OS_MAPPED) return false;
    stack->end += more;
    __atomic_store_n(stack->end_seen, stack->end, __ATOMIC_RELAXED);
    return true;
}

static void exchange(sw_gc_stack *one, sw_gc_stack *other) {
    sw_gc_stack kept = *one;
    *one = *other;
    *other = kept;
    other->end_seen = one->end_seen;
    one->end_seen = kept.end_seen;
}

size_t sw_gc_stack_merge(sw_gc_stack *to, sw_gc_stack *from) {
    if (to->top - to->base < from->top - from->base) exchange(to, from);
    size_t count = (size_t)(from->top - from->base);
    while ((size_t)(to->end - to->top) < count)
        if (!sw_gc_stack_grow(to)) break;
    size_t fits = sw_min_u64(count, (uint64_t)(to->end - to->top));
    memcpy(to->top, from->base, fits * sizeof *to->top);
    to->top += fits;
    from->top = from->base;
    return count - fits;
}

void sw_gc_stack_share(sw_gc_stack *to, sw_gc_stack *from, size_t count) {
    memcpy(to->base, from->base, count * sizeof *to->base);
    to->top = to->base + count;
    from->top -= count;
    memcpy(from->base, from->top, count * sizeof *to->base);
}

void sw_gc_stack_take(sw_gc_stack *to, sw_gc_stack *from, size_t count) {
    from->top -= count;
    memcpy(to->base, from->top, count * sizeof *to->base);
    to->top = to->base + count;
}

void sw_gc_stack_clear(sw_gc_stack *stack) {
    stack->top = stack->base;
    stack->dirty = stack->end;
}

bool sw_gc_stack_purge(sw_gc_stack *stack, bool whole) {
    size_t dirty = (size_t)((char *)stack->dirty - (char *)stack->base);
    if (dirty <= FIRST_BYTES) return true;
    size_t bytes = dirty - FIRST_BYTES;
    if (!whole && bytes > PURGED_BYTES) bytes = PURGED_BYTES;
    stack->dirty -= bytes / sizeof *stack->dirty;
    (void)sw_os_purge(stack->dirty, bytes);
    return dirty - bytes <= FIRST_BYTES;
}

/* --- walks ------------------------------------------------------------------------------------ */

/* The walk goes over batches of records, which a heap keeps until its end (heap/central.c). */

static const char *sw_gc_span_cursor_check(const sw_gc_span_cursor *place) {
    return SW_RULE(place->first == 0 || place->id - place->first < SW_SPAN_BATCH);
}

sw_gc_span_cursor sw_gc_span_cursor_begin(const sw_heap *heap) {
    return (sw_gc_span_cursor){.first = heap->batches, .id = heap->batches};
}

uint32_t sw_gc_span_cursor_next(const sw_heap *heap, sw_gc_span_cursor *place) {
    sw_check2(sw_gc_span_cursor_check(place));
    uint32_t id = place->id++;
    if (place->id == place->first + SW_SPAN_BATCH)
        place->first = place->id = heap->space->cold[place->first].batch_next;
    return id;
}
