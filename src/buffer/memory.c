/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-buffer memory: the list of buffers, its growth, and copies of the bytes (memory.h). */
#include "spanwise/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "buffer/memory.h"

enum {
    MANY_MIN = 64,  /* buffers in the first list that does not fit into the record */
    STEEP_MAX = 512 /* a list of fewer buffers grows to four times its length, others to twice */
};

/* --- the list --------------------------------------------------------------------------------- */

void sw_memory_init(sw_memory *memory, const sw_allocator *allocator) {
    if (memory == NULL) return;
    memory->size = memory->revision = 0;
    memory->buffers = memory->few;
    memory->count = 0;
    memory->capacity = SW_MEMORY_FEW;
    memory->allocator = allocator != NULL ? *allocator : (sw_allocator){NULL, NULL, NULL};
}

/* Allocates a list of `capacity` buffers, moves those of the memory there, and releases the old
 * list. NULL: no memory. */
static sw_buffer *move_list(sw_memory *memory, size_t capacity) {
    const sw_allocator *allocator = &memory->allocator;
    size_t bytes = capacity * sizeof(sw_buffer);
    bool is_few = memory->buffers == memory->few;
    if (allocator->allocate == NULL && !is_few) return realloc(memory->buffers, bytes);
    sw_buffer *list = allocator->allocate == NULL
                          ? malloc(bytes)
                          : allocator->allocate(allocator->context, bytes, _Alignof(sw_buffer));
    if (list == NULL) return NULL;
    memcpy(list, memory->buffers, memory->count * sizeof *list);
    if (!is_few)
        allocator->release(allocator->context, memory->buffers, memory->capacity * sizeof *list);
    return list;
}

void sw_memory_end(sw_memory *memory) {
    if (memory == NULL) return;
    const sw_allocator *allocator = &memory->allocator;
    if (memory->buffers != memory->few) {
        if (allocator->allocate == NULL) {
            free(memory->buffers);
        } else {
            allocator->release(allocator->context, memory->buffers,
                               memory->capacity * sizeof *memory->buffers);
        }
    }
    memory->buffers = memory->few;
    memory->capacity = SW_MEMORY_FEW;
    sw_memory_reset(memory);
}

void sw_memory_reset(sw_memory *memory) {
    if (memory == NULL) return;
    memory->count = 0;
    memory->size = 0;
    memory->revision++;
    sw_check2(sw_memory_check(memory));
}

/* Returns the minimum length to which a full list grows. A short one grows faster, which saves
 * calls of the allocator and costs little: four times fewer than STEEP_MAX buffers are less than 32
 * KiB. */
static uint64_t next_capacity(uint64_t capacity) {
    return sw_max_u64(capacity * (capacity < STEEP_MAX ? 4 : 2), MANY_MIN);
}

/* Makes room for `added` more buffers at the end of the list. */
static sw_status grow(sw_memory *memory, size_t added) {
    if (added <= memory->capacity - memory->count) return SW_OK;
    size_t most = SIZE_MAX / 4 / sizeof(sw_buffer);
    sw_buffer *list = NULL;
    uint64_t wanted = next_capacity(memory->capacity);
    if (added <= most - memory->count) {
        wanted = sw_max_u64(wanted, memory->count + added);
        list = move_list(memory, (size_t)wanted);
    }
    if (list == NULL)
        return sw_fail(SW_NOMEM, "memory_push", "no memory for a list of %zu buffers and %zu more",
                       memory->count, added);
    memory->buffers = list;
    memory->capacity = (size_t)wanted;
    return SW_OK;
}

/* Stores to *sum the size that the memory will have with these buffers in place of `replaced`
 * bytes. Fails if that is too large, or if a buffer is invalid. */
