/* SPDX-License-Identifier: Apache-2.0 */
/* Marks ranges, drains in either order, and handles an overflow of the mark stack. */
#include "gc/mark.h"

#include "base/base.h"
#include "gc/mark_scan.h"
#include "gc/parallel.h"
#include "gc/span_meta.h"
#include "heap/cache.h"
#include "heap/registry.h"

/* --- the inbox -------------------------------------------------------------------------------- */

/* The thread finds its buffer by a pointer in its cache. The cache outlives the thread, so the
 * buffer records its thread. */

_Static_assert(sizeof(sw_gc_buffer) == 4096, "a buffer is a page");

static const char *sw_gc_buffer_check(const sw_gc_buffer *buffer) {
    return SW_RULE(buffer->count <= SW_GC_BUFFER_WORDS);
}

static uintptr_t owner_of(const sw_gc_buffer *buffer) {
    return __atomic_load_n(&buffer->at, __ATOMIC_RELAXED);
}

/* --- under the lock --------------------------------------------------------------------------- */

/* Adds a word. Without memory for it, the cycle is abandoned later (gc->lost). */
static void sw_gc_inbox_add(sw_gc *gc, uintptr_t value) {
    if (!sw_gc_try_push(&gc->inbox, SW_GC_WORD, value)) gc->lost = true;
}

static sw_gc_buffer *find(const sw_gc *gc, uintptr_t at) {
    sw_gc_buffer *buffer = gc->buffers;
    while (buffer != NULL && owner_of(buffer) != at) buffer = buffer->next;
    return buffer;
}

/* Words of a cycle that has ended are dropped. */
static void hand_over(sw_gc *gc, sw_gc_buffer *buffer) {
    sw_check2(sw_gc_buffer_check(buffer));
    for (uint64_t i = 0; i < buffer->count && gc->phase == SW_GC_MARKING; i++)
        if (buffer->words[i] != 0) sw_gc_inbox_add(gc, buffer->words[i]);
    buffer->count = 0;
}

void sw_gc_inbox_join(sw_gc *gc, uintptr_t at) {
    if (gc->concurrent == 0) return;
    if (find(gc, at) != NULL) return;
    sw_gc_buffer *buffer = find(gc, 0);
    if (buffer == NULL) {
        buffer = sw_os_map(sizeof *buffer);
        if (buffer == NULL) return;
        buffer->next = gc->buffers;
        gc->buffers = buffer;
    }
    __atomic_store_n(&buffer->at, at, __ATOMIC_RELAXED);
}

void sw_gc_inbox_leave(sw_gc *gc, uintptr_t at) {
    sw_gc_buffer *buffer = find(gc, at);
    if (buffer == NULL) return;
    hand_over(gc, buffer);
    __atomic_store_n(&buffer->at, 0, __ATOMIC_RELAXED);
}

void sw_gc_inbox_gather(sw_gc *gc) {
    for (sw_gc_buffer *buffer = gc->buffers; buffer != NULL; buffer = buffer->next)
        hand_over(gc, buffer);
}

void sw_gc_inbox_clear(sw_gc *gc) {
    for (sw_gc_buffer *buffer = gc->buffers; buffer != NULL; buffer = buffer->next)
        buffer->count = 0;
    sw_gc_stack_clear(&gc->inbox);
}

size_t sw_gc_inbox_take(sw_gc *gc, uintptr_t *words, size_t most) {
    size_t count = 0;
    while (count < most && !sw_gc_inbox_is_empty(gc)) words[count++] = (--gc->inbox.top)->rest;
    return count;
}

void sw_gc_inbox_forked(sw_gc *gc) {
    for (sw_gc_buffer *buffer = gc->buffers; buffer != NULL; buffer = buffer->next) {
        buffer->count = 0;
        if (owner_of(buffer) != sw_gc_here()) __atomic_store_n(&buffer->at, 0, __ATOMIC_RELAXED);
    }
}

void sw_gc_inbox_end(sw_gc *gc) {
    for (sw_gc_buffer *buffer = gc->buffers, *next; buffer != NULL; buffer = next) {
        next = buffer->next;
        (void)sw_os_release(buffer, sizeof *buffer);
    }
    gc->buffers = NULL;
    sw_gc_stack_end(&gc->inbox);
}

