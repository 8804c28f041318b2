/* SPDX-License-Identifier: Apache-2.0 */
/* Adds and releases children of a scalable allocator (scalable.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "buffer/scalable.h"
#include "range/range.h"

bool sw_child_is_idle(const sw_child *child) { return child->range->free_size == child->size; }

/* Returns the index after the last child that begins at or below an address. */
static size_t place_of(const sw_scalable *scalable, uintptr_t address) {
    size_t low = 0, high = scalable->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)scalable->list[middle].bytes <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

sw_child *sw_children_find(const sw_scalable *scalable, const void *bytes, size_t size) {
    size_t place = place_of(scalable, (uintptr_t)bytes);
    if (place == 0) return NULL;
    sw_child *child = &scalable->list[place - 1];
    uint64_t offset = (uint64_t)((uintptr_t)bytes - (uintptr_t)child->bytes);
    return offset < child->size && size <= child->size - offset ? child : NULL;
}

/* --- growth ----------------------------------------------------------------------------------- */

static bool has_place(sw_scalable *scalable) {
    if (scalable->count < scalable->capacity) return true;
    size_t capacity = scalable->capacity == 0 ? 8 : 2 * scalable->capacity;
    sw_child *list = realloc(scalable->list, capacity * sizeof *list);
    if (list == NULL) return false;
    scalable->list = list;
    scalable->capacity = capacity;
    return true;
}

/* Returns the size of a new child for a request: next_bytes, doubled until the request fits, and at
 * most the cap. A request above the cap gets a child of that size. */
static uint64_t size_for(const sw_scalable *scalable, uint64_t size) {
    uint64_t cap = scalable->options.child_bytes_max, wanted = scalable->next_bytes;
    if (size > cap) return size;
    while (wanted < size) wanted = sw_min_u64(2 * wanted, cap);
    return wanted;
}

static bool can_make(sw_scalable *scalable, sw_child *child) {
    const sw_allocator *memory = &scalable->memory;
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = scalable->options.backend;
    child->bytes = memory->allocate(memory->context, child->size, SW_CACHE_LINE);
    if (child->bytes == NULL) return false;
    if (sw_range_create(child->size, &options, &child->range) == SW_OK) return true;
    memory->release(memory->context, child->bytes, child->size);
    return false;
}

sw_status sw_children_add(sw_scalable *scalable, uint64_t size, const char *op) {
    uint64_t limit = scalable->options.limit_bytes;
    sw_child child = {.size = size_for(scalable, size),
                      .is_own = size > scalable->options.child_bytes_max};
    if (limit != 0 && child.size > limit - scalable->held_bytes) {
        sw_children_trim(scalable, 0);
        if (child.size > limit - scalable->held_bytes) child.size = size;
        if (size > limit - scalable->held_bytes)
            return sw_fail(SW_LIMIT, op,
                           "%" PRIu64 " bytes would exceed limit_bytes=%" PRIu64 "; %" PRIu64
                           " are held",
                           size, limit, scalable->held_bytes);
    }
    if (!has_place(scalable) || !can_make(scalable, &child))
        return sw_fail(SW_NOMEM, op, "no memory for a block of %" PRIu64 " bytes", child.size);
    size_t place = place_of(scalable, (uintptr_t)child.bytes);
    memmove(&scalable->list[place + 1], &scalable->list[place],
            (scalable->count - place) * sizeof child);
    scalable->list[place] = child;
    scalable->count++;
    scalable->recent = place;
    scalable->held_bytes += child.size;
    scalable->child_allocs++;
    if (!child.is_own)
        scalable->next_bytes = sw_min_u64(2 * child.size, scalable->options.child_bytes_max);
    sw_check2(sw_scalable_record_check(scalable));
    return SW_OK;
}

/* --- giving back ------------------------------------------------------------------------------ */

void sw_children_remove(sw_scalable *scalable, sw_child *child) {
    const sw_allocator *memory = &scalable->memory;
    size_t place = (size_t)(child - scalable->list);
    sw_check2(sw_child_check(child));
    child->range->front.owner = sw_range_this_thread();
    sw_range_destroy(child->range);
    memory->release(memory->context, child->bytes, child->size);
    scalable->held_bytes -= child->size;
    scalable->child_frees++;
    scalable->count--;
    memmove(child, child + 1, (scalable->count - place) * sizeof *child);
    scalable->recent = 0;
    if (scalable->count == 0) scalable->next_bytes = scalable->options.first_bytes;
}

void sw_children_trim(sw_scalable *scalable, uint64_t kept) {
    for (;;) {
        sw_child *smallest = NULL;
        uint64_t idle = 0;
        for (size_t i = 0; i < scalable->count; i++) {
            sw_child *child = &scalable->list[i];
            if (!sw_child_is_idle(child)) continue;
            idle++;
            if (smallest == NULL || child->size < smallest->size) smallest = child;
        }
        if (idle <= kept) return;
        sw_children_remove(scalable, smallest);
    }
}

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_child_check(const sw_child *child) {
    return SW_RULE(child->bytes != NULL) ?: SW_RULE(child->size == child->range->size);
}

const char *sw_scalable_record_check(const struct sw_scalable *scalable) {
    const char *broken =
        SW_RULE(scalable->count <= scalable->capacity)
            ?: SW_RULE((scalable->list == NULL) == (scalable->capacity == 0))
            ?: SW_RULE(scalable->recent == 0 || scalable->recent < scalable->count)
            ?: SW_RULE(scalable->freed_bytes <= scalable->allocated_bytes)
            ?: SW_RULE(scalable->next_bytes <= scalable->options.child_bytes_max)
            ?: SW_RULE(scalable->child_allocs - scalable->child_frees == scalable->count);
    uint64_t held = 0, taken = 0;
    for (size_t i = 0; broken == NULL && i < scalable->count; i++) {
        const sw_child *child = &scalable->list[i];
        const sw_child *before = i == 0 ? NULL : child - 1;
        broken = sw_child_check(child)
                     ?: SW_RULE(before == NULL || before->bytes + before->size <= child->bytes);
        held += child->size;
        taken += child->size - child->range->free_size;
    }
    return broken ?: SW_RULE(held == scalable->held_bytes)
                     ?: SW_RULE(taken == scalable->allocated_bytes - scalable->freed_bytes);
}
