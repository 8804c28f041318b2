/* SPDX-License-Identifier: Apache-2.0 */
/* The merge: a priority queue of threads by stamp, and the resulting operations (merge.h). */
#include "trace/merge.h"

#include <stdlib.h>

#include "base/base.h"

static const char *swt_merge_check(const swt_merge *merge) {
    return SW_RULE(merge->queue_count <= merge->stream_count)
               ?: SW_RULE(merge->open_count <= merge->stream_count)
               ?: SW_RULE(merge->count <= SW_TRACE_OPS_MAX)
               ?: swt_ids_check(&merge->ids)
               ?: swt_addresses_check(&merge->addresses);
}

static const char *swt_stream_check(const swt_stream *stream) {
    return SW_RULE(stream->entry <= stream->entry_end)
               ?: SW_RULE(stream->left == 0 || stream->payload != NULL)
               ?: SW_RULE(stream->tick_shift <= 63)
               ?: SW_RULE(stream->address_shift <= 47);
}

/* --- the events of a thread ------------------------------------------------------------------- */

/* The events of one thread's RAW blocks. When a block is loaded, the number of varints in its
 * columns is checked, so that reading an event needs no bounds checks. docs/design/trace.md. */

enum { OPEN_MAX = 1 << 16 }; /* threads with a loaded block at once; bounds the memory */

/* Returns how many varints the size column must have; SIZE_MAX: a tag is impossible. */
static size_t check_tags(const uint8_t *tags, size_t count) {
    size_t sizes = 0;
    bool moving = false;
    for (size_t i = 0; i < count; i++) {
        uint32_t kind = tags[i] & (SWT_RAW_TAG_ALIGNED - 1);
        bool aligned = (tags[i] & SWT_RAW_TAG_ALIGNED) != 0;
        if (kind >= SWT_RAW_KIND_COUNT || tags[i] >= 2 * SWT_RAW_TAG_ALIGNED) return SIZE_MAX;
        if (aligned && kind > SWT_RAW_CALLOC) return SIZE_MAX;
        if ((kind == SWT_RAW_REALLOC_NEW) != moving) return SIZE_MAX;
        moving = kind == SWT_RAW_REALLOC_OLD;
        sizes += (size_t)swt_raw_has_size(kind) + (size_t)aligned;
    }
    return moving ? SIZE_MAX : sizes;
}

static const char *open_columns(swt_stream *s, size_t bytes, size_t count) {
    const uint8_t *head = s->payload;
    if (bytes < SWT_RAW_HEAD_BYTES + count) return "columns of a block are cut short";
    s->flags = head[0];
    s->tick_shift = head[1];
    s->address_shift = head[2];
    s->last_ticks = swt_get64(head + 8);
    s->last_address = 0;
    if (s->flags > 7 || s->tick_shift > 63 || s->address_shift > 47)
        return "impossible head of a block";
    s->tag = head + SWT_RAW_HEAD_BYTES;
    size_t sizes = check_tags(s->tag, count);
    if (sizes == SIZE_MAX) return "unknown kind of event";
    bool stamps = (s->flags & SWT_RAW_FLAG_STAMPS) != 0, sites = s->flags & SWT_RAW_FLAG_SITES;
    size_t wanted[] = {count, sizes, count, stamps ? count : 0, sites ? count : 0};
    const uint8_t **starts[] = {&s->address, &s->size, &s->ticks, &s->stamp, &s->site};
    const uint8_t *at = s->tag + count, *end = head + bytes;
    for (int i = 0; i < SWT_RAW_COLUMNS; i++) {
        size_t length = swt_get32(head + 16 + 4 * i);
        if (length > (size_t)(end - at) || !swt_varints_whole(at, length, wanted[i]))
            return "a column of a block has the wrong length";
        *starts[i] = at;
        at += length;
    }
    return at == end ? NULL : "bytes are left over in a block";
}

/* Computes the stamp of the next event. `stamp` is that of the last event; for the first event it
 * is the block's first stamp. */