/* --- without the lock ------------------------------------------------------------------------- */

/* Words per step of `filter`: the cache misses of their span metas overlap, then those of their
 * marks. */
enum { STEP_WORDS = 64 };

/* Finds the word of an object's mark. False: this cycle has not prepared the span, or the cycle was
 * abandoned and the span released: sw_gc_span_meta_gone clears the stamp first. */
static bool find_mark(const sw_gc_span_meta *meta, uint64_t stamp, uintptr_t p,
                      const uint64_t **mark, uint32_t *slot) {
    if (sw_gc_span_meta_stamp(meta) != stamp) return false;
    uintptr_t base = __atomic_load_n(&meta->base, __ATOMIC_ACQUIRE);
    uint64_t magic = __atomic_load_n(&meta->magic, __ATOMIC_ACQUIRE);
    const uint64_t *marks = __atomic_load_n(&meta->marks, __ATOMIC_ACQUIRE);
    if (sw_gc_span_meta_stamp(meta) != stamp) return false;
    *slot = (uint32_t)(((sw_product)(p - base) * magic) >> 64);
    *mark = &marks[*slot / 64];
    return true;
}

/* A word without an object counts as marked, one in a span without marks as unmarked. */
static void find_marks(const sw_gc *gc, const uintptr_t *words, uint32_t count,
                       const uint64_t **marks, uint32_t *slots) {
    static const uint64_t all = ~0ull, none = 0;
    uint64_t stamp = sw_gc_stamp(gc, __atomic_load_n(&gc->epoch, __ATOMIC_RELAXED));
    uint32_t ids[STEP_WORDS];
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = sw_space_id_of(gc->heap->space, words[i]);
        __builtin_prefetch(&sw_gc_span_metas[ids[i]]);
    }
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = 0;
        marks[i] = ids[i] < SW_SPAN_FIRST ? &all : &none;
        if (find_mark(&sw_gc_span_metas[ids[i]], stamp, words[i], &marks[i], &slots[i]))
            __builtin_prefetch(marks[i]);
    }
}

/* Drops words whose objects are marked, as all new ones are. */
static void filter(const sw_gc *gc, sw_gc_buffer *own) {
    uint64_t kept = 0;
    for (uint64_t first = 0; first < own->count; first += STEP_WORDS) {
        const uint64_t *marks[STEP_WORDS];
        uint32_t slots[STEP_WORDS];
        uint32_t count = (uint32_t)sw_min_u64(own->count - first, STEP_WORDS);
        find_marks(gc, &own->words[first], count, marks, slots);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t bits = __atomic_load_n(marks[i], __ATOMIC_RELAXED) >> slots[i] % 64;
            own->words[kept] = own->words[first + i];
            kept += ~bits & 1;
        }
    }
    own->count = kept;
}

/* Makes room in the thread's buffer, and adds the word; or finds the buffer of a thread that has
 * just got it. */
static sw_noinline void keep_slowly(sw_gc *gc, sw_cache *cache, sw_gc_buffer *own,
                                    uintptr_t value) {
    if (value == 0) return;
    if (own != NULL) filter(gc, own);
    if (own != NULL && own->count <= SW_GC_BUFFER_WORDS / 2) {
        own->words[own->count++] = value;
        return;
    }
    sw_os_lock_acquire(&gc->lock);
    own = cache == NULL ? NULL : find(gc, sw_gc_here());
    if (cache != NULL) cache->cold->collector_buffer = own;
    if (own != NULL) hand_over(gc, own);
    if (gc->phase == SW_GC_MARKING) sw_gc_inbox_add(gc, value);
    sw_os_lock_release(&gc->lock);
}

/* Adds the overwritten value of a write. No lock is held. Does not read the value's mark, because
 * the thread would wait for two dependent cache misses. */
