/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions of range allocators. They check the caller and the arguments, and keep the
 * sums that all back ends share (range.h). */
#include "range/range.h"

#include <inttypes.h>

#include "base/base.h"
#include "ds/handle.h"
#include "os/os.h"

/* --- threads ---------------------------------------------------------------------------------- */

uint64_t sw_range_find_thread(void) { return (uint64_t)(uintptr_t)sw_os_here(); }

sw_status sw_range_refuse_thread(const sw_range *range, const char *op) {
    if (range->front.owner == 0) return SW_OK;
    return sw_fail(SW_OWNER, op,
                   "the range %p belongs to another thread: call it there, hand it over with "
                   "sw_range_adopt, or make it with the option locked",
                   (const void *)range);
}

/* --- the public functions --------------------------------------------------------------------- */

_Static_assert(offsetof(sw_range, front) == 0, "inline code finds the front at the handle");

/* --- life ------------------------------------------------------------------------------------- */

sw_status sw_range_adopt(sw_range *range) {
    sw_status status = sw_handle_status(range, SW_RANGE_MARK, SW_HANDLE_RANGE, "range_adopt");
    if (status == SW_OK && range->front.owner != 0) range->front.owner = sw_range_this_thread();
    return status;
}

static const sw_range_ops *const backends[SW_RANGE_BACKEND_COUNT] = {
    [SW_RANGE_BTREE] = &sw_range_btree_ops,
    [SW_RANGE_TREAP] = &sw_range_treap_ops,
    [SW_RANGE_TWO_TREAPS] = &sw_range_two_treaps_ops,
    [SW_RANGE_BUDDY] = &sw_range_buddy_ops,
};

const char *sw_range_backend_name(sw_range_backend backend) {
    return (uint32_t)backend < SW_RANGE_BACKEND_COUNT ? backends[backend]->name : NULL;
}

void sw_range_options_init(sw_range_options *options) {
    if (options == NULL) return;
    *options = (sw_range_options){.struct_bytes = sizeof *options, .unit = 1024};
}

static sw_status check_options(uint64_t size, const sw_range_options *options,
                               const sw_range_ops *ops) {
    static const char *const names[SW_RANGE_FIT_COUNT] = {"default", "first", "best", "next",
                                                          "worst"};
    if (size == 0 || size > SW_RANGE_SIZE_MAX)
        return sw_fail(SW_INVALID, "range_create", "a range of size %" PRIu64 ": use 1 to 2^62",
                       size);
    if (options->struct_bytes != sizeof *options)
        return sw_fail(SW_INVALID, "range_create",
                       "options of %u bytes: fill them with sw_range_options_init first",
                       options->struct_bytes);
    if (options->placement >= SW_RANGE_FIT_COUNT)
        return sw_fail(SW_INVALID, "range_create", "placement %u: use one of sw_range_placement",
                       options->placement);
    if (options->placement != 0 && (ops->placements >> options->placement & 1) == 0)
        return sw_fail(
            SW_UNSUPPORTED, "range_create",
            "the back end %s has no %s fit: use another placement, or the back end two-treaps",
            ops->name, names[options->placement]);
    return SW_OK;
}

