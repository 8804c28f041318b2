/* SPDX-License-Identifier: Apache-2.0 */
/* The merge: a priority queue of threads by stamp, and the resulting operations (merge.h). */
#include "trace/merge.h"

#include <stdlib.h>

#include "base/assert.h"

/* --- setting up ------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b) {
    const swt_entry *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static size_t count_threads(const swt_entry *order, size_t count) {
    size_t threads = 0;
    for (size_t i = 0; i < count; i++) threads += i == 0 || order[i].thread != order[i - 1].thread;
    return threads;
}

static bool less(const swt_queue_item *a, const swt_queue_item *b) {
    return a->stamp < b->stamp || (a->stamp == b->stamp && a->stream < b->stream);
}

static void sift_down(swt_merge *m, size_t i) {
    swt_queue_item item = m->queue[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= m->queue_count) break;
        if (child + 1 < m->queue_count && less(&m->queue[child + 1], &m->queue[child])) child++;
        if (!less(&m->queue[child], &item)) break;
        m->queue[i] = m->queue[child];
        i = child;
    }
    m->queue[i] = item;
}

static void set_up_streams(swt_merge *m, size_t entries) {
    size_t next = 0;
    for (size_t i = 0; i < entries; i++) {
        if (i != 0 && m->order[i].thread == m->order[i - 1].thread) continue;
        if (next != 0) m->streams[next - 1].entry_end = i;
        m->streams[next] = (swt_stream){.entry = i, .entry_end = entries, .thread = UINT32_MAX};
        m->queue[next] = (swt_queue_item){m->order[i].first, (uint32_t)next};
        next++;
    }
    m->queue_count = m->stream_count = next;
    for (size_t i = m->queue_count / 2; i-- > 0;) sift_down(m, i);
}

sw_status swt_merge_init(swt_merge *m, swt_file *file) {
    *m = (swt_merge){.file = file, .pause_ns = UINT64_MAX};
    size_t entries = file->entry_count;
    m->tick_q32 = swt_notes_tick_q32(&file->notes);
    m->tick_origin = file->notes.first_clock.ticks;
    if (entries == 0) return SW_OK;
    m->order = malloc(entries * sizeof *m->order);
    if (m->order == NULL) return swt_file_no_memory(file);
    memcpy(m->order, file->entries, entries * sizeof *m->order);
    qsort(m->order, entries, sizeof *m->order, compare_entries);
    size_t threads = count_threads(m->order, entries);
    m->streams = calloc(threads, sizeof *m->streams);
    m->queue = calloc(threads, sizeof *m->queue);
    if (m->streams == NULL || m->queue == NULL) {
        swt_merge_free(m);
        return swt_file_no_memory(file);
    }
    set_up_streams(m, entries);
    return SW_OK;
}

void swt_merge_free(swt_merge *m) {
    for (size_t i = 0; m->streams != NULL && i < m->stream_count; i++) free(m->streams[i].payload);
    free(m->order);
    free(m->streams);
    free(m->queue);
    swt_ids_free(&m->ids);
    swt_addresses_free(&m->addresses);
    *m = (swt_merge){0};
}

/* --- events to operations --------------------------------------------------------------------- */

/* Returns the time of an event in nanoseconds. Clocks of different cores differ a little, so a time
 * before that of the previous event is replaced by it. */
static uint64_t time_of(swt_merge *m, uint64_t ticks) {
    if (ticks > m->tick_origin) {
        __extension__ unsigned __int128 ns = (unsigned __int128)(ticks - m->tick_origin);
        ns = (ns * m->tick_q32) >> 32;
        if (ns > m->time_ns) m->time_ns = ns > INT64_MAX ? INT64_MAX : (uint64_t)ns;
    }
    return m->time_ns;
}

static void emit(swt_merge *m, swt_stream *s, const swt_merge_event *event, sw_op_kind kind,
                 uint32_t object) {
    if (sw_unlikely(s->thread == UINT32_MAX)) s->thread = m->threads++;
    s->has_ended = kind == SW_OP_THREAD_END;
    bool is_free = kind == SW_OP_FREE;
    m->ops[m->count++] = (sw_op){
        .time_ns = time_of(m, event->ticks),
        .size = is_free ? 0 : event->size,
        .object = object,
        .thread = s->thread,
        .site = is_free && event->kind != SWT_RAW_FREE ? 0 : event->site,
        .kind = (uint8_t)kind,
        .align_log2 = is_free ? 0 : (uint8_t)event->align_log2,
        .flags = !is_free && event->kind == SWT_RAW_CALLOC ? SW_OP_ZEROED : 0,
    };
}

/* Records the event's address of the object. If the table has another object there, that object's
 * free is missing in the recording, and is inserted. */
static bool note_address(swt_merge *m, swt_stream *s, const swt_merge_event *event,
                         uint32_t object) {
    uint32_t old;
    int put = swt_addresses_put(&m->addresses, event->address, object, &old);
    if (sw_unlikely(put > 0)) {
        emit(m, s, event, SW_OP_FREE, old);
        swt_ids_give(&m->ids, old);
        m->lost.missed_frees++;
    }
    return put >= 0;
}

