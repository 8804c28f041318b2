/* SPDX-License-Identifier: Apache-2.0 */
/* Raw recording -> one history: the threads' events merged by stamp, addresses turned into object
 * ids. Memory: one block a thread that is in the middle of its events, and the live addresses.
 *
 * An allocation is stamped after it returned, a free before it began. So when an address goes from one
 * thread to another, the stamp of its free is always below that of its next allocation, and the order
 * of stamps is a history that could have happened. A reallocation gives up the old address at its
 * first stamp and has the new one from its second on; its operation has the second.
 */
#ifndef SW_TRACE_MERGE_H
#define SW_TRACE_MERGE_H

#include "trace/addresses.h"
#include "trace/file.h"
#include "trace/ids.h"

/* One thread's events, decoded one at a time from its loaded block.
 *   entry <= entry_end;  left == 0 where payload == NULL;  tick_shift <= 63;  address_shift <= 47 */
typedef struct swt_stream {
    size_t entry, entry_end; /* in merge->order */
    uint8_t *payload;        /* NULL: not loaded */
    size_t payload_capacity;
    uint64_t at;   /* offset of the loaded block, for messages */
    uint32_t left; /* events of it that are still to come */
    uint32_t flags, tick_shift, address_shift;
    const uint8_t *tag, *address, *size, *ticks, *stamp, *site;
    uint64_t last_address, last_ticks;
    uint64_t next_stamp; /* of the next event; never falls */
    uint32_t thread;     /* dense id; UINT32_MAX before its first operation */
    uint32_t moving;     /* object of a reallocation between its two events ... */
    bool is_moving;      /* ... when there is one */
    bool has_ended;      /* and made no operation since */
} swt_stream;

const char *swt_stream_check(const swt_stream *stream);

typedef struct swt_queue_item {
    uint64_t stamp;
    uint32_t stream;
} swt_queue_item;

/* One thread at a time has it.
 *   queue_count <= stream_count;  open_count <= stream_count;  count <= SW_TRACE_OPS_MAX
 *   and the rules of ids and addresses */
typedef struct swt_merge {
    swt_file *file;
    swt_entry *order; /* the file's entries, by thread, then as in the file */
    swt_stream *streams;
    size_t stream_count;
    swt_queue_item *queue; /* streams that are not at their end; least stamp first */
    size_t queue_count;
    size_t open_count; /* streams with a payload */
    bool ended;        /* damage was found: no more events */
    swt_ids ids;
    swt_addresses addresses;
    uint64_t tick_q32, tick_origin;
    uint64_t time_ns;
    uint32_t threads;
    sw_op *ops; /* the batch under way */
    size_t count;
    sw_trace_summary lost; /* the counts of what could not be ordered, and of inferred ends */
} swt_merge;

const char *swt_merge_check(const swt_merge *merge);

sw_status swt_merge_init(swt_merge *merge, swt_file *file);
void swt_merge_free(swt_merge *merge);
/* Up to SW_TRACE_OPS_MAX operations into ops; *count 0 at the end. */
sw_status swt_merge_next(swt_merge *merge, sw_op *ops, size_t *count);

/* stream.c: reads the stream's next block and stands before its first event; left is 0 at the
 * end. Damage sets merge->ended. */
sw_status swt_stream_load(swt_merge *merge, swt_stream *stream);

/* An event as the merge sees it. */
typedef struct swt_merge_event {
    uint64_t address, size, ticks;
    uint32_t kind, align_log2, site;
} swt_merge_event;

/* The next event; stream->left > 0. False: it is malformed. */
bool swt_stream_next(swt_stream *stream, swt_merge_event *event);

#endif
