/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of idle chunks (idle.h). */
#include "arena/idle.h"

void sw_chunk_node_push(sw_chunk_node *node, sw_chunk *chunk, uint64_t now_ns) {
    uint32_t i = chunk->log2 - SW_CHUNK_LOG2_MIN;
    chunk->idle_since_ns = now_ns;
    chunk->newer = NULL;
    chunk->next = node->newest[i];
    if (chunk->next != NULL)
        chunk->next->newer = chunk;
    else
        node->oldest[i] = chunk;
    node->newest[i] = chunk;
}

sw_chunk *sw_chunk_node_pop_front(sw_chunk_node *node, uint32_t log2) {
    uint32_t i = log2 - SW_CHUNK_LOG2_MIN;
    sw_chunk *chunk = node->newest[i];
    if (chunk == NULL) return NULL;
    node->newest[i] = chunk->next;
    if (chunk->next != NULL)
        chunk->next->newer = NULL;
    else
        node->oldest[i] = NULL;
    return chunk;
}

sw_chunk *sw_chunk_node_pop_back(sw_chunk_node *node, uint32_t log2) {
    uint32_t i = log2 - SW_CHUNK_LOG2_MIN;
    sw_chunk *chunk = node->oldest[i];
    if (chunk == NULL) return NULL;
    node->oldest[i] = chunk->newer;
    if (chunk->newer != NULL)
        chunk->newer->next = NULL;
    else
        node->newest[i] = NULL;
    return chunk;
}

void sw_chunk_node_renew(sw_chunk_node *node, uint64_t now_ns) {
    for (uint32_t i = 0; i < SW_CHUNK_SIZES; i++)
        for (sw_chunk *chunk = node->newest[i]; chunk != NULL; chunk = chunk->next)
            chunk->idle_since_ns = now_ns;
}
