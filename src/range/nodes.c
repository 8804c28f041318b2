/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of nodes of one range (nodes.h). */
#include "range/nodes.h"

#include "base/base.h"

/* The first bytes of each chunk; the nodes follow. */
struct sw_nodes_chunk {
    sw_nodes_chunk *next;
    size_t bytes;
    char padding[SW_CACHE_LINE - 2 * sizeof(size_t)];
};

void sw_nodes_init(sw_nodes *nodes, const sw_allocator *memory, size_t node_bytes) {
    *nodes = (sw_nodes){.memory = *memory, .node_bytes = node_bytes};
    nodes->next_bytes = SW_NODES_CHUNK_MIN;
}

static uint64_t fresh_count(const sw_nodes *nodes) {
    return (uint64_t)(nodes->bump_end - nodes->bump) / nodes->node_bytes;
}

/* Moves the remaining nodes of the newest chunk to the list, and allocates a new chunk. */
static bool add_chunk(sw_nodes *nodes) {
    size_t bytes = nodes->next_bytes;
    sw_nodes_chunk *chunk = nodes->memory.allocate(nodes->memory.context, bytes, SW_CACHE_LINE);
    if (chunk == NULL) return false;
    for (uint64_t left = fresh_count(nodes); left > 0; left--) {
        char *node = nodes->bump;
        nodes->bump += nodes->node_bytes;
        sw_nodes_give(nodes, node);
    }
    *chunk = (sw_nodes_chunk){.next = nodes->chunks, .bytes = bytes};
    nodes->chunks = chunk;
    nodes->bump = (char *)(chunk + 1);
    nodes->bump_end = (char *)chunk + bytes;
    nodes->held_bytes += bytes;
    nodes->next_bytes = sw_min_u64(2 * bytes, SW_NODES_CHUNK_MAX);
    return true;
}

bool sw_nodes_reserve(sw_nodes *nodes, uint64_t count) {
    while (sw_unlikely(nodes->waiting_count + fresh_count(nodes) < count)) {
        sw_check2(sw_nodes_check(nodes));
        if (!add_chunk(nodes)) return false;
    }
    return true;
}

void *sw_nodes_take(sw_nodes *nodes) {
    void *node = nodes->waiting;
    if (sw_likely(node != NULL)) {
        nodes->waiting = *(void **)node;
        nodes->waiting_count--;
        return node;
    }
    sw_assert1(fresh_count(nodes) > 0);
    node = nodes->bump;
    nodes->bump += nodes->node_bytes;
    return node;
}

void sw_nodes_give(sw_nodes *nodes, void *node) {
    *(void **)node = nodes->waiting;
    nodes->waiting = node;
    nodes->waiting_count++;
}

void sw_nodes_destroy(sw_nodes *nodes) {
    sw_nodes_chunk *next = NULL;
    for (sw_nodes_chunk *chunk = nodes->chunks; chunk != NULL; chunk = next) {
        next = chunk->next;
        nodes->memory.release(nodes->memory.context, chunk, chunk->bytes);
    }
    sw_allocator memory = nodes->memory;
    sw_nodes_init(nodes, &memory, nodes->node_bytes);
}

const char *sw_nodes_check(const sw_nodes *nodes) {
    return SW_RULE((nodes->bump == NULL) == (nodes->chunks == NULL))
               ?: SW_RULE(nodes->bump <= nodes->bump_end)
               ?: SW_RULE((nodes->waiting == NULL) == (nodes->waiting_count == 0))
               ?: SW_RULE(nodes->waiting_count <= nodes->held_bytes / nodes->node_bytes)
               ?: SW_RULE(nodes->next_bytes >= SW_NODES_CHUNK_MIN)
               ?: SW_RULE(nodes->next_bytes <= SW_NODES_CHUNK_MAX);
}
