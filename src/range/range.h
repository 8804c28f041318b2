/* SPDX-License-Identifier: Apache-2.0 */
/* A range allocator (spanwise/range.h): the data that all back ends share, and the interface of a
 * back end.
 *
 * range.c checks the handle, the thread and the arguments, updates the sums, and calls the back
 * end. A back end finds and changes holes: back_btree.c (on btree.h), treap.c (one tree or two),
 * buddy.c. If a back end returns an error, it has changed nothing. Design: docs/design/range.md.
 */
#ifndef SW_RANGE_RANGE_H
#define SW_RANGE_RANGE_H

#include <stdbool.h>

#include "base/base.h"
#include "ds/handle.h"
#include "os/os.h"
#include "range/btree.h"
#include "range/buddy.h"
#include "range/treap.h"
#include "spanwise/range.h"

/* In a range of several holes, the hole that the last free created or extended. A free of a part
 * that touches only this hole changes only fields here, and not the back end's record of it.
 *   hole.size == 0 and all fields are 0, or recorded <= hole.size, and the back end has it with
 *   size `recorded`
 *   nothing is free in [lowest - 1, hole.start) and in [hole.end, highest + 1), inside the range */
typedef struct sw_range_grown {
    sw_range_hole hole;
    uint64_t recorded;
    uint64_t lowest;  /* a part that ends at hole.start joins no other if it starts here or later */
    uint64_t highest; /* a part from the hole's end joins no other if it ends here or earlier */
} sw_range_grown;

#define SW_RANGE_NOT_GROWN ((sw_range_grown){{0, 0}, 0, 0, 0})

/* A back end is called only with sizes and offsets inside the range, and with no size of 0. If it
 * has set_grown, its free sets *grown to the hole that contains the freed part (sw_range_join),
 * which is used if the free succeeds. */
typedef struct sw_range_ops {
    const char *name;
    uint32_t placements; /* bit p: it supports the sw_range_placement p */
    sw_range_placement usual;
    sw_status (*open)(sw_range *range, const sw_range_options *options); /* or NOMEM, INVALID */
    void (*close)(sw_range *range);
    sw_status (*reset)(sw_range *range); /* one hole, or as few as possible; or NOMEM */
    uint64_t (*alloc)(sw_range *range, uint64_t size);
    uint64_t (*find)(sw_range *range, uint64_t size);
    sw_status (*free)(sw_range *range, uint64_t offset, uint64_t size,
                      sw_range_grown *grown); /* may return OVERLAP, INVALID or NOMEM */
    uint64_t (*largest)(sw_range *range);
    bool (*hole)(sw_range *range, uint64_t from,
                 sw_range_hole *out);                    /* the first that ends after `from` */
    void (*stats)(sw_range *range, sw_range_stats *out); /* sets holes, waste, tail, held_bytes */
    const char *(*verify)(const sw_range *range);
    /* These may be NULL; then every call goes to the back end (see below). */
    bool (*only)(const sw_range *range, sw_range_hole *out); /* true: there is one hole, *out */
    void (*set_only)(sw_range *range, sw_range_hole hole);   /* sets the only hole to this one */
    void (*set_grown)(sw_range *range,
                      sw_range_hole hole); /* sets the hole inside this one to it */
} sw_range_ops;

/* While a range has one hole, as a fresh one does, that hole is `front.only`, and the back end's
 * record of it may be out of date. Then a request takes the front of the hole, and a free of a part
 * that touches it extends it; both change only two words here. When all of it is taken, the range
 * is drained: the back end keeps its record for the next hole, the part that is freed next. While a
 * range has several holes, the one that grew last is `grown`. Before any other call of the back
 * end, sw_range_settle updates its record.
 *
 * Only the owner, or the thread that holds the lock, uses it.
 *   front.only.size == 0, or it is the one hole and front.only.size == free_size
 *   front.only.size == 0 or grown.hole.size == 0
 *   is_drained: free_size == 0 and grown.hole.size == 0; the back end's one hole is not free
 *   (front.owner == 0) == locked;  1 <= size <= SW_RANGE_SIZE_MAX;  free_size <= size
 *   rover <= size;  the back end has the placement */
struct sw_range {
    sw_range_front front; /* mark: ds/handle.h */
    const sw_range_ops *ops;
    uint64_t size;
    uint64_t free_size;
    sw_range_grown grown;
    uint64_t allocs;
    uint64_t frees;
    uint64_t refused;
    uint64_t rover; /* end of the last request's part, where next fit continues */
    sw_range_placement placement;
    bool is_drained;
    sw_allocator memory;
    sw_os_lock lock;
    sw_fork_lock fork; /* used by a locked range */
    union {
        sw_btree btree;
        sw_treap treap;
        sw_buddy buddy;
    } as;
};

static inline uint64_t sw_range_end(sw_range_hole hole) { return hole.start + hole.size; }

/* Returns the hole of a freed part after joining it with the holes before and after it, if they
 * touch. A hole of size 0 means none; neither overlaps the part. Beyond a joined neighbour nothing
 * is known, so `lowest` or `highest` allows no growth on that side. */
static inline sw_range_grown sw_range_join(const sw_range *range, sw_range_hole part,
                                           sw_range_hole before, sw_range_hole after) {
    uint64_t end = sw_range_end(part);
    sw_range_hole hole = part;
    uint64_t lowest = before.size != 0 ? sw_range_end(before) + 1 : 0;
    uint64_t highest = after.size != 0 ? after.start - 1 : range->size;
    if (before.size != 0 && sw_range_end(before) == part.start) {
        lowest = hole.start = before.start;
        hole.size += before.size;
    }
    if (after.size != 0 && after.start == end) {
        hole.size += after.size;
        highest = sw_range_end(hole);
    }
    return (sw_range_grown){hole, hole.size, lowest, highest};
}

