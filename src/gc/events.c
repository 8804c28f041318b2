/* SPDX-License-Identifier: Apache-2.0 */
/* The ring holds events ordered by their end. When it is full, a new event replaces the oldest, so
 * a program that never removes any keeps the latest ones. The index in the ring follows from the
 * number of the event. */
#include "gc/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "os/os.h"

/* --- rings ------------------------------------------------------------------------------------ */

static const char *sw_gc_ring_check(const sw_gc_ring *ring) {
    return SW_RULE((ring->items == NULL) == (ring->capacity == 0))
        ?: SW_RULE(ring->taken <= ring->ended)
        ?: SW_RULE(ring->ended - ring->taken <= ring->capacity);
}

/* Returns the index of the next item. */
static uint64_t ring_next(sw_gc_ring *ring) {
    if (ring->ended - ring->taken == ring->capacity) {
        ring->taken++;
        ring->lost++;
    }
    uint64_t at = ring->ended++ % ring->capacity;
    sw_check2(sw_gc_ring_check(ring));
    return at;
}

static void ring_end(sw_gc_ring *ring, size_t item_bytes) {
    if (ring->items != NULL) (void)sw_os_release(ring->items, ring->capacity * item_bytes);
    ring->items = NULL;
    ring->taken = ring->ended = ring->lost = 0;
    __atomic_store_n(&ring->capacity, 0, __ATOMIC_RELAXED);
}

static sw_status ring_start(sw_gc *gc, sw_gc_ring *ring, size_t capacity, size_t item_bytes,
                            const char *op) {
    if (capacity > SW_GC_EVENTS_MAX)
        return sw_fail(SW_INVALID, op, "%zu events: at most %u are kept", capacity,
                       SW_GC_EVENTS_MAX);
    void *items = capacity == 0 ? NULL : sw_os_map(capacity * item_bytes);
    if (capacity != 0 && items == NULL)
        return sw_fail(SW_NOMEM, op, "no memory for %zu events", capacity);
    sw_os_lock_acquire(&gc->lock);
    ring_end(ring, item_bytes);
    ring->items = items;
    __atomic_store_n(&ring->capacity, capacity, __ATOMIC_RELAXED);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

/* Removes items into out, in order; returns how many. */
static size_t ring_take(sw_gc *gc, sw_gc_ring *ring, size_t item_bytes, void *out, size_t most,
                        uint64_t *lost) {
    sw_os_lock_acquire(&gc->lock);
    size_t count = sw_min_u64(most, ring->ended - ring->taken);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = ring->taken++ % ring->capacity;
        memcpy((char *)out + i * item_bytes, (char *)ring->items + at * item_bytes, item_bytes);
    }
    if (lost != NULL) *lost = ring->lost;
    ring->lost = 0;
    sw_os_lock_release(&gc->lock);
    return count;
}

/* --- events and pauses ------------------------------------------------------------------------ */

static void add_event(sw_gc *gc, sw_gc_event_kind kind, uint64_t begin_ns, uint64_t end_ns) {
    sw_gc_event *events = gc->ring.items;
    events[ring_next(&gc->ring)] = (sw_gc_event){.start_ns = begin_ns - gc->born_ns,
                                                 .ns = end_ns - begin_ns,
                                                 .cycle = gc->cycle.number,
                                                 .thread = sw_os_thread_id(),
                                                 .kind = kind};
}

void sw_gc_events_add(sw_gc *gc, sw_gc_event_kind kind, uint64_t begin_ns) {
    add_event(gc, kind, begin_ns, gc->clock());
}

void sw_gc_pause_note(sw_gc *gc, sw_gc_phase phase, uint64_t begin_ns) {
    if (begin_ns == 0) return;
    uint64_t end = gc->clock();
    sw_gc_pause *pauses = gc->pauses.items;
    if (sw_gc_events_on(gc)) add_event(gc, SW_GC_EVENT_PAUSE, begin_ns, end);
    if (pauses == NULL) return;
    pauses[ring_next(&gc->pauses)] =
        (sw_gc_pause){.start_ns = begin_ns - gc->born_ns,
                      .ns = end - begin_ns,
                      .cycle = gc->cycle.number,
                      .phase = phase,
                      .held_bytes = sw_pages_held_bytes(&gc->heap->pages)};
}

void sw_gc_events_end(sw_gc *gc) {
    ring_end(&gc->ring, sizeof(sw_gc_event));
    ring_end(&gc->pauses, sizeof(sw_gc_pause));
}

sw_status sw_gc_record_events(sw_gc *gc, size_t capacity) {
    const char *op = "gc_record_events";
    sw_status status = SW_GC_STATUS(gc, op);
    return status != SW_OK ? status : ring_start(gc, &gc->ring, capacity, sizeof(sw_gc_event), op);
}

