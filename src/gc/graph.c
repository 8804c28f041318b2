/* SPDX-License-Identifier: Apache-2.0 */
/* Builds graphs whose edges are given as numbers. */
#include "base/bits.h"
#include "base/fail.h"
#include "gc/type.h"
#include "heap/collected.h"

enum { DEGREE_MAX = 64 };

/* Finds the first pointer words of the type's objects, `most` of them at most and within 64 words.
 * Returns how many there are. */
static uint32_t pointer_words(const sw_gc_layout *layout, uint32_t most, uint8_t *words) {
    uint32_t found = 0;
    uint64_t limit = layout->words < 64 ? layout->words : 64;
    for (uint32_t i = 0; layout->scan && i < limit && found < most; i++)
        if (sw_gc_is_pointer(layout, i)) words[found++] = (uint8_t)i;
    return found;
}

static sw_status check_edges(const uint32_t *edges, size_t nodes, uint32_t degree) {
    for (size_t i = 0; i < nodes * degree; i++)
        if (edges[i] >= nodes && edges[i] != SW_GC_NO_EDGE)
            return sw_fail(SW_INVALID, "gc_build",
                           "edge %zu of object %zu goes to %u of %zu objects", i % degree,
                           i / degree, edges[i], nodes);
    return SW_OK;
}

static sw_status make_nodes(sw_gc *gc, uint32_t type, size_t nodes, void **addresses) {
    const sw_gc_layout *layout = sw_gc_layout_of(gc, type);
    unsigned flags = layout->scan ? SW_SCAN | type << SW_TYPE_SHIFT : 0;
    for (size_t i = 0; i < nodes; i++) {
        addresses[i] = sw_heap_alloc(gc->heap, layout->bytes, flags);
        if (addresses[i] == NULL) return SW_NOMEM; /* the last error is set */
    }
    return SW_OK;
}

sw_status sw_gc_build(sw_gc *gc, uint32_t type, uint32_t degree, size_t nodes,
                      const uint32_t *edges, void **addresses) {
    const char *op = "gc_build";
    uint8_t words[DEGREE_MAX];
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (!sw_gc_has_type(gc, type)) return sw_fail(SW_INVALID, op, "no type has number %u", type);
    if (nodes > SW_GC_NO_EDGE || degree > DEGREE_MAX ||
        pointer_words(sw_gc_layout_of(gc, type), degree, words) < degree)
        return sw_fail(SW_INVALID, op, "type %s has fewer than %u pointers in its first 64 words",
                       sw_gc_layout_of(gc, type)->name, degree);
    status = check_edges(edges, nodes, degree);
    if (status == SW_OK) status = make_nodes(gc, type, nodes, addresses);
    if (status != SW_OK) return status;
    for (size_t i = 0; i < nodes; i++)
        for (uint32_t e = 0; e < degree; e++) {
            uint32_t to = edges[i * degree + e];
            if (to != SW_GC_NO_EDGE) ((void **)addresses[i])[words[e]] = addresses[to];
        }
    return SW_OK;
}
