/* SPDX-License-Identifier: Apache-2.0 */
/* NUMA nodes. Callers: chunk.c, chunk_cache.c.
 */
#ifndef SW_ARENA_NODE_H
#define SW_ARENA_NODE_H

#include <stdbool.h>

#include "spanwise/arena.h"

/* As sw_arena_set_nodes, with valid arguments. */
void sw_node_set(uint32_t count, uint32_t (*node_of_thread)(void *context), void *context);
bool sw_node_is_used(void);
/* Returns the node of the calling thread, below SW_ARENA_NODES_MAX; 0 if there is only one. */
uint32_t sw_node_here(void);

#endif
