/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a scalable allocator (spanwise/scalable.h). Callers: scalable.c, children.c.
 * Design: docs/design/buffer.md.
 */
#ifndef SW_BUFFER_SCALABLE_H
#define SW_BUFFER_SCALABLE_H

#include "ds/handle.h"
#include "os/os.h"
#include "spanwise/range.h"
#include "spanwise/scalable.h"

/* A child: a block of memory, and the range allocator of its parts.
 *   size == the size of range;  the child is idle if the range's free_size == size */
typedef struct sw_child {
    uint8_t *bytes;
    uint64_t size;
    sw_range *range;
    bool is_own; /* created for one request above the cap; serves no others */
} sw_child;

/* Used only by the owner, or by the thread that holds the lock.
 *   count <= capacity;  (list == NULL) == (capacity == 0)
 *   list is ascending by bytes, without overlaps
 *   held_bytes == the sum of the children's sizes;  freed_bytes <= allocated_bytes
 *   allocated_bytes - freed_bytes == held_bytes - the sum of the ranges' free sizes
 *   next_bytes, the least size of the next child, <= child_bytes_max */
struct sw_scalable {
    uint64_t mark;  /* ds/handle.h */
    uint64_t owner; /* thread that may call (range/range.h); 0: any, under the lock */
    sw_child *list;
    size_t count;
    size_t capacity;
    size_t recent; /* index of the child that served last, tried first */
    uint64_t held_bytes;
    uint64_t allocated_bytes;
    uint64_t freed_bytes;
    uint64_t child_allocs;
    uint64_t child_frees;
    uint64_t next_bytes;
    sw_scalable_options options;
    sw_allocator memory;
    sw_os_lock lock;
    sw_fork_lock fork; /* used by a locked allocator */
};

/* Adds a child in which `size` bytes fit. May return NOMEM or LIMIT. */
sw_status sw_children_add(sw_scalable *scalable, uint64_t size, const char *op);
/* Returns the child that contains all of the bytes, or NULL. */
sw_child *sw_children_find(const sw_scalable *scalable, const void *bytes, size_t size);
void sw_children_remove(sw_scalable *scalable, sw_child *child);
/* Releases idle children, the smallest first, until at most `kept` are left. */
void sw_children_trim(sw_scalable *scalable, uint64_t kept);
bool sw_child_is_idle(const sw_child *child);

const char *sw_scalable_record_check(const struct sw_scalable *scalable);
const char *sw_child_check(const sw_child *child);

#endif
