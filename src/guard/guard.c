/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/guard.h"

#include <errno.h>
#include <string.h>

#include "guard/sample.h"
#include "guard/state.h"

/* --- held objects ----------------------------------------------------------------------------- */

enum { HELD_LOG2 = 10 };
_Static_assert(SW_GUARD_HELD == 1 << HELD_LOG2, "places are drawn by a shift");

/* A longer object is not checked when it leaves, but only when its slot is reused: loading its cold
 * lines twice would cost more than clearing it. */
enum { CHECKED_BYTES_MAX = 512 };

/* If the program continues, the object is cleared, so that its span, which another class may get,
 * is not reported for the same write. */
static sw_cold void release_dirty(sw_cache *cache, void *p, size_t bytes, const char *op) {
    sw_guard_check_clear(sw_guard_of(cache->heap), p, bytes, op);
    memset(p, 0, bytes);
    sw_free_unguarded(cache, p, op);
}

static sw_always_inline bool is_dirty(const sw_cache *cache, const sw_span *span, const void *p) {
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    return (sw_guard_of(cache->heap)->on & SW_GUARD_ZERO) != 0 && bytes <= CHECKED_BYTES_MAX &&
           !sw_guard_is_clear(p, bytes);
}

/* Releases a large object, or any object of a cache without a view (sw_heap_view). */
static sw_cold void release_unseen(sw_cache *cache, void *p, const char *op) {
    sw_target target = sw_target_find(cache->heap, p);
    if (target.misuse == SW_MISUSE_NONE && !target.large && is_dirty(cache, target.span, p))
        release_dirty(cache, p, sw_slot_bytes(cache->table, target.span), op);
    else
        sw_free_unguarded(cache, p, op);
}

sw_noinline void sw_guard_release(sw_cache *cache, void *p, const char *op) {
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, p, &slot);
    if (sw_unlikely(span == NULL)) {
        release_unseen(cache, p, op);
        return;
    }
    if (sw_unlikely(is_dirty(cache, span, p)))
        release_dirty(cache, p, sw_slot_bytes(cache->table, span), op);
    else
        sw_template_free_slot(cache, span, slot, p, op, sw_free_slow);
}

/* Begins to load what the release of an object will read. */
static sw_always_inline void prefetch(const sw_cache *cache, const void *p) {
    uint64_t frame = ((uintptr_t)p - cache->base) >> SW_FRAME_SHIFT;
    __builtin_prefetch(p);
    if (frame < cache->frames) __builtin_prefetch(&cache->spans[cache->page_map[frame]]);
}

void sw_hold(sw_guard_thread *own, void *p, const char *op) {
    void **place = &own->held[own->place], *last = *place;
    *place = p;
    own->place = sw_guard_next_random(own) >> (64 - HELD_LOG2);
    prefetch(own->cache, own->held[own->place]);
    if (sw_likely(last != NULL)) sw_guard_release(own->cache, last, op);
}

/* Releases the oldest held large object. False: there is none. */
static bool release_large(sw_guard_state *guard, sw_cache *cache, void *p, const char *op) {
    if (p == NULL) return false;
    /* If the system refuses, the object stays inaccessible. */
    if (sw_os_commit(p, sw_guarded_find(guard->heap, p).bytes)) sw_free_unguarded(cache, p, op);
    return true;
}

/* Replaces the oldest held large object, which it returns. */
static void *exchange_large(sw_guard_state *guard, void *p) {
    sw_held_large *large = &guard->large;
    sw_os_lock_acquire(&guard->samples.lock);
    void *oldest = large->objects[large->place];
    large->objects[large->place] = p;
    large->place = (large->place + 1) % SW_HELD_LARGE;
    sw_os_lock_release(&guard->samples.lock);
    return oldest;
}

/* Holds a large object, which is marked as held. False: it is too small, too large, or the system
 * refuses to make it inaccessible. */
static bool hold_large(sw_guard_state *guard, sw_cache *cache, void *p, size_t bytes,
                       const char *op) {
    if ((guard->on & SW_GUARD_HOLD) == 0 || bytes < SW_HELD_LARGE_MIN ||
        bytes > SW_HELD_LARGE_MAX || !sw_os_purge(p, bytes) || !sw_os_uncommit(p, bytes))
        return false;
    (void)release_large(guard, cache, exchange_large(guard, p), op);
    return true;
}

/* Before memory runs out. False: nothing was held. */
static sw_cold bool release_all_large(sw_cache *cache) {
    sw_guard_state *guard = sw_guard_of(cache->heap);
    bool some = false;
    for (int i = 0; i < SW_HELD_LARGE; i++)
        some |= release_large(guard, cache, exchange_large(guard, NULL), "malloc");
    return some;
}

