/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a raw recording into one sequence of operations: merges the threads' events by stamp, and
 * turns addresses into object ids. Memory: one block per thread in the middle of its events, and
 * the table of live addresses.
 *
 * An allocation is stamped after it returned, a free before it began. So if an address moves from
 * one thread to another, the stamp of its free is always below that of its next allocation, and the
 * order of stamps is a possible one. A reallocation has two stamps: it releases the old address at
 * the first and owns the new one from the second. Its operation has the second stamp.
 */
#ifndef SW_TRACE_MERGE_H
#define SW_TRACE_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/file.h"
#include "trace/ops.h"

/* --- addresses -------------------------------------------------------------------------------- */

/* The table from live addresses of a raw recording to object ids, for the merge.
 *
 * Neighbours in the recorded heap are neighbours here. A *leaf* holds the ids of the 64 addresses
 * in 1 KiB whose low four bits are equal, and an open hash table (linear probing, at most half
 * full) finds the leaves. A hash table of single addresses would miss the cache at nearly every
 * event. A leaf without live addresses is reused, so the memory is at most 256 + 32 bytes per live
 * object, and 5 to 20 bytes if objects are small. */

enum { SWT_LEAF_IDS = 64 };

/* id + 1 of the live object at each address; 0: none. A leaf that is not in use is all zeros. */
typedef struct swt_leaf {
    uint32_t ids[SWT_LEAF_IDS];
} swt_leaf;

typedef struct swt_leaf_entry {
    uint64_t key;  /* of the leaf's addresses, plus 1; 0: the entry is empty */
    uint32_t leaf; /* index in leaves */
    uint32_t live; /* nonzero ids of the leaf; at least 1 */
} swt_leaf_entry;

/* Used by one thread at a time. The table's capacity is mask + 1, a power of two.
 *   2 * count <= mask + 1;  count + spare_count == leaf_count <= leaf_capacity
 *   2^(64 - shift) == mask + 1, and entries != NULL, if mask != 0 */
typedef struct swt_addresses {
    swt_leaf_entry *entries;
    size_t count;   /* entries in use, each with a leaf */
    size_t mask;    /* capacity - 1; 0: nothing is allocated yet */
    uint32_t shift; /* 64 - log2 of the capacity */
    swt_leaf *leaves;
    size_t leaf_count, leaf_capacity;
    uint32_t *spare; /* leaves that are not in use */
    size_t spare_count, spare_capacity;
} swt_addresses;

const char *swt_addresses_check(const swt_addresses *map);

/* Sets the id of an address. 1: the address had an id, which is stored to *old; 0: it had none; -1:
 * no memory. */
int swt_addresses_put(swt_addresses *map, uint64_t address, uint32_t id, uint32_t *old);
/* Removes an address and stores its id to *id. False: it had none. */
bool swt_addresses_remove(swt_addresses *map, uint64_t address, uint32_t *id);
void swt_addresses_free(swt_addresses *map);

/* Stores to *bytes the size of all pages of 4 KiB that live objects are in; sizes[id] are the bytes
 * of object id, below 2^48. No two objects overlap. False: no memory. */
bool swt_addresses_page_bytes(const swt_addresses *map, const uint64_t *sizes, uint64_t *bytes);

/* --- the merge -------------------------------------------------------------------------------- */

/* The events of one thread, decoded one at a time from its loaded block.
 *   entry <= entry_end;  left == 0 if payload == NULL;  tick_shift <= 63;  address_shift <= 47
 */
typedef struct swt_stream {
    size_t entry, entry_end; /* blocks still to be read, as indexes in merge->order */
    uint8_t *payload;        /* payload of the loaded block; NULL: none */
    size_t payload_capacity;
    uint64_t at;   /* offset of the loaded block, for messages */
    uint32_t left; /* events of the loaded block still to be read */
    uint32_t flags, tick_shift, address_shift;
    const uint8_t *tag, *address, *size, *ticks, *stamp, *site;
    uint64_t last_address, last_ticks;
    uint64_t next_stamp; /* of the next event; non-decreasing */
    uint32_t thread;     /* dense id; UINT32_MAX before its first operation */
    uint32_t moving;     /* between the two events of a reallocation: its object */
    bool is_moving;      /* `moving` is valid */
    bool has_ended;      /* the thread has ended, and made no operation since */
} swt_stream;

typedef struct swt_queue_item {
    uint64_t stamp;
    uint32_t stream;
} swt_queue_item;

/* Used by one thread at a time.
 *   queue_count <= stream_count;  open_count <= stream_count;  count <= SW_TRACE_OPS_MAX
 *   and the rules of ids and addresses */
typedef struct swt_merge {
    swt_file *file;
    swt_entry *order; /* the file's entries, sorted by thread and then by offset */
    swt_stream *streams;
    size_t stream_count;
    swt_queue_item *queue; /* streams that are not at their end: a min-heap by stamp */
    size_t queue_count;
    size_t open_count; /* streams that have a payload */
    bool ended;        /* damage was found: the events end there */
    swt_ids ids;
    swt_addresses addresses;
    uint64_t tick_q32, tick_origin;
    uint64_t time_ns;
    uint64_t
        pause_ns; /* a batch ends after the first operation at or after it; UINT64_MAX: never */
    uint32_t threads;
    sw_op *ops; /* the batch in progress */
    size_t count;
    sw_trace_summary lost; /* counts of missed and unknown calls */
} swt_merge;

sw_status swt_merge_init(swt_merge *merge, swt_file *file);
void swt_merge_free(swt_merge *merge);
/* Stores up to SW_TRACE_OPS_MAX operations to `ops`; *count is 0 at the end. */
sw_status swt_merge_next(swt_merge *merge, sw_op *ops, size_t *count);

/* Loads the stream's next block and goes to its first event. `left` is 0 at the end of
 * the stream. Damage sets merge->ended. */
sw_status swt_stream_load(swt_merge *merge, swt_stream *stream);

/* An event, decoded. */
typedef struct swt_merge_event {
    uint64_t address, size, ticks;
    uint32_t kind, align_log2, site;
} swt_merge_event;

#endif
