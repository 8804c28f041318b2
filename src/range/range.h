/* SPDX-License-Identifier: Apache-2.0 */
/* A range allocator (spanwise/range.h): what all back ends share, and what one has to provide.
 *
 * range.c looks at the handle, the thread and the arguments, keeps the sums, and calls the back end.
 * A back end finds and changes holes: back_wide.c (on wide.h), back_tree.c (on tree.h; one tree and two),
 * back_buddy.c (on buddy.h). A back end changes nothing when it returns an error.
 * Design: docs/design/range.md.
 */
#ifndef SW_RANGE_RANGE_H
#define SW_RANGE_RANGE_H

#include <stdbool.h>

#include "os/os.h"
#include "range/buddy.h"
#include "range/tree.h"
#include "range/wide.h"
#include "spanwise/range.h"

/* Sizes and offsets that a back end gets are inside the range, and sizes are not 0. */
typedef struct sw_range_ops {
    const char *name;
    uint32_t placements; /* bit p: it has sw_range_placement p */
    sw_range_placement usual;
    sw_status (*open)(sw_range *range, const sw_range_options *options); /* NOMEM, INVALID */
    void (*close)(sw_range *range);
    sw_status (*reset)(sw_range *range); /* one hole, or as few as there can be; NOMEM */
    uint64_t (*alloc)(sw_range *range, uint64_t size);
    uint64_t (*find)(sw_range *range, uint64_t size);
    sw_status (*free)(sw_range *range, uint64_t offset,
                      uint64_t size); /* OVERLAP, INVALID, NOMEM */
    uint64_t (*largest)(sw_range *range);
    bool (*hole)(sw_range *range, uint64_t from,
                 sw_range_hole *out);                    /* the first that ends behind */
    void (*stats)(sw_range *range, sw_range_stats *out); /* adds holes, waste, tail, held_bytes */
    const char *(*verify)(const sw_range *range);
    /* A back end without these two is never alone (see below). */
    bool (*only)(const sw_range *range,
                 sw_range_hole *out);                      /* whether there is one hole: that one */
    void (*set_only)(sw_range *range, sw_range_hole hole); /* gives the one hole other borders */
} sw_range_ops;

/* While a range has one hole, as a fresh one does, that hole is `only`, and the back end's record of it
 * may be out of date: taking its front, and giving back what touches it, change two words here.
 * sw_range_settle tells the back end before it is asked for something else.
 *
 * The owner, or whoever holds the lock, has it.
 *   only.size == 0, or only is the one hole and only.size == free_size
 *   (owner == 0) == locked;  1 <= size <= SW_RANGE_SIZE_MAX;  free_size <= size;  rover <= size
 *   the back end has the placement */
struct sw_range {
    uint64_t mark; /* ds/handle.h */
    const sw_range_ops *ops;
    uint64_t owner; /* number of the thread that may call; 0: each may, under the lock */
    uint64_t size;
    uint64_t free_size;
    sw_range_hole only; /* size 0: there are several holes, none, or the back end does not say */
    uint64_t allocs;
    uint64_t frees;
    uint64_t refused;
    uint64_t rover; /* where the last request ended */
    sw_range_placement placement;
    sw_allocator memory;
    sw_os_lock lock;
    union {
        sw_wide wide;
        sw_tree tree;
        sw_buddy buddy;
        void *foreign; /* of a back end that is not part of the library */
    } as;
};

/* Takes the front of the one hole, if it is longer than that. The size is not 0. Callers: range.c, and
 * buffer/, whose ranges nobody else calls. */
static inline bool sw_range_alloc_only(sw_range *range, uint64_t size, uint64_t *offset) {
    if (size >= range->only.size) return false;
    *offset = range->only.start;
    range->only.start += size;
    range->only.size -= size;
    range->free_size -= size;
    range->allocs++;
    range->rover = range->only.start;
    return true;
}
/* What touches the one hole becomes a part of it. False: it does not touch it, or there are others. The part
 * lies in the range, and its size is not 0. */
static inline bool sw_range_free_only(sw_range *range, uint64_t offset, uint64_t size) {
    if (range->only.size == 0) return false;
    if (offset + size == range->only.start) {
        range->only.start = offset;
    } else if (offset != range->only.start + range->only.size) {
        return false;
    }
    range->only.size += size;
    range->free_size += size;
    range->frees++;
    return true;
}
/* Tells the back end of the one hole. */
static inline void sw_range_settle(sw_range *range) {
    if (range->only.size != 0) range->ops->set_only(range, range->only);
}
/* The largest hole. */
static inline uint64_t sw_range_largest_in(sw_range *range) {
    return range->only.size != 0 ? range->only.size : range->ops->largest(range);
}
/* After the back end has changed something: takes the one hole over if there is one. */
static inline void sw_range_renew_only(sw_range *range) {
    range->only.size = 0;
    if (range->ops->only == NULL || range->ops->only(range, &range->only)) return;
    range->only.size = 0;
}

extern const sw_range_ops sw_range_wide_ops;
extern const sw_range_ops sw_range_single_ops;
extern const sw_range_ops sw_range_two_ops;
extern const sw_range_ops sw_range_buddy_ops;

/* As sw_range_create with a back end that the caller brings: options->backend is ignored. */
sw_status sw_range_create_of(uint64_t size, const sw_range_options *options,
                             const sw_range_ops *ops, sw_range **out);

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_range_record_check(const struct sw_range *range);

#endif
