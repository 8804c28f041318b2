/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a node's idle chunks. A chunk that becomes idle is added at the newest end; arenas
 * take chunks from that end, and decay takes them from the other. Callers: chunk.c, which holds the
 * pool's lock.
 */
#ifndef SW_ARENA_IDLE_H
#define SW_ARENA_IDLE_H

#include "arena/chunk.h"

/* Adds a chunk that becomes idle at now_ns, which is not before the time of the last one. */
void sw_chunk_node_push(sw_chunk_node *node, sw_chunk *chunk, uint64_t now_ns);
/* Removes the chunk of 1 << log2 bytes that became idle last (front) or first (back). NULL:
 * none. */
sw_chunk *sw_chunk_node_pop_front(sw_chunk_node *node, uint32_t log2);
sw_chunk *sw_chunk_node_pop_back(sw_chunk_node *node, uint32_t log2);
/* Makes all idle chunks count as idle since now_ns. */
void sw_chunk_node_renew(sw_chunk_node *node, uint64_t now_ns);

#endif
