/* SPDX-License-Identifier: Apache-2.0 */
/* Recyclable memory: owned blocks that are freed together (spanwise/recyclable.h). */
#include "spanwise/recyclable.h"

#include <stdlib.h>

#include "base/base.h"
#include "buffer/memory.h"

void sw_recyclable_init(sw_recyclable *recyclable, sw_scalable *allocator) {
    if (recyclable == NULL) return;
    sw_memory_init(&recyclable->memory, NULL);
    sw_memory_init(&recyclable->owned, NULL);
    recyclable->allocator = allocator;
}

static const char *sw_recyclable_check(const sw_recyclable *recyclable) {
    return sw_memory_check(&recyclable->memory) ?: sw_memory_check(&recyclable->owned);
}

static sw_status give_back(const sw_recyclable *recyclable, sw_buffer block) {
    if (recyclable->allocator != NULL)
        return sw_scalable_free(recyclable->allocator, block.bytes, block.size);
    free(block.bytes);
    return SW_OK;
}

/* Joins the last of the first `*count` blocks with those before it that are adjacent to each other
 * in memory. Reduces *count by the joined blocks. */
static sw_buffer last_row(const sw_memory *owned, size_t *count) {
    sw_buffer row = owned->buffers[--*count];
    while (*count != 0) {
        sw_buffer before = owned->buffers[*count - 1];
        if (before.bytes + before.size != row.bytes) break;
        row = (sw_buffer){before.bytes, before.size + row.size};
        --*count;
    }
    return row;
}

/* Frees the blocks first .. end - 1 in reverse order, so that each touches the previous hole. */
static sw_status give_each_back(const sw_recyclable *recyclable, size_t first, size_t end) {
    sw_status found = SW_OK;
    while (end-- > first) {
        sw_status status = give_back(recyclable, recyclable->owned.buffers[end]);
        if (status != SW_OK) found = status;
    }
    return found;
}

sw_status sw_recyclable_recycle(sw_recyclable *recyclable) {
    if (recyclable == NULL) return sw_fail_null("recyclable_recycle", "the recyclable memory");
    sw_memory *owned = &recyclable->owned;
    sw_status found = SW_OK;
    sw_check2(sw_recyclable_check(recyclable));
    for (size_t count = owned->count; count != 0;) {
        size_t end = count;
        sw_status status = SW_STATE;
        if (recyclable->allocator != NULL)
            status = give_back(recyclable, last_row(owned, &count));
        else
            count = 0;
        /* A row fails as a whole if it spans two children, or if a part of it is free. */
        if (status != SW_OK) status = give_each_back(recyclable, count, end);
        if (status != SW_OK) found = status;
    }
    sw_memory_reset(owned);
    sw_memory_reset(&recyclable->memory);
    return found;
}

sw_status sw_recyclable_end(sw_recyclable *recyclable) {
    if (recyclable == NULL) return sw_fail_null("recyclable_end", "the recyclable memory");
    sw_status status = sw_recyclable_recycle(recyclable);
    sw_memory_end(&recyclable->owned);
    sw_memory_end(&recyclable->memory);
    return status;
}

/* --- taking ----------------------------------------------------------------------------------- */

static void forget_last(sw_memory *list) {
    list->size -= list->buffers[--list->count].size;
    sw_check2(sw_memory_check(list));
}

sw_status sw_recyclable_add(sw_recyclable *recyclable, void *bytes, size_t size) {
    if (recyclable == NULL) return sw_fail_null("recyclable_add", "the recyclable memory");
    if (bytes == NULL || size == 0)
        return sw_fail(SW_INVALID, "recyclable_add", "%zu bytes at %p: pass an address and a size",
                       size, bytes);
    sw_status status = sw_memory_push(&recyclable->owned, bytes, size);
    if (status != SW_OK) return status;
    status = sw_memory_push(&recyclable->memory, bytes, size);
    if (status != SW_OK) forget_last(&recyclable->owned);
    return status;
}