static sw_status add_up(const sw_memory *memory, uint64_t replaced, const sw_buffer *buffers,
                        size_t count, const char *op, uint64_t *sum) {
    uint64_t size = memory->size - replaced;
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].bytes == NULL && buffers[i].size != 0)
            return sw_fail(SW_INVALID, op, "a buffer of %zu bytes at NULL: pass its address",
                           buffers[i].size);
        if (buffers[i].size > SW_MEMORY_SIZE_MAX - size)
            return sw_fail(SW_LIMIT, op,
                           "a buffer of %zu bytes on top of %" PRIu64
                           ": a memory has at most 2^63 - 1 in all",
                           buffers[i].size, size);
        size += buffers[i].size;
    }
    *sum = size;
    return SW_OK;
}

/* Adds buffers of `size` bytes in all, checked by add_up. They may be in the memory's own list. */
static sw_status add(sw_memory *memory, const sw_buffer *buffers, size_t count, uint64_t size) {
    bool is_own = buffers >= memory->buffers && buffers < memory->buffers + memory->count;
    size_t own = is_own ? (size_t)(buffers - memory->buffers) : 0;
    sw_status status = grow(memory, count);
    if (status != SW_OK) return status;
    if (is_own) buffers = memory->buffers + own;
    if (count != 0) memcpy(memory->buffers + memory->count, buffers, count * sizeof *buffers);
    memory->count += count;
    memory->size += size;
    sw_check2(sw_memory_check(memory));
    return SW_OK;
}

sw_status sw_memory_push_buffers(sw_memory *memory, const sw_buffer *buffers, size_t count) {
    if (memory == NULL || (buffers == NULL && count != 0))
        return sw_fail_null("memory_push", "the memory or its buffers");
    uint64_t sum = 0;
    sw_status status = add_up(memory, 0, buffers, count, "memory_push", &sum);
    return status == SW_OK ? add(memory, buffers, count, sum - memory->size) : status;
}

sw_status sw_memory_append(sw_memory *memory, const sw_memory *other) {
    if (memory == NULL || other == NULL) return sw_fail_null("memory_append", "a memory");
    if (other->size > SW_MEMORY_SIZE_MAX - memory->size)
        return sw_fail(SW_LIMIT, "memory_append",
                       "%" PRIu64 " bytes on top of %" PRIu64
                       ": a memory has at most 2^63 - 1 in all",
                       other->size, memory->size);
    return add(memory, other->buffers, other->count, other->size);
}

sw_status sw_memory_push_slow(sw_memory *memory, void *bytes, size_t size) {
    sw_buffer buffer = {bytes, size};
    return sw_memory_push_buffers(memory, &buffer, 1);
}

/* --- changes inside --------------------------------------------------------------------------- */

sw_status sw_memory_update(sw_memory *memory, int64_t index, void *bytes, size_t size) {
    if (memory == NULL) return sw_fail_null("memory_update", "the memory");
    uint64_t from_end = index < 0 ? 0 - (uint64_t)index : 0;
    uint64_t place = index < 0 ? memory->count - from_end : (uint64_t)index;
    if (from_end > memory->count || place >= memory->count)
        return sw_fail(SW_INVALID, "memory_update", "index %" PRId64 " in a memory of %zu buffers",
                       index, memory->count);
    sw_buffer *old = &memory->buffers[place], buffer = {bytes, size};
    uint64_t sum = 0;
    sw_status status = add_up(memory, old->size, &buffer, 1, "memory_update", &sum);
    if (status != SW_OK) return status;
    *old = buffer;
    memory->size = sum;
    memory->revision++;
    return SW_OK;
}

sw_status sw_memory_drop_front(sw_memory *memory, uint64_t size) {
    if (memory == NULL) return sw_fail_null("memory_drop_front", "the memory");
    if (size > memory->size)
        return sw_fail(SW_SHORT, "memory_drop_front", "%" PRIu64 " bytes of a memory of %" PRIu64,
                       size, memory->size);
    sw_buffer *list = memory->buffers;
    size_t whole = 0;
    memory->size -= size;
    while (whole < memory->count && list[whole].size <= size) size -= list[whole++].size;
    if (size != 0) {
        list[whole].bytes += size;
        list[whole].size -= (size_t)size;
    }
    memory->count -= whole;
    memmove(list, list + whole, memory->count * sizeof *list);
    memory->revision++;
    sw_check2(sw_memory_check(memory));
    return SW_OK;
}