static void sw_gc_inbox_keep(sw_gc *gc, uintptr_t value) {
    sw_cache *cache = sw_registry_cache_at(gc->heap_index);
    sw_gc_buffer *own = cache == NULL ? NULL : cache->cold->collector_buffer;
    if (own != NULL && sw_unlikely(owner_of(own) != sw_gc_here())) own = NULL;
    if (sw_unlikely(own == NULL) || sw_unlikely(own->count == SW_GC_BUFFER_WORDS)) {
        keep_slowly(gc, cache, own, value);
        return;
    }
    own->words[own->count++] = value;
}

/* --- marking ---------------------------------------------------------------------------------- */

void sw_gc_mark_range(sw_gc_marker *marker, const void *start, size_t bytes) {
    const uintptr_t *words = start;
    for (size_t i = 0; i < bytes / sizeof *words; i++) sw_gc_discover(marker, words[i]);
}

/* Returns true if no object is waiting to be scanned. */
static bool drain(sw_gc_marker *marker) {
    return marker->by_span ? sw_gc_drain_spans(marker) : sw_gc_drain_objects(marker);
}

static void drain_all(sw_gc_marker *marker) {
    int64_t work = marker->work;
    marker->work = SW_GC_ALL_WORK;
    (void)drain(marker);
    marker->work = work;
}

/* --- after an overflow ------------------------------------------------------------------------ */

/* Scans every marked object of the span again, because some of them may not have been scanned. Free
 * slots count as marked and are skipped. */
static void rescan(sw_gc_marker *marker, uint32_t id) {
    const sw_heap *heap = marker->gc->heap;
    const sw_gc_span_meta *meta = &marker->span_metas[id];
    const sw_span *span = sw_space_span(heap->space, id);
    if (meta->stamp != marker->stamp || meta->type == SW_GC_TYPE_UNSET) return;
    if (sw_span_is_large(span)) {
        if ((meta->own & 1) != 0) sw_gc_scan(marker, (sw_gc_grey){meta->base | SW_GC_WIDE, id});
        sw_gc_settle_all(marker);
        return;
    }
    for (uint32_t k = 0; k < sw_span_word_count(span); k++)
        for (uint64_t bits = meta->marks[k] & ~sw_word_all(&span->words[k]); bits != 0;
             bits &= bits - 1) {
            uintptr_t at = meta->base + (uintptr_t)(k * 64 + sw_ctz(bits)) * meta->bytes;
            bool narrow = meta->scan_mask != 0;
            sw_gc_scan(marker,
                       (sw_gc_grey){narrow ? at : at | SW_GC_WIDE, narrow ? meta->scan_mask : id});
            marker->work--;
            sw_gc_settle_all(marker);
            if (!marker->by_span && marker->stack.top == marker->stack.end) drain_all(marker);
        }
}

/* Returns true if every span was visited and the stack is empty. */
static bool rescan_all(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    while (!sw_gc_span_cursor_at_end(&gc->rescan)) {
        if (marker->work <= 0) return false;
        rescan(marker, sw_gc_span_cursor_next(gc->heap, &gc->rescan));
        if (!drain(marker)) return false;
    }
    return true;
}

static void note_refused(sw_gc_marker *marker) {
    marker->gc->cycle.overflows += marker->refused;
    if (marker->refused != 0) marker->gc->overflowed = true;
    marker->refused = 0;
}

bool sw_gc_mark_concurrently(sw_gc_marker *marker, const uintptr_t *words, size_t count) {
    sw_gc_pointer found[SW_GC_FOUND] = {0};
    marker->found = found;
    for (; count >= 64; count -= 64, words += 64) sw_gc_scan_words(marker, (uintptr_t)words, ~0ull);
    sw_gc_scan_words(marker, (uintptr_t)words, sw_low_mask((uint32_t)count));
    sw_gc_settle_all(marker);
    bool empty = drain(marker);
    marker->found = NULL;
    return empty;
}

/* An object that did not fit on the stack is marked, so it is found again among the marked ones.
 * Each round scans at least as many objects as the stack holds, so the loop terminates. */