/* If the table has an object at the address, it is freed first, so that its id can be reused. */
static bool on_alloc(swt_merge *m, swt_stream *s, const swt_merge_event *event) {
    uint32_t object;
    if (sw_unlikely(swt_addresses_remove(&m->addresses, event->address, &object))) {
        emit(m, s, event, SW_OP_FREE, object);
        swt_ids_give(&m->ids, object);
        m->lost.missed_frees++;
    }
    if (!swt_ids_take(&m->ids, &object)) return false;
    if (!note_address(m, s, event, object)) return false;
    emit(m, s, event, SW_OP_ALLOC, object);
    return true;
}

static void on_free(swt_merge *m, swt_stream *s, const swt_merge_event *event) {
    uint32_t object;
    if (sw_unlikely(!swt_addresses_remove(&m->addresses, event->address, &object))) {
        m->lost.unknown_frees++;
        return;
    }
    emit(m, s, event, SW_OP_FREE, object);
    swt_ids_give(&m->ids, object);
}

static bool on_realloc_new(swt_merge *m, swt_stream *s, const swt_merge_event *event) {
    if (sw_unlikely(!s->is_moving)) {
        m->lost.unknown_reallocs++;
        return on_alloc(m, s, event);
    }
    s->is_moving = false;
    if (!note_address(m, s, event, s->moving)) return false;
    emit(m, s, event, SW_OP_REALLOC, s->moving);
    return true;
}

/* Emits the end of a thread, unless it has no operation yet, or none since its last end. */
static void on_end(swt_merge *m, swt_stream *s, uint64_t ticks) {
    if (s->thread == UINT32_MAX || s->has_ended) return;
    emit(m, s, &(swt_merge_event){.kind = SWT_RAW_THREAD_END, .ticks = ticks}, SW_OP_THREAD_END, 0);
}

/* Adds the operations of one event, at most two, to the batch. False: no memory. */
static bool on_event(swt_merge *m, swt_stream *s, const swt_merge_event *event) {
    switch (event->kind) {
    case SWT_RAW_FREE: on_free(m, s, event); return true;
    case SWT_RAW_REALLOC_OLD:
        s->is_moving = swt_addresses_remove(&m->addresses, event->address, &s->moving);
        return true;
    case SWT_RAW_REALLOC_NEW: return on_realloc_new(m, s, event);
    case SWT_RAW_THREAD_END: on_end(m, s, event->ticks); return true;
    default: return on_alloc(m, s, event);
    }
}

/* --- the merge -------------------------------------------------------------------------------- */

/* Returns the minimum stamp of the other streams, up to which the first stream continues. In the
 * heap, it is the stamp of one of the root's two children. */
static uint64_t horizon(const swt_merge *m) {
    uint64_t least = UINT64_MAX;
    for (size_t i = 1; i < 3 && i < m->queue_count; i++)
        if (m->queue[i].stamp < least) least = m->queue[i].stamp;
    return least;
}

/* Maximum operations per event: a missed free, and the operation itself. */
enum { OPS_AN_EVENT = 2 };

static inline bool has_room(const swt_merge *m) {
    return m->count + OPS_AN_EVENT <= SW_TRACE_OPS_MAX && m->time_ns < m->pause_ns;
}

/* Handles events of one stream up to the horizon, or until the batch is full. */
static sw_status run_stream(swt_merge *m, swt_stream *s) {
    uint64_t last = horizon(m);
    while (s->next_stamp <= last && has_room(m)) {
        swt_merge_event event;
        bool good = swt_stream_next(s, &event);
        if (sw_unlikely(!good)) {
            m->ended = true;
            return swt_file_damage(m->file, s->at, "an event is malformed");
        }
        if (sw_unlikely(!on_event(m, s, &event))) return swt_file_no_memory(m->file);
        if (s->left == 0) {
            sw_status status = swt_stream_load(m, s);
            if (status != SW_OK || s->left == 0) return status;
        }
    }
    return SW_OK;
}

sw_status swt_merge_next(swt_merge *m, sw_op *ops, size_t *count) {
    sw_check2(swt_merge_check(m));
    m->ops = ops;
    m->count = 0;
    while (m->queue_count != 0 && !m->ended && has_room(m)) {
        swt_stream *s = &m->streams[m->queue[0].stream];
        sw_status status = SW_OK;
        if (s->left == 0)
            status = swt_stream_load(m, s);
        else
            status = run_stream(m, s);
        if (status != SW_OK) return status;
        if (s->left == 0)
            m->queue[0] = m->queue[--m->queue_count];
        else
            m->queue[0].stamp = s->next_stamp;
        if (m->queue_count != 0) sift_down(m, 0);
    }
    *count = m->count;
    return SW_OK;
}
