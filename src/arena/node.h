/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of a machine: processors and the memory that is near to them (NUMA). Arenas ask which node
 * the calling thread is on. Callers: chunk.c, chunk_cache.c.
 */
#ifndef SW_ARENA_NODE_H
#define SW_ARENA_NODE_H

#include <stdbool.h>

#include "spanwise/arena.h"

/* As sw_arena_set_nodes, whose arguments were checked. */
void sw_node_set(uint32_t count, uint32_t (*node_of_thread)(void *context), void *context);
/* Whether there is more than one, so that chunks are kept apart. */
bool sw_node_is_used(void);
/* Node of the calling thread, below SW_ARENA_NODES_MAX; 0 where there is one node only. */
uint32_t sw_node_here(void);

#endif
