/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions of scalable allocators (spanwise/scalable.h). */
#include "buffer/scalable.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/base.h"
#include "buffer/memory.h"
#include "ds/handle.h"
#include "range/range.h"

#define MARK offsetof(sw_scalable, mark)

/* --- the way in and out ----------------------------------------------------------------------- */

static sw_cold sw_status refuse_thread(const sw_scalable *scalable, const char *op) {
    return sw_fail(SW_OWNER, op,
                   "the allocator %p belongs to another thread: call it there, hand it over with "
                   "sw_scalable_adopt, or make it with the option locked",
                   (const void *)scalable);
}

static sw_always_inline sw_status enter_live(sw_scalable *scalable, const char *op) {
    if (scalable->owner == 0) {
        sw_os_lock_enter(&scalable->lock);
        return SW_OK;
    }
    return sw_likely(scalable->owner == sw_range_this_thread()) ? SW_OK
                                                                : refuse_thread(scalable, op);
}

static sw_always_inline sw_status enter(sw_scalable *scalable, const char *op) {
    sw_status status = sw_handle_status(scalable, MARK, SW_HANDLE_SCALABLE, op);
    return sw_likely(status == SW_OK) ? enter_live(scalable, op) : status;
}

static sw_always_inline bool has_entered(sw_scalable *scalable, const char *op) {
    return sw_handle_check(scalable, MARK, SW_HANDLE_SCALABLE, op) &&
           sw_likely(enter_live(scalable, op) == SW_OK);
}

static sw_always_inline void leave(sw_scalable *scalable) {
    if (scalable->owner == 0) sw_os_lock_leave(&scalable->lock);
}

/* Returns the range of a child, which belongs to this thread while it holds the lock. */
static sw_always_inline sw_range *range_of(sw_child *child) {
    child->range->front.owner = sw_range_this_thread();
    return child->range;
}

/* --- life ------------------------------------------------------------------------------------- */

void sw_scalable_options_init(sw_scalable_options *options) {
    if (options == NULL) return;
    *options = (sw_scalable_options){.struct_bytes = sizeof *options,
                                     .locked = 1,
                                     .idle_max = 1,
                                     .first_bytes = 16 << 10,
                                     .child_bytes_max = 4 << 20};
}

static sw_status check_options(const sw_scalable_options *options) {
    static const char op[] = "scalable_create";
    if (options->struct_bytes != sizeof *options)
        return sw_fail(SW_INVALID, op,
                       "options of %u bytes: fill them with sw_scalable_options_init first",
                       options->struct_bytes);
    if (options->backend >= SW_RANGE_BACKEND_COUNT)
        return sw_fail(SW_INVALID, op, "back end %u: use one of sw_range_backend",
                       options->backend);
    if (options->backend == SW_RANGE_BUDDY)
        return sw_fail(SW_UNSUPPORTED, op,
                       "a buddy frees no part of what a request got: use another back end");
    if (options->first_bytes == 0 || options->first_bytes > options->child_bytes_max ||
        options->child_bytes_max > UINT64_C(1) << 40)
        return sw_fail(SW_INVALID, op,
                       "children of %" PRIu64 " to %" PRIu64 " bytes: use 1 to 2^40, ascending",
                       options->first_bytes, options->child_bytes_max);
    return SW_OK;
}

sw_status sw_scalable_create(const sw_scalable_options *options, sw_scalable **out) {
    if (out == NULL) return sw_fail_null("scalable_create", "out");
    sw_scalable_options usual;
    sw_scalable_options_init(&usual);
    if (options == NULL) options = &usual;
    sw_status status = check_options(options);
    if (status != SW_OK) return status;
    sw_scalable *scalable = sw_os_map(sizeof *scalable);
    if (scalable == NULL) return sw_fail(SW_NOMEM, "scalable_create", "no memory for its record");
    scalable->options = *options;
    scalable->owner = options->locked ? 0 : sw_range_this_thread();
    scalable->next_bytes = options->first_bytes;
    scalable->memory = options->memory != NULL ? *options->memory : *sw_allocator_system();
    if (scalable->owner == 0) sw_os_lock_ask_barrier();
    if (scalable->owner == 0) sw_fork_lock_add(&scalable->fork, &scalable->lock, SW_FORK_SCALABLE);
    sw_handle_begin(&scalable->mark, SW_HANDLE_SCALABLE);
    *out = scalable;
    return SW_OK;
}

sw_status sw_scalable_adopt(sw_scalable *scalable) {
    sw_status status = sw_handle_status(scalable, MARK, SW_HANDLE_SCALABLE, "scalable_adopt");
    if (status == SW_OK && scalable->owner != 0) scalable->owner = sw_range_this_thread();
    return status;
}

static void drop_all(sw_scalable *scalable) {
    while (scalable->count != 0) sw_children_remove(scalable, &scalable->list[scalable->count - 1]);
    scalable->freed_bytes = scalable->allocated_bytes;
}