sw_status sw_gc_record_pauses(sw_gc *gc, size_t capacity) {
    const char *op = "gc_record_pauses";
    sw_status status = SW_GC_STATUS(gc, op);
    return status != SW_OK ? status
                           : ring_start(gc, &gc->pauses, capacity, sizeof(sw_gc_pause), op);
}

size_t sw_gc_take_events(sw_gc *gc, sw_gc_event *events, size_t most, uint64_t *lost) {
    if (lost != NULL) *lost = 0;
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_take_events")) return 0;
    return ring_take(gc, &gc->ring, sizeof *events, events, most, lost);
}

size_t sw_gc_take_pauses(sw_gc *gc, sw_gc_pause *pauses, size_t most, uint64_t *lost) {
    if (lost != NULL) *lost = 0;
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_take_pauses")) return 0;
    return ring_take(gc, &gc->pauses, sizeof *pauses, pauses, most, lost);
}

/* --- the trace line --------------------------------------------------------------------------- */

/* Nothing here allocates, because the line is written while the world is stopped. */

bool sw_gc_trace_asked(void) {
    const char *asked = "gctrace=1", *text = getenv("SPANWISE_DEBUG");
    size_t length = strlen(asked);
    while (text != NULL && *text != '\0') {
        if (strncmp(text, asked, length) == 0 && (text[length] == ',' || text[length] == '\0'))
            return true;
        text = strchr(text, ',');
        if (text != NULL) text++;
    }
    return false;
}

enum { LINE = 640, MB = 1 << 20, PARTS = 7 };

/* Milliseconds with two significant digits, as Go prints them: 0, 0.034, 0.34, 3.4, 34, 340. */
static const char *in_ms(char text[32], uint64_t ns) {
    uint64_t number = ns / 1000;
    unsigned decimals = 3, unit = 1000;
    if (ns >= 10000000) number /= 1000, decimals = 0, unit = 1;
    for (; decimals != 0 && number >= 100; decimals--, unit /= 10) number /= 10;
    unsigned long long whole = number / unit, rest = number % unit;
    if (decimals == 0 || number == 0)
        (void)snprintf(text, 32, "%llu", whole);
    else
        (void)snprintf(text, 32, "%llu.%0*llu", whole, (int)decimals, rest);
    return text;
}

static uint64_t less(uint64_t from, uint64_t ns) { return from > ns ? from - ns : 0; }

/* The times of a line: the start, marking and its end or, of a cycle that was not concurrent, the
 * sweep; then processor time of the start, of assists, of other marking, and of that end. */
static void list_times(const sw_gc *gc, uint64_t *ns) {
    const sw_gc_cycle *cycle = &gc->cycle;
    bool concurrent = cycle->concurrent != 0;
    uint64_t end = concurrent ? gc->end_ns : cycle->sweep_ns;
    uint64_t marks = less(cycle->mark_ns, gc->start_ns + (concurrent ? end : 0));
    const uint64_t times[PARTS] = {gc->start_ns,
                                   marks,
                                   end,
                                   gc->start_ns,
                                   gc->assist_cpu_ns,
                                   concurrent ? cycle->background_ns : marks,
                                   end};
    memcpy(ns, times, sizeof times);
}

void sw_gc_trace_print(const sw_gc *gc) {
    const sw_gc_cycle *cycle = &gc->cycle;
    char line[LINE], ms[PARTS][32];
    uint64_t ns[PARTS], age = gc->clock() - gc->born_ns;
    unsigned long long after = cycle->marked_bytes, age_ms = age / 1000000;
    unsigned long long before = after + cycle->freed_bytes + cycle->pending_bytes;
    list_times(gc, ns);
    for (int i = 0; i < PARTS; i++) (void)in_ms(ms[i], ns[i]);
    (void)snprintf(line, sizeof line,
                   "gc %llu @%llu.%03llus %llu%%: %s+%s+%s ms clock, %s+%s/%s/0+%s ms cpu, "
                   "%llu->%llu->%llu MB, %llu MB goal, %llu MB stacks, %llu MB globals, %llu P",
                   (unsigned long long)cycle->number, age_ms / 1000, age_ms % 1000,
                   (unsigned long long)(age == 0 ? 0 : gc->spent_ns * 100 / age), ms[0], ms[1],
                   ms[2], ms[3], ms[4], ms[5], ms[6], before / MB, before / MB, after / MB,
                   (unsigned long long)gc->goal / MB, (unsigned long long)gc->stack_bytes / MB,
                   (unsigned long long)gc->global_bytes / MB, (unsigned long long)cycle->markers);
    sw_emergency_print("%s\n", line);
}
