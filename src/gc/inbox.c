/* SPDX-License-Identifier: Apache-2.0 */
/* The thread finds its buffer by a pointer in its cache. The cache outlives the thread, so the
 * buffer names its thread. */
#include "gc/inbox.h"

#include "base/assert.h"
#include "base/bits.h"
#include "gc/span_meta.h"
#include "heap/cache.h"
#include "heap/registry.h"

_Static_assert(sizeof(sw_gc_buffer) == 4096, "a buffer is a page");

const char *sw_gc_buffer_check(const sw_gc_buffer *buffer) {
    return SW_RULE(buffer->count <= SW_GC_BUFFER_WORDS);
}

static uintptr_t owner_of(const sw_gc_buffer *buffer) {
    return __atomic_load_n(&buffer->at, __ATOMIC_RELAXED);
}

/* --- under the lock --------------------------------------------------------------------------- */

void sw_gc_inbox_add(sw_gc *gc, uintptr_t value) {
    if (!sw_gc_try_push(&gc->inbox, SW_GC_WORD, value)) gc->lost = true;
}

static sw_gc_buffer *find(const sw_gc *gc, uintptr_t at) {
    sw_gc_buffer *buffer = gc->buffers;
    while (buffer != NULL && owner_of(buffer) != at) buffer = buffer->next;
    return buffer;
}

/* The words of a cycle that has ended meanwhile are dropped. */
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

/* The words of a step of `filter`: the fetches of so many span metas, then marks, overlap. */
enum { STEP_WORDS = 64 };

/* Finds the word of an object's mark. False: this cycle has not prepared the span, or has been
 * abandoned meanwhile, and the span released: sw_gc_span_meta_gone clears the stamp first. */
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

/* Does not look at the value, because the thread would wait for the fetch of the overwritten word,
 * and then for its mark. */
void sw_gc_inbox_keep(sw_gc *gc, uintptr_t value) {
    sw_cache *cache = sw_registry_cache_at(gc->heap_index);
    sw_gc_buffer *own = cache == NULL ? NULL : cache->cold->collector_buffer;
    if (own != NULL && sw_unlikely(owner_of(own) != sw_gc_here())) own = NULL;
    if (sw_unlikely(own == NULL) || sw_unlikely(own->count == SW_GC_BUFFER_WORDS)) {
        keep_slowly(gc, cache, own, value);
        return;
    }
    own->words[own->count++] = value;
}
