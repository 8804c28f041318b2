/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of nodes of one size, for the trees of a range. Nodes are cut from chunks that come from the
 * user's sw_allocator and double in size; a node that is given back waits in a list for the next one
 * that is taken. So a range whose number of holes has stopped growing calls its allocator no more.
 * Callers: tree.c and wide.c.
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

/* Whoever calls the range has the pool.
 *   waiting_count <= (held_bytes / node_bytes)
 *   bump <= bump_end, and both are NULL as long as there is no chunk
 *   SW_NODES_CHUNK_MIN <= next_bytes <= SW_NODES_CHUNK_MAX */
typedef struct sw_nodes {
    sw_allocator memory;
    void *waiting; /* nodes that were given back; the first word of each leads to the next */
    uint64_t waiting_count; /* of that list */
    char *bump;             /* what was never handed out of the newest chunk */
    char *bump_end;
    sw_nodes_chunk *chunks; /* all of them, the newest first */
    size_t node_bytes;
    size_t next_bytes;   /* of the next chunk */
    uint64_t held_bytes; /* of all chunks */
} sw_nodes;

void sw_nodes_init(sw_nodes *nodes, const sw_allocator *memory, size_t node_bytes);
/* Makes sure that the next `count` nodes can be taken. False when the allocator refuses. */
bool sw_nodes_reserve(sw_nodes *nodes, uint64_t count);
/* A node with old bytes in it. It was reserved before. */
void *sw_nodes_take(sw_nodes *nodes);
void sw_nodes_give(sw_nodes *nodes, void *node);
/* Gives every chunk back to the allocator; all nodes are gone. */
void sw_nodes_destroy(sw_nodes *nodes);
/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_nodes_check(const sw_nodes *nodes);

#endif
