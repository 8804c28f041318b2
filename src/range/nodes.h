/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of nodes of one size, for the trees of a range. Nodes are cut from chunks, which come from
 * the user's sw_allocator and double in size. A freed node goes to a free list and is reused next.
 * So a range whose number of holes no longer grows does not call its allocator. Callers: treap.c and
 * btree.c.
 */
#ifndef SW_RANGE_NODES_H
#define SW_RANGE_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spanwise/allocator_vtable.h"

enum {
    SW_NODES_CHUNK_MIN = 4096,
    SW_NODES_CHUNK_MAX = 1 << 20,
};

typedef struct sw_nodes_chunk sw_nodes_chunk;

/* Used only by the thread that is inside a call on the range.
 *   waiting_count <= (held_bytes / node_bytes)
 *   bump <= bump_end, and both are NULL while there is no chunk
 *   SW_NODES_CHUNK_MIN <= next_bytes <= SW_NODES_CHUNK_MAX */
typedef struct sw_nodes {
    sw_allocator memory;
    void *waiting;          /* free list, linked by the nodes' first words */
    uint64_t waiting_count; /* nodes in that list */
    char *bump;             /* the part of the newest chunk that was never allocated */
    char *bump_end;
    sw_nodes_chunk *chunks; /* list of all chunks, newest first */
    size_t node_bytes;
    size_t next_bytes;   /* of the next chunk */
    uint64_t held_bytes; /* of all chunks */
} sw_nodes;

void sw_nodes_init(sw_nodes *nodes, const sw_allocator *memory, size_t node_bytes);
/* Ensures that `count` nodes can be taken. False: the allocator refuses. */
bool sw_nodes_reserve(sw_nodes *nodes, uint64_t count);
/* Takes a node, which must have been reserved; it holds old bytes. */
void *sw_nodes_take(sw_nodes *nodes);
void sw_nodes_give(sw_nodes *nodes, void *node);
/* Returns every chunk, and with them all nodes, to the allocator. */
void sw_nodes_destroy(sw_nodes *nodes);
const char *sw_nodes_check(const sw_nodes *nodes);

#endif
