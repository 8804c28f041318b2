/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/hold.h"

#include "guard/clear.h"
#include "guard/object.h"
#include "guard/sample.h"

enum { HELD_LOG2 = 10 };
_Static_assert(SW_GUARD_HELD == 1 << HELD_LOG2, "places are drawn by a shift");

/* A longer object is not checked when it leaves, but only when its slot is reused: loading its cold
 * lines twice would cost more than clearing it. */
enum { CHECKED_BYTES_MAX = 512 };

static sw_cold void release_dirty(sw_cache *cache, void *p, size_t bytes, const char *op) {
    sw_guard_check_clear(p, bytes, op);
    sw_free_slow(cache, p, op);
}

sw_noinline void sw_guard_release(sw_cache *cache, void *p, const char *op) {
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, p, &slot);
    if (sw_unlikely(span == NULL)) {
        sw_free_slow(cache, p, op);
        return;
    }
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    if ((sw_guard.on & SW_GUARD_ZERO) != 0 && bytes <= CHECKED_BYTES_MAX &&
        sw_unlikely(!sw_guard_is_clear(p, bytes)))
        release_dirty(cache, p, bytes, op);
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

static void leave(void *record) {
    sw_guard_thread *own = record;
    for (size_t i = 0; i < SW_GUARD_HELD; i++)
        if (own->held[i] != NULL) sw_guard_release(own->cache, own->held[i], "thread exit");
    (void)sw_os_release(own, sizeof *own);
}

sw_guard_thread *sw_guard_thread_make(sw_cache *cache) {
    sw_guard_thread *own = sw_os_map(sizeof *own);
    if (own == NULL) return NULL;
    own->cache = cache;
    own->random = sw_guard.key ^ (uintptr_t)own;
    own->countdown = sw_sample_draw();
    if (sw_thread_set_extra(own, leave)) return own;
    (void)sw_os_release(own, sizeof *own);
    return NULL;
}