void sw_guard_record_end(sw_guard_thread *own, const char *op) {
    size_t held = (own->guard->on & SW_GUARD_HOLD) != 0 && op != NULL ? SW_GUARD_HELD : 0;
    for (size_t i = 0; i < held; i++)
        if (own->held[i] != NULL) sw_guard_release(own->cache, own->held[i], op);
    (void)sw_os_release(own, sizeof *own);
}

sw_guard_thread *sw_guard_record_make(sw_cache *cache) {
    sw_guard_thread *own = sw_os_map(sizeof *own);
    if (own == NULL) return NULL;
    own->cache = cache;
    own->guard = sw_guard_of(cache->heap);
    own->random = own->guard->key ^ (uintptr_t)own;
    own->countdown = sw_sample_draw(own->guard);
    return own;
}

static void leave(void *record) { sw_guard_record_end(record, "thread exit"); }

sw_guard_thread *sw_guard_thread_make(sw_cache *cache) {
    sw_guard_thread *own = sw_guard_record_make(cache);
    if (own == NULL) return NULL;
    if (sw_thread_set_extra(own, leave)) return own;
    (void)sw_os_release(own, sizeof *own);
    return NULL;
}

void sw_guard_begin(sw_guard_state *guard, sw_heap *heap, unsigned on) {
    bool quick = (on & SW_GUARD_PAGES) == 0;
    guard->heap = heap;
    guard->on = on;
    guard->key = sw_os_random();
    uint32_t cls = heap->table->class_count - 1;
    while (quick && heap->table->classes[cls].size > SW_QUICK_MAX) cls--;
    guard->quick_max = quick ? heap->table->classes[cls].size - 1 : 0;
    sw_sample_start(guard);
}

void sw_guard_start(sw_heap *heap, unsigned on) {
    sw_guard = (sw_guard_state){.heap = heap};
    heap->guard_state = &sw_guard;
    sw_guard_begin(&sw_guard, heap, on);
    sw_guard_sampling = on == SW_GUARD_SAMPLE && heap->mode == 0;
    sw_sampled = (struct sw_sampled){0};
    if (sw_guard_sampling) sw_sampled = sw_sample_range(&sw_guard);
}

void sw_guard_end(sw_guard_state *guard) { sw_sample_end(guard); }

/* --- allocation ------------------------------------------------------------------------------- */

/* Returns the bytes of the slot, or of the pages, that the heap made for `asked` bytes. */
static size_t bytes_of(sw_heap *heap, const void *p, size_t asked, size_t align) {
    const sw_table *table = heap->table;
    if (align == 0 && asked <= table->max_size)
        return table->classes[sw_size_class(table, asked)].size;
    return sw_guarded_find(heap, p).bytes;
}

static void *ask(sw_cache *cache, size_t asked, size_t align, unsigned flags) {
    return align == 0 ? sw_cache_alloc(cache, asked, flags | SW_UNGUARDED)
                      : sw_cache_alloc_aligned(cache, asked, align, flags | SW_UNGUARDED);
}

static void *alloc_in_heap(sw_cache *cache, size_t size, size_t align, unsigned flags,
                           sw_guard_kind kind) {
    const sw_guard_state *guard = sw_guard_of(cache->heap);
    size_t asked = size + (size <= PTRDIFF_MAX); /* a size that fails must fail */
    void *p = ask(cache, asked, align, flags);
    if (sw_unlikely(p == NULL) && asked <= PTRDIFF_MAX && release_all_large(cache))
        p = ask(cache, asked, align, flags);
    if (sw_unlikely(p == NULL)) return NULL;
    size_t bytes = bytes_of(cache->heap, p, asked, align);
    sw_guard_check_clear(guard, p, bytes < SW_CHECKED_BYTES_MAX ? bytes : SW_CHECKED_BYTES_MAX,
                         "malloc");
    return sw_guarded_end(guard, p, size, bytes, kind);
}

/* Counts an allocation, unless sw_guard_alloc did so. */
static bool is_sampled(const sw_guard_state *guard, sw_guard_thread *own) {
    if ((guard->on & SW_GUARD_PAGES) != 0) return true;
    if (own == NULL || (own->countdown != 0 && --own->countdown != 0)) return false;
    own->countdown = sw_sample_draw(guard);
    return true;
}