/* --- copies ----------------------------------------------------------------------------------- */

enum { AHEAD = 1024 }; /* bytes of the next buffer that are prefetched while one is copied */

/* Prefetches the next buffer, because the hardware prefetcher works only within a buffer. */
static void fetch_ahead(const sw_buffer *buffer) {
    size_t bytes = buffer->size < AHEAD ? buffer->size : AHEAD;
    for (size_t i = 0; i < bytes; i += SW_CACHE_LINE) __builtin_prefetch(buffer->bytes + i);
}

static void copy_all(const sw_memory *memory, uint8_t *out) {
    const sw_buffer *list = memory->buffers;
    for (size_t i = 0; i < memory->count; i++) {
        if (i + 1 < memory->count) fetch_ahead(&list[i + 1]);
        if (list[i].size == 0) continue;
        memcpy(out, list[i].bytes, list[i].size);
        out += list[i].size;
    }
}

static sw_status check_room(const sw_memory *memory, const void *out, size_t capacity,
                            const char *op) {
    if (memory->size <= capacity && (out != NULL || memory->size == 0)) return SW_OK;
    return sw_fail(SW_LIMIT, op, "room for %zu bytes of a memory of %" PRIu64,
                   out == NULL ? (size_t)0 : capacity, memory->size);
}

sw_status sw_memory_copy_to(const sw_memory *memory, void *out, size_t capacity) {
    if (memory == NULL) return sw_fail_null("memory_copy_to", "the memory");
    sw_status status = check_room(memory, out, capacity, "memory_copy_to");
    if (status == SW_OK) copy_all(memory, out);
    return status;
}

sw_status sw_memory_copy_from(sw_memory *memory, const sw_memory *other, void *space,
                              size_t capacity) {
    if (memory == NULL || other == NULL) return sw_fail_null("memory_copy_from", "a memory");
    sw_status status = check_room(other, space, capacity, "memory_copy_from");
    if (status != SW_OK) return status;
    size_t size = (size_t)other->size;
    sw_buffer copy = {space, size};
    uint64_t sum = 0;
    status = add_up(memory, 0, &copy, 1, "memory_copy_from", &sum);
    if (status != SW_OK) return status;
    status = grow(memory, 1);
    if (status != SW_OK) return status;
    copy_all(other, space);
    return sw_memory_push(memory, space, size);
}

void *sw_memory_to_bytes(const sw_memory *memory) {
    if (memory == NULL) {
        (void)sw_fail_null("memory_to_bytes", "the memory");
        return NULL;
    }
    uint8_t *bytes = memory->size < SIZE_MAX ? malloc((size_t)memory->size + 1) : NULL;
    if (bytes == NULL) {
        (void)sw_fail(SW_NOMEM, "memory_to_bytes", "no memory for %" PRIu64 " bytes", memory->size);
        return NULL;
    }
    copy_all(memory, bytes);
    return bytes;
}

bool sw_memory_equal(const sw_memory *memory, const sw_memory *other) {
    if (memory == NULL || other == NULL) return memory == other;
    if (memory->size != other->size || memory->count != other->count) return false;
    const sw_buffer *list = memory->buffers, *others = other->buffers;
    for (size_t i = 0; i < memory->count; i++) {
        if (list[i].size != others[i].size) return false;
        if (list[i].size != 0 && memcmp(list[i].bytes, others[i].bytes, list[i].size) != 0)
            return false;
    }
    return true;
}

const char *sw_memory_check(const sw_memory *memory) {
    return SW_RULE(memory->count <= memory->capacity)
               ?: SW_RULE((memory->buffers == memory->few) == (memory->capacity == SW_MEMORY_FEW))
               ?: SW_RULE(memory->size <= SW_MEMORY_SIZE_MAX)
               ?: SW_RULE(memory->count != 0 || memory->size == 0);
}