bool sw_gc_mark_drain(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    sw_gc_pointer found[SW_GC_FOUND] = {0};
    marker->found = found;
    if (gc->pool != NULL && !marker->by_span && marker->work > SW_GC_ALL_WORK / 2)
        sw_gc_mark_parallel(marker);
    if (!drain(marker)) return false;
    for (;;) {
        if (!rescan_all(marker)) return false;
        note_refused(marker);
        if (!gc->overflowed) return true;
        gc->overflowed = false;
        gc->rescan = sw_gc_span_cursor_begin(gc->heap);
    }
}

void sw_gc_marker_start(sw_gc_marker *marker, sw_gc *gc, int64_t work) {
    sw_gc_marker_start_with(marker, gc, &gc->stack, work);
}

void sw_gc_marker_start_with(sw_gc_marker *marker, sw_gc *gc, sw_gc_stack *stack, int64_t work) {
    sw_heap *heap = gc->heap;
    *marker = (sw_gc_marker){.span_metas = sw_gc_span_metas,
                             .view = sw_space_view_now(heap->space),
                             .stamp = sw_gc_stamp(gc, gc->epoch),
                             .stack = *stack,
                             .home = stack,
                             .has_extras = sw_space_has_extras(heap->space),
                             .by_span = gc->cycle.order == SW_GC_BY_SPAN,
                             .marked = 1,
                             .gc = gc,
                             .work = work};
}

void sw_gc_marker_end(sw_gc_marker *marker) {
    note_refused(marker);
    *marker->home = marker->stack;
}

/* If the cycle has not visited the span, the span's owner may be preparing it now. Then the word
 * waits on the stack for the next step, in which no other thread is inside the heap. */
void sw_gc_mark_word(sw_gc *gc, uintptr_t value) {
    if (gc->concurrent != 0) {
        sw_gc_inbox_add(gc, value);
        return;
    }
    uint32_t id = sw_space_id_of(gc->heap->space, value);
    if (id < SW_SPAN_FIRST || !sw_gc_span_meta_is_of(gc->heap, id)) return;
    sw_gc_marker marker;
    sw_gc_marker_start(&marker, gc, 0);
    if (sw_gc_span_meta_stamp(&sw_gc_span_metas[id]) == marker.stamp) {
        sw_gc_discover_in(&marker, value, id);
    } else if (!sw_gc_try_push(&marker.stack, SW_GC_WORD, value)) {
        gc->lost = true;
    }
    sw_gc_marker_end(&marker);
}

/* --- the write barrier ------------------------------------------------------------------------ */

/* The write barrier. While a cycle marks, it marks the overwritten value, so that the value
 * survives (snapshot at the beginning). */

static sw_noinline void keep(sw_gc *gc, uintptr_t value) {
    sw_os_lock_acquire(&gc->lock);
    if (gc->phase == SW_GC_MARKING) sw_gc_mark_word(gc, value);
    sw_os_lock_release(&gc->lock);
}

/* A marker thread that reads the pointer sees the span of the object. */
static void store(void **word, void *value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

/* Slow path: a cycle marks, or the handle is not a live collector, which is reported. */
static sw_noinline void write_kept(sw_gc *gc, void **word, void *value) {
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_write")) return;
    void *old = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (sw_gc_is_concurrent(gc))
        sw_gc_inbox_keep(gc, (uintptr_t)old);
    else if (old != NULL)
        keep(gc, (uintptr_t)old);
    store(word, value);
}

/* write_kept is a tail call, so that a write outside marking saves no registers. */
void sw_gc_write(sw_gc *gc, void *at, void *value) {
    void **word = at;
    if (sw_unlikely(!sw_handle_lives(gc, offsetof(sw_gc, mark), SW_HANDLE_GC)) ||
        sw_unlikely(sw_gc_phase_seen(gc) == SW_GC_MARKING)) {
        write_kept(gc, word, value);
        return;
    }
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

void sw_gc_write_all(sw_gc *gc, void *at, void *const *values, size_t count) {
    void **words = at;
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_write_all")) return;
    bool marking = sw_gc_phase_seen(gc) == SW_GC_MARKING;
    for (size_t i = 0; i < count; i++) {
        if (sw_unlikely(marking))
            write_kept(gc, &words[i], values[i]);
        else
            __atomic_store_n(&words[i], values[i], __ATOMIC_RELAXED);
    }
}
