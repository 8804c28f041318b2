/* SPDX-License-Identifier: Apache-2.0 */
/* sw_op: an allocation event. Recordings, workloads, simulator and replayer all use this record,
 * and a numpy structured array with these fields has the same layout.
 */
#ifndef SPANWISE_OPS_H
#define SPANWISE_OPS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sw_op_kind {
    SW_OP_ALLOC = 0,   /* allocate `object` with `size` bytes */
    SW_OP_FREE = 1,    /* free `object`; size is 0 */
    SW_OP_REALLOC = 2, /* resize `object` to `size` bytes */
    /* `thread` exits: its cache closes; a later operation of the same thread opens a new one. All
     * other fields but the time are 0. */
    SW_OP_THREAD_END = 3,
    SW_OP_KIND_COUNT
} sw_op_kind;

enum {
    SW_OP_ZEROED = 1, /* flag: the memory must read as zero (calloc) */
    SW_OP_SCAN = 2,   /* flag: may hold pointers (collected heaps; recordings never set it) */
};

/* 32 bytes, no padding. Object ids are dense and reused: an array indexed by id is as long as the
 * peak number of live objects. */
typedef struct sw_op {
    uint64_t time_ns;   /* since the start of the recording; non-decreasing */
    uint64_t size;      /* requested bytes */
    uint32_t object;    /* dense id */
    uint32_t thread;    /* dense id, 0 is the first thread seen */
    uint32_t site;      /* call-site id, 0 = unknown */
    uint8_t kind;       /* sw_op_kind */
    uint8_t align_log2; /* requested alignment, 0 = the default */
    uint16_t flags;     /* SW_OP_ZEROED | ... */
} sw_op;

#ifdef __cplusplus
}
#endif
#endif
