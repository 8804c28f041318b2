/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a scalable allocator (spanwise/scalable.h). Callers: scalable.c, children.c.
 * Design: docs/design/buffers.md.
 */
#ifndef SW_BUFFER_SCALABLE_H
#define SW_BUFFER_SCALABLE_H

#include "ds/fork_locks.h"
#include "os/os.h"
#include "spanwise/range.h"
#include "spanwise/scalable.h"

/* One block, and which parts of it are taken.
 *   size == the size of range;  free_size of range == size: the child is idle */
typedef struct sw_child {
    uint8_t *bytes;
    uint64_t size;
    sw_range *range;
    bool is_own; /* of one request that was above the cap: others get nothing from it */
} sw_child;

/* The owner, or whoever holds the lock, has it.
 *   count <= capacity;  (list == NULL) == (capacity == 0);  list is ascending by bytes, without overlaps
 *   held_bytes == the sum of the children's sizes;  freed_bytes <= allocated_bytes
 *   allocated_bytes - freed_bytes == held_bytes - the sum of the ranges' free sizes
 *   next_bytes is what the next child has at least, <= child_bytes_max */
struct sw_scalable {
    uint64_t mark; /* ds/handle.h */
    uint64_t
        owner; /* number of the thread that may call (range/enter.h); 0: each may, under the lock */
    sw_child *list;
    size_t count;
    size_t capacity;
    size_t recent; /* the child that served last; it is asked first */
    uint64_t held_bytes;
    uint64_t allocated_bytes;
    uint64_t freed_bytes;
    uint64_t child_allocs;
    uint64_t child_frees;
    uint64_t next_bytes;
    sw_scalable_options options;
    sw_allocator memory;
    sw_os_lock lock;
    sw_fork_lock fork; /* of a locked one */
};

/* Adds a child in which `size` bytes fit. NOMEM, LIMIT. */
sw_status sw_children_add(sw_scalable *scalable, uint64_t size, const char *op);
/* The child that has all of the bytes, or NULL. */
sw_child *sw_children_find(const sw_scalable *scalable, const void *bytes, size_t size);
/* Gives one back. */
void sw_children_remove(sw_scalable *scalable, sw_child *child);
/* Gives back idle children, the smallest first, until no more than `kept` of them are left. */
void sw_children_trim(sw_scalable *scalable, uint64_t kept);
/* Whether nothing is taken from it. */
bool sw_child_is_idle(const sw_child *child);

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_scalable_record_check(const struct sw_scalable *scalable);
const char *sw_child_check(const sw_child *child);

#endif
