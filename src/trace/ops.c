/* SPDX-License-Identifier: Apache-2.0 */
/* Encoder and decoder of ordered operations in columns. docs/design/trace.md. */
#include "trace/ops.h"

#include "base/assert.h"

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