/* Allocates bytes that are not in the lists yet. */
static void *take(const sw_recyclable *recyclable, size_t size) {
    if (recyclable->allocator != NULL) return sw_scalable_alloc(recyclable->allocator, size);
    if (size == 0) {
        (void)sw_fail(SW_INVALID, "recyclable_next", "a request of size 0: ask for 1 or more");
        return NULL;
    }
    void *bytes = malloc(size);
    if (bytes == NULL) (void)sw_fail(SW_NOMEM, "recyclable_next", "no memory for %zu bytes", size);
    return bytes;
}

void *sw_recyclable_next(sw_recyclable *recyclable, size_t size) {
    if (recyclable == NULL) {
        (void)sw_fail_null("recyclable_next", "the recyclable memory");
        return NULL;
    }
    void *bytes = take(recyclable, size);
    if (bytes == NULL || sw_recyclable_add(recyclable, bytes, size) == SW_OK) return bytes;
    (void)give_back(recyclable, (sw_buffer){bytes, size});
    return NULL;
}

/* Frees and removes all after the first `count` buffers and the first `blocks` owned blocks. */
static void undo(sw_recyclable *recyclable, size_t count, size_t blocks) {
    while (recyclable->owned.count > blocks) {
        (void)give_back(recyclable, recyclable->owned.buffers[recyclable->owned.count - 1]);
        forget_last(&recyclable->owned);
    }
    while (recyclable->memory.count > count) forget_last(&recyclable->memory);
}

sw_status sw_recyclable_clone(sw_recyclable *recyclable, const sw_memory *from) {
    if (recyclable == NULL || from == NULL) return sw_fail_null("recyclable_clone", "a memory");
    size_t count = recyclable->memory.count, blocks = recyclable->owned.count;
    size_t many = from->count; /* `from` may be this memory itself, which grows in the loop */
    for (size_t i = 0; i < many; i++) {
        size_t size = from->buffers[i].size;
        void *copy = size != 0 ? sw_recyclable_next(recyclable, size) : NULL;
        sw_status status = size == 0      ? sw_memory_push(&recyclable->memory, NULL, 0)
                           : copy != NULL ? SW_OK
                                          : sw_last_error()->status;
        if (status != SW_OK) {
            undo(recyclable, count, blocks);
            return status;
        }
        if (copy != NULL) memcpy(copy, from->buffers[i].bytes, size);
    }
    return SW_OK;
}

/* --- clipping --------------------------------------------------------------------------------- */

static bool has_part(sw_buffer block, sw_buffer part) {
    uintptr_t offset = (uintptr_t)part.bytes - (uintptr_t)block.bytes;
    return offset < block.size && part.size <= block.size - offset;
}

static void forget_block(sw_memory *owned, size_t index) {
    owned->size -= owned->buffers[index].size;
    owned->count--;
    memmove(&owned->buffers[index], &owned->buffers[index + 1],
            (owned->count - index) * sizeof *owned->buffers);
}

/* Called for a part that was cut off the front of the memory: frees it if it begins at the front of
 * an owned block. Blocks of the C library are freed when their last byte is cut off. */
static void drop_part(void *context, sw_buffer part) {
    sw_recyclable *recyclable = context;
    sw_memory *owned = &recyclable->owned;
    size_t index = 0;
    while (index < owned->count && !has_part(owned->buffers[index], part)) index++;
    if (index == owned->count) return;
    sw_buffer *block = &owned->buffers[index];
    bool is_last = part.bytes + part.size == block->bytes + block->size;
    if (is_last && (recyclable->allocator == NULL || part.bytes == block->bytes)) {
        (void)give_back(recyclable, *block);
        forget_block(owned, index);
    } else if (recyclable->allocator != NULL && part.bytes == block->bytes) {
        (void)give_back(recyclable, part);
        block->bytes += part.size;
        block->size -= part.size;
        owned->size -= part.size;
    }
}

sw_status sw_recyclable_clip_front(sw_recyclable *recyclable, sw_reader *reader) {
    if (recyclable == NULL) return sw_fail_null("recyclable_clip_front", "the recyclable memory");
    return sw_reader_clip_front(reader, &recyclable->memory, drop_part, recyclable);
}