sw_status sw_range_create(uint64_t size, const sw_range_options *options, sw_range **out) {
    if (out == NULL) return sw_fail_null("range_create", "out");
    sw_range_options usual;
    sw_range_options_init(&usual);
    if (options == NULL) options = &usual;
    if (options->backend >= SW_RANGE_BACKEND_COUNT)
        return sw_fail(SW_INVALID, "range_create", "back end %u: use one of sw_range_backend",
                       options->backend);
    const sw_range_ops *ops = backends[options->backend];
    sw_status status = check_options(size, options, ops);
    if (status != SW_OK) return status;
    sw_range *range = sw_os_map(sizeof *range);
    if (range == NULL) return sw_fail(SW_NOMEM, "range_create", "no memory for a range");
    range->ops = ops;
    range->front.owner = options->locked ? 0 : sw_range_this_thread();
    range->size = range->free_size = size;
    range->memory = options->memory != NULL ? *options->memory : *sw_allocator_system();
    range->placement = options->placement != 0 ? options->placement : ops->usual;
    status = ops->open(range, options);
    if (status != SW_OK) {
        (void)sw_os_release(range, sizeof *range);
        return status;
    }
    sw_range_renew(range, SW_RANGE_NOT_GROWN);
    if (range->front.owner == 0) sw_fork_lock_add(&range->fork, &range->lock, SW_FORK_RANGE);
    sw_handle_begin(&range->front.mark, SW_HANDLE_RANGE);
    *out = range;
    return SW_OK;
}

void sw_range_destroy(sw_range *range) {
    if (range == NULL || !sw_handle_check(range, SW_RANGE_MARK, SW_HANDLE_RANGE, "range_destroy"))
        return;
    if (range->front.owner != 0 && range->front.owner != sw_range_this_thread()) {
        (void)sw_range_refuse_thread(range, "range_destroy");
        return;
    }
    if (!sw_handle_try_end(&range->front.mark, SW_HANDLE_RANGE)) return;
    sw_fork_lock_remove(&range->fork);
    range->ops->close(range);
    range->front.only.size = 0; /* inline code then calls the library, which reports the misuse */
    sw_handle_retire(range, sizeof *range, sizeof range->front, SW_HANDLE_RANGE);
}

/* --- taking and giving ------------------------------------------------------------------------ */

static sw_cold uint64_t refuse_size(sw_range *range, uint64_t size, const char *op) {
    if (size == 0) {
        (void)sw_fail(SW_INVALID, op, "a request of size 0: ask for 1 or more");
    } else if (size > range->size) {
        (void)sw_fail(SW_NOMEM, op,
                      "a request of size %" PRIu64 " is larger than the range of %" PRIu64, size,
                      range->size);
        range->refused++;
    } else {
        (void)sw_fail(SW_NOMEM, op,
                      "no hole for a request of size %" PRIu64 ": free are %" PRIu64
                      ", the largest hole has %" PRIu64,
                      size, range->free_size, sw_range_largest_in(range));
        range->refused++;
    }
    sw_range_leave(range);
    return SW_RANGE_NONE;
}

/* Allocates with the back end; the range was entered. */
static sw_noinline uint64_t alloc_by_ops(sw_range *range, uint64_t size) {
    if (sw_unlikely(size - 1 >= range->size)) return refuse_size(range, size, "range_alloc");
    sw_check2(sw_range_record_check(range));
    sw_range_settle(range);
    uint64_t offset = range->ops->alloc(range, size);
    if (sw_unlikely(offset == SW_RANGE_NONE)) return refuse_size(range, size, "range_alloc");
    sw_range_renew(range, SW_RANGE_NOT_GROWN);
    range->allocs++;
    range->rover = offset + size;
    sw_range_leave(range);
    return offset;
}

/* Allocates from a range that is locked, or reports that this thread must not use it. */
static sw_noinline uint64_t alloc_shared(sw_range *range, uint64_t size) {
    if (!sw_range_has_entered(range, "range_alloc")) return SW_RANGE_NONE;
    uint64_t offset;
    if (size == 0 || !sw_range_alloc_only(range, size, &offset)) return alloc_by_ops(range, size);
    sw_range_leave(range);
    return offset;
}

/* If the caller's own range has one hole, the request is served without another call, so no
 * registers are saved for one. */
uint64_t sw_range_alloc(sw_range *range, uint64_t size) {
    uint64_t offset;
    if (sw_unlikely(!sw_range_is_own(range))) return alloc_shared(range, size);
    if (sw_likely(size != 0) && sw_range_alloc_only(range, size, &offset)) return offset;
    return alloc_by_ops(range, size);
}