static bool advance_stamp(swt_stream *s, uint64_t stamp, bool first) {
    bool bad = false;
    if (s->flags & SWT_RAW_FLAG_TICKS_ARE_STAMPS) {
        uint64_t step = swt_varint_get(&s->ticks, &bad);
        bad |= step > UINT64_MAX - s->last_ticks;
        stamp = s->last_ticks += step;
    } else if (s->flags & SWT_RAW_FLAG_STAMPS) {
        stamp += swt_varint_get(&s->stamp, &bad);
    } else {
        stamp += !first;
    }
    if (stamp > s->next_stamp) s->next_stamp = stamp;
    return !bad;
}

static void release(swt_merge *merge, swt_stream *s) {
    s->left = 0;
    if (s->payload != NULL) merge->open_count--;
    free(s->payload);
    s->payload = NULL;
    s->payload_capacity = 0;
}

/* Copies the payload that the file has loaded to the stream. Returns NULL, or what is wrong. */
static const char *take_payload(swt_merge *merge, swt_stream *s, const swt_block *block) {
    if (s->payload == NULL) {
        if (merge->open_count == OPEN_MAX) return "more threads at once than any program has";
        merge->open_count++;
    }
    if (!swt_grow(&s->payload, &s->payload_capacity, block->raw_bytes, 1)) return swt_no_memory;
    memcpy(s->payload, merge->file->payload, block->raw_bytes);
    const char *wrong = open_columns(s, block->raw_bytes, block->count);
    if (wrong != NULL) return wrong;
    s->left = block->count;
    return advance_stamp(s, block->first, true) ? NULL : "a number runs over";
}

sw_status swt_stream_load(swt_merge *merge, swt_stream *s) {
    sw_check2(swt_stream_check(s));
    if (s->entry == s->entry_end) {
        release(merge, s);
        return SW_OK;
    }
    const swt_entry *entry = &merge->order[s->entry++];
    swt_block block;
    bool whole;
    s->at = entry->at;
    s->left = 0;
    sw_status status = swt_file_load(merge->file, entry, &block, &whole);
    if (status == SW_OK && whole) {
        const char *wrong = take_payload(merge, s, &block);
        if (wrong == NULL) return SW_OK;
        status = swt_file_damage(merge->file, s->at, wrong);
    }
    s->left = 0;
    merge->ended = true;
    return status;
}

/* Decodes the next event; stream->left must be above 0. False: it is malformed. */
static bool swt_stream_next(swt_stream *s, swt_merge_event *event) {
    bool bad = false;
    uint32_t tag = *s->tag++;
    event->kind = tag & (SWT_RAW_TAG_ALIGNED - 1);
    event->align_log2 = 0;
    event->size = 0;
    s->last_address += swt_unzigzag(swt_varint_get(&s->address, &bad));
    event->address = s->last_address << s->address_shift;
    bad |= event->address >> 48 != 0;
    if (sw_unlikely(tag & SWT_RAW_TAG_ALIGNED)) {
        uint64_t align = swt_varint_get(&s->size, &bad);
        bad |= align == 0 || align > 47;
        event->align_log2 = (uint32_t)align & 63;
    }
    if (swt_raw_has_size(event->kind)) {
        event->size = swt_varint_get(&s->size, &bad);
        bad |= event->size > INT64_MAX;
    }
    if (!(s->flags & SWT_RAW_FLAG_TICKS_ARE_STAMPS))
        s->last_ticks += swt_varint_get(&s->ticks, &bad);
    event->ticks = s->last_ticks << s->tick_shift;
    uint64_t site = s->flags & SWT_RAW_FLAG_SITES ? swt_varint_get(&s->site, &bad) : 0;
    bad |= site > UINT32_MAX;
    event->site = (uint32_t)site;
    if (--s->left != 0) bad |= !advance_stamp(s, s->next_stamp, false);
    return !bad;
}

/* --- the merge -------------------------------------------------------------------------------- */

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
