/* SPDX-License-Identifier: Apache-2.0 */
/* OPS payloads: up to SW_TRACE_OPS_MAX operations as columns of varints. Encoder (writer.c) and
 * decoder (source.c) carry the same state from block to block. Format: docs/design/trace.md.
 */
#ifndef SW_TRACE_OPS_H
#define SW_TRACE_OPS_H

#include "spanwise/trace.h"
#include "trace/format.h"
#include "trace/ids.h"

/* Payload of an OPS block: a byte of flags, 7 zero bytes; five u32: bytes of the columns size,
 * object, time, thread and site; then a tag per operation; then the columns. */
enum {
    SWT_OPS_HEAD_BYTES = 28,
    SWT_OPS_COLUMNS = 5,
    SWT_OPS_FLAG_SITES = 1, /* not set: all sites are 0 */
    SWT_TAG_KIND = 3,       /* sw_op_kind */
    SWT_TAG_ZEROED = 4,
    SWT_TAG_SCAN = 8,
    SWT_TAG_ALIGNED = 16, /* align_log2 precedes the size */
    SWT_TAG_THREAD = 32,  /* the thread is not that of the last operation */
    SWT_TAG_UNUSED = 0xC0,
    SWT_ALIGN_LOG2_MAX = 47,
    SWT_OPS_SCRATCH_BYTES = SWT_OPS_HEAD_BYTES +
        SW_TRACE_OPS_MAX * (1 + SWT_VARINT_BYTES_MAX + 1 + 5 + SWT_VARINT_BYTES_MAX + 5 + 5),
};

static inline bool swt_op_has_size(uint32_t kind) {
    return kind == SW_OP_ALLOC || kind == SW_OP_REALLOC;
}
/* The object of an ALLOC is not stored, because the rule of ids.h gives it. */
static inline bool swt_op_stores_object(uint32_t kind) {
    return kind == SW_OP_FREE || kind == SW_OP_REALLOC;
}

/* The state of encoder and decoder after an operation; the next one is stored relative to it.
 *   thread < threads, and object < ids.next, or they are 0;  and the rules of ids
 *   gives_no_ids: the operations already have the ids of the file, and `ids` is empty */
typedef struct swt_ops_state {
    swt_ids ids;
    uint64_t count; /* operations so far */
    uint64_t time_ns;
    uint32_t object; /* of the last operation that had one */
    uint32_t thread;
    uint32_t threads;  /* threads so far: a new thread has this id */
    bool gives_no_ids; /* of an encoder */
} swt_ops_state;

const char *swt_ops_state_check(const swt_ops_state *state);

/* The encoder's columns, in `scratch` (SWT_OPS_SCRATCH_BYTES). `tag` has a byte per operation.
 *   count <= SW_TRACE_OPS_MAX;  tag == scratch + SWT_OPS_HEAD_BYTES + count */
typedef struct swt_ops_columns {
    uint8_t *scratch;
    uint8_t *tag, *size, *object, *time, *thread, *site;
    uint32_t count;
    uint32_t any_site;
} swt_ops_columns;

const char *swt_ops_columns_check(const swt_ops_columns *columns);

void swt_ops_begin(swt_ops_columns *columns);
/* Adds an operation whose object is the id in the file. The caller ends the block when it has
 * SW_TRACE_OPS_MAX operations. */
void swt_ops_put(swt_ops_columns *columns, swt_ops_state *state, const sw_op *op);
/* Joins the columns to one payload at columns->scratch and returns its bytes. */
size_t swt_ops_end(swt_ops_columns *columns);

/* Decodes a payload into ops[0..count). Returns NULL, or what is wrong: swt_no_memory or another
 * constant string. *good: number of operations before the invalid one. */
const char *swt_ops_decode(swt_ops_state *state, const uint8_t *payload, size_t bytes, size_t count,
                           sw_op *ops, size_t *good);

#endif