uint64_t sw_range_find(sw_range *range, uint64_t size) {
    if (sw_unlikely(!sw_range_has_entered(range, "range_find"))) return SW_RANGE_NONE;
    uint64_t offset = SW_RANGE_NONE;
    if (sw_unlikely(size - 1 >= range->size)) {
        if (size == 0)
            (void)sw_fail(SW_INVALID, "range_find", "a request of size 0: ask for 1 or more");
    } else if (range->front.only.size != 0) {
        if (size <= range->front.only.size) offset = range->front.only.start;
    } else {
        sw_range_settle(range);
        offset = range->ops->find(range, size);
    }
    sw_range_leave(range);
    return offset;
}

static sw_cold sw_status refuse_free(sw_range *range, sw_status status, uint64_t offset,
                                     uint64_t size) {
    const char *why = "no memory for the record of a hole; free something next to a hole instead";
    if (size == 0) {
        why = "size 0: free 1 or more";
    } else if (offset > range->size || size > range->size - offset) {
        why = "that is not inside the range";
    } else if (status == SW_OVERLAP) {
        why = "it is free already, wholly or in part";
    } else if (status == SW_INVALID) {
        why = "a buddy frees whole allocations: pass the offset and size of one";
    }
    (void)sw_fail(status, "range_free",
                  "free of %" PRIu64 " at %" PRIu64 " in a range of %" PRIu64 ": %s", size, offset,
                  range->size, why);
    sw_range_leave(range);
    return status;
}

static sw_always_inline bool is_inside(const sw_range *range, uint64_t offset, uint64_t size) {
    return sw_likely(size - 1 < range->size) && sw_likely(offset <= range->size - size);
}

/* Frees with the back end; the range was entered. */
static sw_noinline sw_status free_by_ops(sw_range *range, uint64_t offset, uint64_t size) {
    if (!is_inside(range, offset, size)) return refuse_free(range, SW_INVALID, offset, size);
    sw_range_grown grown = SW_RANGE_NOT_GROWN;
    sw_range_settle(range);
    sw_status status = range->ops->free(range, offset, size, &grown);
    if (sw_unlikely(status != SW_OK)) return refuse_free(range, status, offset, size);
    sw_range_renew(range, grown);
    sw_check2(sw_range_record_check(range));
    range->frees++;
    sw_range_leave(range);
    return SW_OK;
}

/* Frees in a range that is locked, or reports that this thread must not use it. */
static sw_noinline sw_status free_shared(sw_range *range, uint64_t offset, uint64_t size) {
    sw_status status = sw_range_enter(range, "range_free");
    if (status != SW_OK) return status;
    if (!is_inside(range, offset, size) || !sw_range_free_beside(range, offset, size))
        return free_by_ops(range, offset, size);
    sw_range_leave(range);
    return SW_OK;
}

/* If the freed part touches the hole whose borders are in the range, no other call is needed, as in
 * sw_range_alloc. */
sw_status sw_range_free(sw_range *range, uint64_t offset, uint64_t size) {
    if (sw_unlikely(!sw_range_is_own(range))) return free_shared(range, offset, size);
    if (is_inside(range, offset, size) && sw_range_free_beside(range, offset, size)) return SW_OK;
    return free_by_ops(range, offset, size);
}

sw_status sw_range_reset(sw_range *range) {
    sw_status status = sw_range_enter(range, "range_reset");
    if (status != SW_OK) return status;
    sw_range_settle(range);
    status = range->ops->reset(range);
    if (status == SW_OK) {
        range->rover = 0;
        sw_range_renew(range, SW_RANGE_NOT_GROWN);
    } else {
        (void)sw_fail(status, "range_reset", "no memory for the record of a hole");
    }
    sw_range_leave(range);
    return status;
}

/* --- queries ---------------------------------------------------------------------------------- */

uint64_t sw_range_free_size(sw_range *range) {
    if (!sw_range_has_entered(range, "range_free_size")) return 0;
    uint64_t size = range->free_size;
    sw_range_leave(range);
    return size;
}

