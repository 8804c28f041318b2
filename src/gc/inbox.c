/* SPDX-License-Identifier: Apache-2.0 */
/* The thread finds its buffer by a pointer in its cache, which outlives the thread; so the buffer
 * says whose it is. */
#include "gc/inbox.h"

#include "base/assert.h"
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
        sw_gc_inbox_add(gc, buffer->words[i]);
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

/* Hands a full buffer over, or finds the buffer of a thread that has just got it. */
static sw_noinline void keep_locked(sw_gc *gc, sw_cache *cache, uintptr_t value) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_buffer *own = cache == NULL ? NULL : find(gc, sw_gc_here());
    if (cache != NULL) cache->cold->collector_buffer = own;
    if (own != NULL) hand_over(gc, own);
    if (gc->phase == SW_GC_MARKING) sw_gc_inbox_add(gc, value);
    sw_os_lock_release(&gc->lock);
}

/* Returns whether the object is marked already, as all new ones are. */
static bool is_marked(const sw_gc *gc, uintptr_t value) {
    uint32_t id = sw_space_id_of(gc->heap->space, value);
    const sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    uint64_t stamp = sw_gc_stamp(gc, __atomic_load_n(&gc->epoch, __ATOMIC_RELAXED));
    if (sw_gc_span_meta_stamp(meta) != stamp) return false;
    uint64_t slot = (uint64_t)(((sw_product)(value - meta->base) * meta->magic) >> 64);
    return (__atomic_load_n(&meta->marks[slot / 64], __ATOMIC_RELAXED) >> slot % 64 & 1) != 0;
}

void sw_gc_inbox_keep(sw_gc *gc, uintptr_t value) {
    if (is_marked(gc, value)) return;
    sw_cache *cache = sw_registry_cache_at(gc->heap_index);
    sw_gc_buffer *own = cache == NULL ? NULL : cache->cold->collector_buffer;
    if (sw_unlikely(own == NULL) || sw_unlikely(owner_of(own) != sw_gc_here()) ||
        sw_unlikely(own->count == SW_GC_BUFFER_WORDS)) {
        keep_locked(gc, cache, value);
        return;
    }
    own->words[own->count++] = value;
}
