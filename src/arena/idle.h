/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of one node's idle chunks: who becomes idle goes in at the newest end, arenas take from there, and time
 * takes from the other. Callers: chunk.c, which holds the pool's lock.
 */
#ifndef SW_ARENA_IDLE_H
#define SW_ARENA_IDLE_H

#include "arena/chunk.h"

/* A chunk that is idle from now on; now_ns is not before the last one's. */
void sw_chunk_node_push(sw_chunk_node *node, sw_chunk *chunk, uint64_t now_ns);
/* The chunk of 1 << log2 bytes that is idle since the shortest or the longest time. NULL: there is none. */
sw_chunk *sw_chunk_node_pop_front(sw_chunk_node *node, uint32_t log2);
sw_chunk *sw_chunk_node_pop_back(sw_chunk_node *node, uint32_t log2);
/* The time of all of them begins anew. */
void sw_chunk_node_renew(sw_chunk_node *node, uint64_t now_ns);

#endif