void sw_scalable_destroy(sw_scalable *scalable) {
    static const char op[] = "scalable_destroy";
    if (scalable == NULL || !sw_handle_check(scalable, MARK, SW_HANDLE_SCALABLE, op)) return;
    if (scalable->owner != 0 && scalable->owner != sw_range_this_thread()) {
        (void)refuse_thread(scalable, op);
        return;
    }
    if (!sw_handle_try_end(&scalable->mark, SW_HANDLE_SCALABLE)) return;
    sw_fork_lock_remove(&scalable->fork);
    drop_all(scalable);
    free(scalable->list);
    sw_handle_retire(scalable, sizeof *scalable, sizeof scalable->mark, SW_HANDLE_SCALABLE);
}

/* --- taking and giving ------------------------------------------------------------------------ */

static bool fits(const sw_child *child, size_t size) {
    return !child->is_own && sw_range_largest_in(child->range) >= size;
}

/* Returns the first child by address in which the bytes fit, else a new one. NULL: that failed, and
 * the last error is set. */
static sw_noinline sw_child *search_child(sw_scalable *scalable, size_t size, const char *op) {
    for (size_t i = 0; i < scalable->count; i++) {
        if (!fits(&scalable->list[i], size)) continue;
        scalable->recent = i;
        return &scalable->list[i];
    }
    if (sw_children_add(scalable, size, op) != SW_OK) return NULL;
    return &scalable->list[scalable->recent];
}

/* As search_child, but first tries the child that served the last request. */
static sw_always_inline sw_child *child_for(sw_scalable *scalable, size_t size, const char *op) {
    if (sw_likely(scalable->count != 0)) {
        sw_child *recent = &scalable->list[scalable->recent];
        if (sw_likely(fits(recent, size))) return recent;
    }
    return search_child(scalable, size, op);
}

/* Returns the child that contains the bytes, or NULL. First tries the most recent child. */
static sw_always_inline sw_child *child_of(sw_scalable *scalable, const void *bytes, size_t size) {
    if (sw_likely(scalable->count != 0)) {
        sw_child *recent = &scalable->list[scalable->recent];
        uint64_t offset = (uintptr_t)bytes - (uintptr_t)recent->bytes;
        if (sw_likely(offset < recent->size && size <= recent->size - offset)) return recent;
    }
    return sw_children_find(scalable, bytes, size);
}

static sw_status check_size(size_t size, const char *op) {
    if (size == 0) return sw_fail(SW_INVALID, op, "a request of size 0: ask for 1 or more");
    if (size > SW_MEMORY_SIZE_MAX / 2) return sw_fail(SW_NOMEM, op, "a request of %zu bytes", size);
    return SW_OK;
}

/* Allocates; the allocator was entered. */
static sw_always_inline void *take(sw_scalable *scalable, size_t size, const char *op) {
    if (sw_unlikely(check_size(size, op) != SW_OK)) return NULL;
    sw_child *child = child_for(scalable, size, op);
    if (sw_unlikely(child == NULL)) return NULL;
    uint64_t offset;
    if (!sw_range_alloc_only(child->range, size, &offset)) {
        offset = sw_range_alloc(range_of(child), size);
        if (sw_unlikely(offset == SW_RANGE_NONE)) return NULL;
    }
    scalable->allocated_bytes += size;
    return child->bytes + offset;
}

void *sw_scalable_alloc(sw_scalable *scalable, size_t size) {
    if (!has_entered(scalable, "scalable_alloc")) return NULL;
    void *bytes = take(scalable, size, "scalable_alloc");
    leave(scalable);
    return bytes;
}

void *sw_scalable_borrow(sw_scalable *scalable, size_t size) {
    static const char op[] = "scalable_borrow";
    if (!has_entered(scalable, op)) return NULL;
    sw_child *child = check_size(size, op) == SW_OK ? child_for(scalable, size, op) : NULL;
    void *bytes = NULL;
    if (child != NULL) {
        const sw_range_hole *only = &child->range->front.only; /* size 0: no hole, or several */
        uint64_t offset = size <= only->size ? only->start : sw_range_find(range_of(child), size);
        bytes = child->bytes + offset;
    }
    leave(scalable);
    return bytes;
}

/* Frees; the allocator was entered. */
static sw_always_inline sw_status give(sw_scalable *scalable, void *bytes, size_t size,
                                       const char *op) {
    sw_child *child = child_of(scalable, bytes, size);
    if (sw_unlikely(child == NULL))
        return sw_fail(SW_INVALID, op, "%zu bytes at %p: they are in no child of this allocator",
                       size, bytes);
    uint64_t offset = (uint64_t)((uint8_t *)bytes - child->bytes);
    if (size == 0 || !sw_range_free_beside(child->range, offset, size)) {
        sw_status status = sw_range_free(range_of(child), offset, size);
        if (sw_unlikely(status != SW_OK)) return status;
    }
    scalable->freed_bytes += size;
    if (sw_unlikely(child->is_own || scalable->count > 1) && sw_child_is_idle(child)) {
        if (child->is_own) {
            sw_children_remove(scalable, child);
        } else {
            sw_children_trim(scalable, scalable->options.idle_max);
        }
    }
    return SW_OK;
}