uint64_t sw_range_largest_hole(sw_range *range) {
    if (!sw_range_has_entered(range, "range_largest_hole")) return 0;
    uint64_t size = sw_range_largest_in(range);
    sw_range_leave(range);
    return size;
}

size_t sw_range_holes(sw_range *range, uint64_t from, sw_range_hole *out, size_t capacity) {
    if (!sw_range_has_entered(range, "range_holes")) return 0;
    size_t count = 0;
    if (out == NULL) capacity = 0;
    sw_range_settle(range);
    while (count < capacity && range->ops->hole(range, from, &out[count])) {
        from = out[count].start + out[count].size;
        count++;
    }
    sw_range_leave(range);
    return count;
}

sw_status sw_range_get_stats(sw_range *range, sw_range_stats *out) {
    if (out == NULL) return sw_fail_null("range_get_stats", "out");
    sw_status status = sw_range_enter(range, "range_get_stats");
    if (status != SW_OK) return status;
    *out = (sw_range_stats){.size = range->size,
                            .free_size = range->free_size,
                            .allocs = range->allocs,
                            .frees = range->frees,
                            .refused = range->refused};
    if (range->is_drained) sw_range_settle(range);
    range->ops->stats(range, out);
    sw_range_leave(range);
    return SW_OK;
}

const char *sw_range_record_check(const struct sw_range *range) {
    return SW_RULE(range->size >= 1)
               ?: SW_RULE(range->size <= SW_RANGE_SIZE_MAX)
               ?: SW_RULE(range->free_size <= range->size)
               ?: SW_RULE(range->front.only.size == 0 || range->front.only.size == range->free_size)
               ?: SW_RULE(range->front.only.size == 0 || range->grown.hole.size == 0)
               ?: SW_RULE(!range->is_drained || range->free_size == 0)
               ?: SW_RULE(!range->is_drained || range->grown.hole.size == 0)
               ?: sw_range_grown_check(&range->grown)
               ?: SW_RULE(range->rover <= range->size)
               ?: SW_RULE(range->ops->placements >> range->placement & 1);
}

const char *sw_range_grown_check(const sw_range_grown *grown) {
    return SW_RULE(grown->recorded <= grown->hole.size)
               ?: SW_RULE(grown->lowest <= grown->hole.start)
               ?: SW_RULE(grown->highest >= grown->hole.start + grown->hole.size);
}

/* Checks the list of holes: they are in order, do not touch, and their sum is free_size. */
static const char *verify_holes(sw_range *range) {
    const char *broken = NULL;
    uint64_t sum = 0, end = 0, largest = 0;
    bool is_buddy = range->ops == &sw_range_buddy_ops;
    sw_range_hole hole;
    while (broken == NULL && range->ops->hole(range, end, &hole)) {
        broken = SW_RULE(hole.size >= 1) ?: SW_RULE(hole.size <= range->size)
                     ?: SW_RULE(hole.start <= range->size - hole.size)
                     ?: SW_RULE(sum == 0 || hole.start > end || (is_buddy && hole.start == end));
        end = hole.start + hole.size;
        sum += hole.size;
        if (hole.size > largest) largest = hole.size;
    }
    return broken ?: SW_RULE(sum == range->free_size)
                     ?: SW_RULE(largest == range->ops->largest(range));
}

sw_status sw_range_verify(sw_range *range) {
    sw_status status = sw_range_enter(range, "range_verify");
    if (status != SW_OK) return status;
    sw_range_settle(range);
    const char *broken =
        sw_range_record_check(range) ?: range->ops->verify(range) ?: verify_holes(range);
    if (broken != NULL)
        status = sw_fail(SW_FORMAT, "range_verify", "in a range of back end %s does not hold: %s",
                         range->ops->name, broken);
    sw_range_leave(range);
    return status;
}
