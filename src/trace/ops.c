/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of objects, columns of ordered operations, and their totals (ops.h). docs/design/trace.md. */
#include "trace/ops.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

const char *swt_totals_check(const swt_totals *totals) {
    const sw_trace_summary *sum = &totals->sum;
    return SW_RULE(sum->frees + sum->end_live_objects == sum->allocs)
               ?: SW_RULE(sum->end_live_objects <= sum->peak_live_objects)
               ?: SW_RULE(sum->end_requested_bytes <= sum->peak_requested_bytes)
               ?: SW_RULE(sum->peak_op <= sum->ops);
}

const char *swt_ops_columns_check(const swt_ops_columns *columns) {
    return SW_RULE(columns->count <= SW_TRACE_OPS_MAX)
               ?: SW_RULE(columns->tag == columns->scratch + SWT_OPS_HEAD_BYTES + columns->count);
}

const char *swt_ops_state_check(const swt_ops_state *state) {
    return SW_RULE(state->thread == 0 || state->thread < state->threads)
               ?: SW_RULE(state->object == 0 || state->gives_no_ids ||
                          state->object < state->ids.next)
               ?: swt_ids_check(&state->ids);
}

const char *swt_ids_check(const swt_ids *ids) {
    return SW_RULE(ids->free_count <= ids->next)
               ?: SW_RULE(ids->next <= ids->capacity)
               ?: SW_RULE(ids->capacity % 64 == 0)
               ?: SW_RULE(ids->capacity == 0 || ids->live != NULL);
}

/* --- ids -------------------------------------------------------------------------------------- */

const char swt_no_memory[] = "out of memory";