/* Takes the front of the one hole if it is long enough. The size must not be 0. Callers: range.c,
 * and buffer/, whose ranges have no other users. */
static inline bool sw_range_alloc_only(sw_range *range, uint64_t size, uint64_t *offset) {
    if (size > range->front.only.size) return false;
    *offset = range->front.only.start;
    range->front.only.start += size;
    range->front.only.size -= size;
    range->is_drained = range->front.only.size == 0;
    range->free_size -= size;
    range->allocs++;
    range->rover = range->front.only.start;
    return true;
}
/* A freed part becomes the one hole of a drained range. False: the range is not drained. */
static inline bool sw_range_refill(sw_range *range, uint64_t offset, uint64_t size) {
    if (!range->is_drained) return false;
    range->is_drained = false;
    range->front.only = (sw_range_hole){offset, size};
    range->free_size = size;
    range->frees++;
    return true;
}
/* Extends the one hole, or the hole that grew last, by a part that touches it and no other hole.
 * False: the part does not touch it, or touches another. The part must be in the range, and its
 * size must not be 0. Callers: those of sw_range_alloc_only. */
static inline bool sw_range_free_beside(sw_range *range, uint64_t offset, uint64_t size) {
    bool is_only = range->front.only.size != 0;
    sw_range_hole *hole = is_only ? &range->front.only : &range->grown.hole;
    uint64_t lowest = is_only ? 0 : range->grown.lowest;
    uint64_t highest = is_only ? SW_RANGE_NONE : range->grown.highest;
    bool is_behind = offset == hole->start + hole->size && offset + size <= highest;
    bool is_before = offset + size == hole->start && offset >= lowest;
    if (is_before) hole->start = offset;
    if (!is_before && !is_behind) return sw_range_refill(range, offset, size);
    hole->size += size;
    range->free_size += size;
    range->frees++;
    return true;
}
/* Updates the back end's record of the one hole, or of the hole that grew last. */
static inline void sw_range_settle(sw_range *range) {
    if (range->front.only.size != 0) {
        range->ops->set_only(range, range->front.only);
    } else if (range->is_drained) {
        range->is_drained = false;
        range->free_size = range->size; /* the back end subtracts what it allocates */
        range->ops->set_only(range, (sw_range_hole){0, range->size});
        (void)range->ops->alloc(range, range->size);
    } else if (range->grown.recorded != range->grown.hole.size) {
        range->ops->set_grown(range, range->grown.hole);
        range->grown.recorded = range->grown.hole.size;
    }
}
static inline uint64_t sw_range_largest_in(sw_range *range) {
    if (range->front.only.size != 0 || range->is_drained) return range->front.only.size;
    return sw_max_u64(range->ops->largest(range), range->grown.hole.size);
}
/* Called after the back end has changed holes. If there is one hole, it becomes front.only;
 * otherwise `grown` is the hole that grew last. */
static inline void sw_range_renew(sw_range *range, sw_range_grown grown) {
    sw_range_hole *only = &range->front.only;
    bool is_alone = range->ops->only != NULL && range->ops->only(range, only);
    if (!is_alone) only->size = 0;
    range->grown = is_alone ? SW_RANGE_NOT_GROWN : grown;
}

extern const sw_range_ops sw_range_btree_ops;
extern const sw_range_ops sw_range_treap_ops;
extern const sw_range_ops sw_range_two_treaps_ops;
extern const sw_range_ops sw_range_buddy_ops;

const char *sw_range_record_check(const struct sw_range *range);
const char *sw_range_grown_check(const sw_range_grown *grown);

/* --- calls ------------------------------------------------------------------------------------ */

#define SW_RANGE_MARK offsetof(sw_range, front.mark)

/* Returns SW_OWNER, with the last error set; SW_OK if the range is a locked one. */
sw_cold sw_status sw_range_refuse_thread(const sw_range *range, const char *op);

/* For a live range. SW_OK: the range belongs to this thread, or is locked now. */
static sw_always_inline sw_status sw_range_enter_live(sw_range *range, const char *op) {
    if (sw_likely(range->front.owner == sw_range_this_thread())) return SW_OK;
    sw_status status = sw_range_refuse_thread(range, op);
    if (status == SW_OK) sw_os_lock_acquire(&range->lock);
    return status;
}

/* Returns whether the range is live and belongs to this thread. Then a call needs neither
 * sw_range_enter nor sw_range_leave. */
static sw_always_inline bool sw_range_is_own(const sw_range *range) {
    return sw_handle_lives(range, SW_RANGE_MARK, SW_HANDLE_RANGE) &&
           sw_likely(range->front.owner == sw_range_this_thread());
}

/* For functions that return a status. */
static sw_always_inline sw_status sw_range_enter(sw_range *range, const char *op) {
    sw_status status = sw_handle_status(range, SW_RANGE_MARK, SW_HANDLE_RANGE, op);
    return sw_likely(status == SW_OK) ? sw_range_enter_live(range, op) : status;
}

/* For functions without a status: NULL is misuse, too, and reported. */
static sw_always_inline bool sw_range_has_entered(sw_range *range, const char *op) {
    return sw_handle_check(range, SW_RANGE_MARK, SW_HANDLE_RANGE, op) &&
           sw_likely(sw_range_enter_live(range, op) == SW_OK);
}

static sw_always_inline void sw_range_leave(sw_range *range) {
    if (sw_unlikely(range->front.owner == 0)) sw_os_lock_release(&range->lock);
}

#endif