void *sw_guard_alloc_any(sw_cache *cache, sw_guard_thread *own, size_t size, size_t align,
                         unsigned flags, sw_guard_kind kind) {
    sw_guard_state *guard = sw_guard_of(cache->heap);
    void *p = NULL;
    if (size == 0 && align <= SW_EMPTY_ALIGN) p = sw_empty_alloc(guard);
    if (p == NULL && is_sampled(guard, own)) p = sw_sample_alloc(guard, size, align, kind);
    return p != NULL ? p : alloc_in_heap(cache, size, align, flags, kind);
}

/* --- free ------------------------------------------------------------------------------------- */

/* Checks the canary, the size that the caller states, and the family of the free. */
static void check_end(const sw_guard_state *guard, const void *p, const sw_guarded *object,
                      size_t stated, const sw_guard_kind *kind, const char *op) {
    size_t size = object->requested - 1;
    sw_guard_kind allocated = SW_GUARD_MALLOC;
    bool ends = (guard->on & SW_GUARD_ENDS) != 0, finds = (guard->on & SW_GUARD_CANARY) != 0;
    bool whole = ends && sw_canary_read(guard->key, p, size, object->bytes, &allocated);
    sw_misuse misuse =
        finds && !whole                        ? SW_MISUSE_OVERFLOW
        : stated != SIZE_MAX && stated != size ? SW_MISUSE_SIZE_MISMATCH
        : whole && kind != NULL && *kind != allocated && (guard->on & SW_GUARD_MATCH) != 0
            ? SW_MISUSE_MISMATCHED_FREE
            : SW_MISUSE_NONE;
    if (misuse != SW_MISUSE_NONE) sw_guard_report(guard->heap, misuse, op, p, size);
}

static void clear(void *p, size_t bytes) {
    if (bytes < SW_PURGED_BYTES_MIN || !sw_os_purge(p, bytes)) memset(p, 0, bytes);
}

static void free_in_heap(sw_cache *cache, sw_guard_thread *own, void *p, size_t stated,
                         sw_guard_kind kind, const char *op) {
    sw_guard_state *guard = sw_guard_of(cache->heap);
    sw_guarded object = sw_guarded_find(guard->heap, p);
    bool mine = object.target.misuse == SW_MISUSE_NONE;
    if (mine && !sw_guarded_hold(&object)) {
        object.target.misuse = SW_MISUSE_DOUBLE_FREE;
        mine = false;
    }
    if (!mine) {
        sw_target_report(guard->heap, &object.target, op, p, 0);
        return;
    }
    check_end(guard, p, &object, stated, &kind, op);
    if (object.target.large && hold_large(guard, cache, p, object.bytes, op)) return;
    if ((guard->on & SW_GUARD_ZERO) != 0) clear(p, object.bytes);
    if ((guard->on & SW_GUARD_HOLD) != 0 && own != NULL && !object.target.large)
        sw_hold(own, p, op);
    else
        sw_guard_release(cache, p, op);
}

void sw_guard_free_any(sw_cache *cache, sw_guard_thread *own, void *ptr, size_t stated,
                       sw_guard_kind kind, const char *op) {
    if (ptr == NULL) return;
    int saved_errno = errno;
    sw_guard_state *guard = sw_guard_of(cache->heap);
    if (sw_empty_owns(guard, ptr))
        sw_empty_free(guard, ptr, stated, op);
    else if (sw_sample_owns(guard, ptr))
        sw_sample_free(guard, ptr, stated, kind, op);
    else
        free_in_heap(cache, own, ptr, stated, kind, op);
    errno = saved_errno;
}

/* --- sizes ------------------------------------------------------------------------------------ */

bool sw_guard_size(sw_heap *heap, const void *ptr, const char *op, size_t *size) {
    sw_guard_state *guard = sw_guard_of(heap);
    if (sw_empty_owns(guard, ptr)) return sw_empty_check(guard, ptr, op, size);
    if (sw_sample_owns(guard, ptr)) return sw_sample_size(guard, ptr, op, size);
    sw_guarded object = sw_guarded_find(heap, ptr);
    if (object.target.misuse != SW_MISUSE_NONE) {
        sw_target_report(heap, &object.target, op, ptr, 0);
        return false;
    }
    check_end(guard, ptr, &object, SIZE_MAX, NULL, op);
    *size = object.requested - 1;
    return true;
}

size_t sw_guard_usable(sw_heap *heap, const void *ptr) {
    size_t size;
    return ptr != NULL && sw_guard_size(heap, ptr, "malloc_usable_size", &size) ? size : 0;
}

/* --- forks ------------------------------------------------------------------------------------ */

void sw_guard_fork_prepare(void) { sw_sample_lock(&sw_guard); }
void sw_guard_fork_parent(void) { sw_sample_unlock(&sw_guard); }
void sw_guard_fork_child(void) { sw_sample_reset(&sw_guard); }