bool swt_grow(void *array_pointer, size_t *capacity, size_t needed, size_t item_bytes) {
    if (needed <= *capacity) return true;
    size_t wanted = *capacity < 64 ? 64 : *capacity;
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2) return false;
        wanted *= 2;
    }
    if (wanted > SIZE_MAX / item_bytes) return false;
    void *old;
    memcpy(&old, array_pointer, sizeof old); /* bytes, because the pointer may have any type */
    char *grown = realloc(old, wanted * item_bytes);
    if (grown == NULL) return false;
    memset(grown + *capacity * item_bytes, 0, (wanted - *capacity) * item_bytes);
    memcpy(array_pointer, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

bool swt_ids_grow(swt_ids *ids) {
    sw_check2(swt_ids_check(ids));
    if (ids->capacity > UINT32_MAX / 2) return false;
    size_t ids_capacity = ids->capacity, word_capacity = ids->capacity / 64;
    size_t wanted = ids->capacity == 0 ? 4096 : ids->capacity * 2;
    if (!swt_grow(&ids->live, &word_capacity, wanted / 64, sizeof *ids->live)) return false;
    if (!swt_grow(&ids->free_ids, &ids_capacity, wanted, sizeof *ids->free_ids)) return false;
    ids->capacity = wanted;
    return true;
}

void swt_ids_free(swt_ids *ids) {
    free(ids->free_ids);
    free(ids->live);
    *ids = (swt_ids){0};
}

/* --- operations ------------------------------------------------------------------------------- */

enum {
    SIZE_ROOM = SW_TRACE_OPS_MAX * (SWT_VARINT_BYTES_MAX + 1),
    OBJECT_ROOM = SW_TRACE_OPS_MAX * 5,
    TIME_ROOM = SW_TRACE_OPS_MAX * SWT_VARINT_BYTES_MAX,
    THREAD_ROOM = SW_TRACE_OPS_MAX * 5,
};

void swt_ops_begin(swt_ops_columns *c) {
    c->tag = c->scratch + SWT_OPS_HEAD_BYTES;
    c->size = c->tag + SW_TRACE_OPS_MAX;
    c->object = c->size + SIZE_ROOM;
    c->time = c->object + OBJECT_ROOM;
    c->thread = c->time + TIME_ROOM;
    c->site = c->thread + THREAD_ROOM;
    c->count = 0;
    c->any_site = 0;
}

void swt_ops_put(swt_ops_columns *c, swt_ops_state *state, const sw_op *op) {
    uint32_t tag = op->kind;
    if (op->flags & SW_OP_ZEROED) tag |= SWT_TAG_ZEROED;
    if (op->flags & SW_OP_SCAN) tag |= SWT_TAG_SCAN;
    if (op->align_log2 != 0) {
        tag |= SWT_TAG_ALIGNED;
        *c->size++ = op->align_log2;
    }
    if (swt_op_has_size(op->kind)) c->size = swt_varint_put(c->size, op->size);
    if (swt_op_stores_object(op->kind))
        c->object =
            swt_varint_put(c->object, swt_zigzag((uint64_t)op->object - (uint64_t)state->object));
    c->time = swt_varint_put(c->time, op->time_ns - state->time_ns);
    if (op->thread != state->thread) {
        tag |= SWT_TAG_THREAD;
        c->thread = swt_varint_put(c->thread, op->thread);
    }
    c->site = swt_varint_put(c->site, op->site);
    c->any_site |= op->site;
    *c->tag++ = (uint8_t)tag;
    c->count++;
    if (op->kind != SW_OP_THREAD_END) state->object = op->object;
    state->time_ns = op->time_ns;
    state->thread = op->thread;
}

static uint8_t *close_column(uint8_t *at, uint8_t *field, const uint8_t *begin,
                             const uint8_t *end) {
    size_t bytes = (size_t)(end - begin);
    memmove(at, begin, bytes);
    swt_put32(field, (uint32_t)bytes);
    return at + bytes;
}

size_t swt_ops_end(swt_ops_columns *c) {
    sw_check2(swt_ops_columns_check(c));
    uint8_t *head = c->scratch, *at = c->tag;
    const uint8_t *size = head + SWT_OPS_HEAD_BYTES + SW_TRACE_OPS_MAX;
    const uint8_t *object = size + SIZE_ROOM, *time = object + OBJECT_ROOM;
    const uint8_t *thread = time + TIME_ROOM, *site = thread + THREAD_ROOM;
    memset(head, 0, 8);
    head[0] = c->any_site != 0 ? SWT_OPS_FLAG_SITES : 0;
    at = close_column(at, head + 8, size, c->size);
    at = close_column(at, head + 12, object, c->object);
    at = close_column(at, head + 16, time, c->time);
    at = close_column(at, head + 20, thread, c->thread);
    at = close_column(at, head + 24, site, c->any_site != 0 ? c->site : site);
    return (size_t)(at - head);
}

/* --- decoding --------------------------------------------------------------------------------- */

typedef struct cursors {
    const uint8_t *tags, *size, *object, *time, *thread, *site;
    bool sites;
} cursors;

/* Checks that every column holds exactly the varints that the tags require, so that the decoder
 * needs no bounds checks. */
static const char *open_columns(cursors *c, const uint8_t *payload, size_t bytes, size_t count) {
    if (bytes < SWT_OPS_HEAD_BYTES + count) return "columns of a block are cut short";
    c->sites = (payload[0] & SWT_OPS_FLAG_SITES) != 0;
    c->tags = payload + SWT_OPS_HEAD_BYTES;
    uint32_t sizes = 0, objects = 0, threads = 0, odd = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t tag = c->tags[i], kind = tag & SWT_TAG_KIND;
        sizes += swt_op_has_size(kind) + (tag >> 4 & 1);
        objects += swt_op_stores_object(kind);
        threads += tag >> 5 & 1;
        odd |= tag & SWT_TAG_UNUSED;
        odd |= !swt_op_has_size(kind) && (tag & ~(uint32_t)SWT_TAG_THREAD) != kind;
    }
    if (odd || payload[0] > SWT_OPS_FLAG_SITES) return "unknown kind of operation";
    const uint8_t *at = c->tags + count, *end = payload + bytes;
    const uint8_t **starts[] = {&c->size, &c->object, &c->time, &c->thread, &c->site};
    size_t wanted[] = {sizes, objects, count, threads, c->sites ? count : 0};
    for (int i = 0; i < SWT_OPS_COLUMNS; i++) {
        size_t length = swt_get32(payload + 8 + 4 * i);
        if (length > (size_t)(end - at) || !swt_varints_whole(at, length, wanted[i]))
            return "a column of a block has the wrong length";
        *starts[i] = at;
        at += length;
    }
    return at == end ? NULL : "bytes are left over in a block";
}

/* Decodes the fields of an operation that depend on its kind. */
static sw_always_inline const char *decode_object(swt_ops_state *state, cursors *c, uint32_t tag,
                                                  sw_op *op, bool *bad) {
    uint64_t object = 0;
    op->align_log2 = 0;
    op->size = 0;
    if (sw_unlikely(tag & SWT_TAG_ALIGNED)) {
        uint64_t align = swt_varint_get(&c->size, bad);
        if (align == 0 || align > SWT_ALIGN_LOG2_MAX) return "impossible alignment";
        op->align_log2 = (uint8_t)align;
    }
    uint32_t kind = tag & SWT_TAG_KIND;
    if (swt_op_has_size(kind)) op->size = swt_varint_get(&c->size, bad);
    if (sw_unlikely(op->size > INT64_MAX)) return "impossible size";
    if (kind == SW_OP_ALLOC) {
        if (sw_unlikely(!swt_ids_take(&state->ids, &state->object))) return swt_no_memory;
        op->object = state->object;
        return NULL;
    }
    if (sw_unlikely(kind == SW_OP_THREAD_END)) {
        op->object = 0;
        return NULL;
    }
    object = state->object + swt_unzigzag(swt_varint_get(&c->object, bad));
    op->object = state->object = (uint32_t)object;
    if (sw_unlikely(object > UINT32_MAX)) return "operation on an object that is not live";
    bool live = kind == SW_OP_FREE ? swt_ids_give(&state->ids, op->object)
                                   : swt_ids_live(&state->ids, object);
    return sw_likely(live) ? NULL : "operation on an object that is not live";
}

