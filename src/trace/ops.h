/* SPDX-License-Identifier: Apache-2.0 */
/* Ordered operations: the ids of their objects, their encoding in columns, and their totals. */
#ifndef SW_TRACE_OPS_H
#define SW_TRACE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "spanwise/trace.h"
#include "trace/format.h"

/* --- ids -------------------------------------------------------------------------------------- */

/* The rule for object ids: the id freed last is reused first; if none is free, the next unused one
 * is taken. The rule is the same when a recording is written, merged and read, so the id of an
 * ALLOC need not be stored. */

/* Used by one thread at a time.
 *   free_count <= next <= capacity, a multiple of 64;  live != NULL if capacity != 0 */
typedef struct swt_ids {
    uint32_t *free_ids; /* [free_count]: freed ids; the last one is reused next */
    uint64_t *live;     /* a bit per id below `next`: 1: live */
    size_t free_count;
    size_t capacity; /* ids that both arrays can hold; a multiple of 64 */
    uint32_t next;   /* ids below it were used: number of live ids + free_count == next */
} swt_ids;

const char *swt_ids_check(const swt_ids *ids);

/* Makes room for more ids. False: no memory, or no more 32-bit ids. */
bool swt_ids_grow(swt_ids *ids);
void swt_ids_free(swt_ids *ids);

/* Takes an id. False: no memory. */
static sw_always_inline bool swt_ids_take(swt_ids *ids, uint32_t *id) {
    if (ids->free_count != 0) {
        *id = ids->free_ids[--ids->free_count];
    } else {
        if (sw_unlikely(ids->next == ids->capacity) && !swt_ids_grow(ids)) return false;
        *id = ids->next++;
    }
    ids->live[*id >> 6] |= 1ull << (*id & 63);
    return true;
}

static sw_always_inline bool swt_ids_live(const swt_ids *ids, uint64_t id) {
    return id < ids->next && (ids->live[id >> 6] >> (id & 63) & 1) != 0;
}

/* Frees an id. False: the id is not live. */
static sw_always_inline bool swt_ids_give(swt_ids *ids, uint32_t id) {
    if (sw_unlikely(!swt_ids_live(ids, id))) return false;
    ids->live[id >> 6] &= ~(1ull << (id & 63));
    ids->free_ids[ids->free_count++] = id;
    return true;
}

/* The result of decoders if there is no memory. Callers compare its address. */
extern const char swt_no_memory[];

/* Grows an array by doubling until it has room for `needed` items; new bytes are zero. *capacity is
 * in items. False: no memory, and the array is as it was. */
bool swt_grow(void *array_pointer, size_t *capacity, size_t needed, size_t item_bytes);

/* --- operations ------------------------------------------------------------------------------- */

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
/* The object of an ALLOC is not stored, because the rule of ids gives it. */
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

/* --- totals ----------------------------------------------------------------------------------- */

enum { SWT_SUMMARY_FIELDS = sizeof(sw_trace_summary) / sizeof(uint64_t) };

/* Used by one thread at a time.
 *   sum.frees + sum.end_live_objects == sum.allocs;  sum.end_live_objects <= sum.peak_live_objects
 *   sum.end_requested_bytes <= sum.peak_requested_bytes;  sum.peak_op <= sum.ops */
typedef struct swt_totals {
    sw_trace_summary sum;
    uint64_t *sizes; /* requested bytes of each live object, by id */
    size_t capacity;
} swt_totals;

const char *swt_totals_check(const swt_totals *totals);

/* Adds operations, which must be valid. Returns SW_OK, or SW_NOMEM without a message. */
sw_status swt_totals_add(swt_totals *totals, const sw_op *ops, size_t count);
void swt_totals_free(swt_totals *totals);

#endif
