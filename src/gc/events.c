/* SPDX-License-Identifier: Apache-2.0 */
/* The ring has the events in the order in which they ended. When it is full, a new event replaces
 * the oldest, so a program that never removes any keeps the latest ones. The number of an event
 * gives its index in the ring. */
#include "gc/events.h"

#include "base/assert.h"
#include "base/bits.h"
#include "base/fail.h"

const char *sw_gc_ring_check(const sw_gc_ring *ring) {
    return SW_RULE((ring->items == NULL) == (ring->capacity == 0))
        ?: SW_RULE(ring->taken <= ring->ended)
        ?: SW_RULE(ring->ended - ring->taken <= ring->capacity);
}

void sw_gc_events_add(sw_gc *gc, sw_gc_event_kind kind, uint64_t begin_ns) {
    sw_gc_ring *ring = &gc->ring;
    if (ring->ended - ring->taken == ring->capacity) {
        ring->taken++;
        ring->lost++;
    }
    ring->items[ring->ended++ % ring->capacity] = (sw_gc_event){.start_ns = begin_ns - gc->born_ns,
                                                                .ns = gc->clock() - begin_ns,
                                                                .cycle = gc->cycle.number,
                                                                .thread = sw_os_thread_id(),
                                                                .kind = kind};
    sw_check2(sw_gc_ring_check(ring));
}

void sw_gc_events_end(sw_gc *gc) {
    sw_gc_ring *ring = &gc->ring;
    if (ring->items != NULL) (void)sw_os_release(ring->items, ring->capacity * sizeof *ring->items);
    ring->items = NULL;
    ring->taken = ring->ended = ring->lost = 0;
    __atomic_store_n(&ring->capacity, 0, __ATOMIC_RELAXED);
}

sw_status sw_gc_record_events(sw_gc *gc, size_t capacity) {
    const char *op = "gc_record_events";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (capacity > SW_GC_EVENTS_MAX)
        return sw_fail(SW_INVALID, op, "%zu events: at most %u are kept", capacity,
                       SW_GC_EVENTS_MAX);
    sw_gc_event *items = capacity == 0 ? NULL : sw_os_map(capacity * sizeof *items);
    if (capacity != 0 && items == NULL)
        return sw_fail(SW_NOMEM, op, "no memory for %zu events", capacity);
    sw_os_lock_acquire(&gc->lock);
    sw_gc_events_end(gc);
    gc->ring.items = items;
    __atomic_store_n(&gc->ring.capacity, capacity, __ATOMIC_RELAXED);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

size_t sw_gc_take_events(sw_gc *gc, sw_gc_event *events, size_t most, uint64_t *lost) {
    if (lost != NULL) *lost = 0;
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_take_events")) return 0;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_ring *ring = &gc->ring;
    size_t count = sw_min_u64(most, ring->ended - ring->taken);
    for (size_t i = 0; i < count; i++) events[i] = ring->items[ring->taken++ % ring->capacity];
    if (lost != NULL) *lost = ring->lost;
    ring->lost = 0;
    sw_os_lock_release(&gc->lock);
    return count;
}