static sw_always_inline const char *decode_op(swt_ops_state *state, cursors *c, uint32_t tag,
                                              sw_op *op) {
    bool bad = false;
    uint64_t step = swt_varint_get(&c->time, &bad);
    if (sw_unlikely(step > UINT64_MAX - state->time_ns)) return "time runs over";
    op->time_ns = state->time_ns += step;
    if (sw_unlikely(tag & SWT_TAG_THREAD)) {
        uint64_t thread = swt_varint_get(&c->thread, &bad);
        if (thread > state->threads) return "impossible thread";
        state->thread = (uint32_t)thread;
    }
    bool is_new = state->thread == state->threads;
    if (sw_unlikely(is_new && (tag & SWT_TAG_KIND) == SW_OP_THREAD_END))
        return "end of a thread that did nothing";
    state->threads += is_new;
    op->thread = state->thread;
    uint64_t site = c->sites ? swt_varint_get(&c->site, &bad) : 0;
    op->site = (uint32_t)site;
    op->kind = (uint8_t)(tag & SWT_TAG_KIND);
    op->flags = (uint16_t)(tag >> 2 & (SW_OP_ZEROED | SW_OP_SCAN));
    const char *wrong = decode_object(state, c, tag, op, &bad);
    if (sw_unlikely(bad || site > UINT32_MAX)) return "a number runs over";
    return wrong;
}

const char *swt_ops_decode(swt_ops_state *state, const uint8_t *payload, size_t bytes, size_t count,
                           sw_op *ops, size_t *good) {
    cursors c;
    *good = 0;
    const char *wrong = open_columns(&c, payload, bytes, count);
    for (size_t i = 0; wrong == NULL && i < count; i++) {
        wrong = decode_op(state, &c, c.tags[i], &ops[i]);
        *good = i;
    }
    if (wrong == NULL) {
        *good = count;
        state->count += count;
    }
    return wrong;
}

/* --- totals ----------------------------------------------------------------------------------- */

_Static_assert(sizeof(sw_trace_summary) % sizeof(uint64_t) == 0, "all fields are u64");

static void resize(sw_trace_summary *sum, uint64_t *size, uint64_t wanted) {
    sum->end_requested_bytes += wanted - *size;
    *size = wanted;
    sum->largest_bytes = sw_max_u64(sum->largest_bytes, wanted);
    if (sum->end_requested_bytes > sum->peak_requested_bytes) {
        sum->peak_requested_bytes = sum->end_requested_bytes;
        sum->peak_op = sum->ops;
    }
}

static void add(sw_trace_summary *sum, const sw_op *op, uint64_t *size) {
    sum->ops++;
    sum->duration_ns = op->time_ns;
    sum->threads = sw_max_u64(sum->threads, (uint64_t)op->thread + 1);
    switch (op->kind) {
    case SW_OP_ALLOC:
        sum->allocs++;
        sum->zeroed_allocs += (op->flags & SW_OP_ZEROED) != 0;
        sum->aligned_allocs += op->align_log2 != 0;
        sum->allocated_bytes += op->size;
        sum->end_live_objects++;
        sum->peak_live_objects = sw_max_u64(sum->peak_live_objects, sum->end_live_objects);
        *size = 0;
        resize(sum, size, op->size);
        break;
    case SW_OP_REALLOC:
        sum->reallocs++;
        sum->reallocated_bytes += op->size;
        resize(sum, size, op->size);
        break;
    case SW_OP_THREAD_END: sum->thread_ends++; break;
    default:
        sum->frees++;
        sum->end_live_objects--;
        sum->end_requested_bytes -= *size;
        break;
    }
}

sw_status swt_totals_add(swt_totals *totals, const sw_op *ops, size_t count) {
    sw_check2(swt_totals_check(totals));
    for (size_t i = 0; i < count; i++) {
        size_t id = ops[i].object;
        if (id >= totals->capacity &&
            !swt_grow(&totals->sizes, &totals->capacity, id + 1, sizeof *totals->sizes))
            return SW_NOMEM;
        add(&totals->sum, &ops[i], &totals->sizes[id]);
    }
    return SW_OK;
}

void swt_totals_free(swt_totals *totals) {
    free(totals->sizes);
    *totals = (swt_totals){0};
}