sw_status sw_scalable_free(sw_scalable *scalable, void *bytes, size_t size) {
    sw_status status = enter(scalable, "scalable_free");
    if (status != SW_OK) return status;
    status = give(scalable, bytes, size, "scalable_free");
    leave(scalable);
    return status;
}

sw_status sw_scalable_shrink(sw_scalable *scalable, void *bytes, size_t size, size_t keep) {
    sw_status status = enter(scalable, "scalable_shrink");
    if (status != SW_OK) return status;
    if (keep < size)
        status = give(scalable, (uint8_t *)bytes + keep, size - keep, "scalable_shrink");
    leave(scalable);
    return status;
}

sw_status sw_scalable_read(sw_scalable *scalable, int descriptor, size_t size, sw_buffer *out) {
    static const char op[] = "scalable_read";
    sw_status status = enter(scalable, op);
    if (status != SW_OK) return status;
    sw_buffer space = {take(scalable, size, op), size};
    leave(scalable);
    if (space.bytes == NULL) return sw_last_error()->status;
    int64_t done = sw_os_read_buffers(descriptor, &space, 1);
    if (done < 0) status = sw_memory_refuse_descriptor(op, descriptor, done);
    size_t keep = done < 0 ? 0 : (size_t)done;
    (void)sw_scalable_shrink(scalable, space.bytes, size, keep);
    if (status != SW_OK) return status;
    *out = (sw_buffer){keep != 0 ? space.bytes : NULL, keep};
    return SW_OK;
}

sw_status sw_scalable_trim(sw_scalable *scalable) {
    sw_status status = enter(scalable, "scalable_trim");
    if (status != SW_OK) return status;
    sw_children_trim(scalable, 0);
    leave(scalable);
    return SW_OK;
}

sw_status sw_scalable_reset(sw_scalable *scalable) {
    sw_status status = enter(scalable, "scalable_reset");
    if (status != SW_OK) return status;
    drop_all(scalable);
    leave(scalable);
    return SW_OK;
}

/* --- figures ---------------------------------------------------------------------------------- */

sw_status sw_scalable_get_stats(sw_scalable *scalable, sw_scalable_stats *out) {
    if (out == NULL) return sw_fail_null("scalable_get_stats", "out");
    sw_status status = enter(scalable, "scalable_get_stats");
    if (status != SW_OK) return status;
    *out = (sw_scalable_stats){.children = scalable->count,
                               .held_bytes = scalable->held_bytes,
                               .taken_bytes = scalable->allocated_bytes - scalable->freed_bytes,
                               .allocated_bytes = scalable->allocated_bytes,
                               .freed_bytes = scalable->freed_bytes,
                               .child_allocs = scalable->child_allocs,
                               .child_frees = scalable->child_frees};
    for (size_t i = 0; i < scalable->count; i++)
        out->idle_children += sw_child_is_idle(&scalable->list[i]);
    leave(scalable);
    return SW_OK;
}

sw_status sw_scalable_get_children(sw_scalable *scalable, sw_scalable_child *out, size_t capacity,
                                   size_t *count) {
    static const char op[] = "scalable_get_children";
    if (count == NULL) return sw_fail_null(op, "count");
    if (out == NULL && capacity != 0) return sw_fail_null(op, "out");
    sw_status status = enter(scalable, op);
    if (status != SW_OK) return status;
    *count = scalable->count;
    for (size_t i = 0; i < scalable->count && i < capacity; i++) {
        sw_child *child = &scalable->list[i];
        sw_range *range = range_of(child);
        out[i] = (sw_scalable_child){.address = (uintptr_t)child->bytes,
                                     .size = child->size,
                                     .free_size = sw_range_free_size(range),
                                     .largest_hole = sw_range_largest_hole(range)};
    }
    leave(scalable);
    return SW_OK;
}

sw_status sw_scalable_verify(sw_scalable *scalable) {
    sw_status status = enter(scalable, "scalable_verify");
    if (status != SW_OK) return status;
    const char *broken = sw_scalable_record_check(scalable);
    if (broken != NULL) status = sw_fail(SW_FORMAT, "scalable_verify", "does not hold: %s", broken);
    for (size_t i = 0; status == SW_OK && i < scalable->count; i++)
        status = sw_range_verify(range_of(&scalable->list[i]));
    leave(scalable);
    return status;
}
