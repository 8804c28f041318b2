/* SPDX-License-Identifier: Apache-2.0 */
/* The moment at which the recorded malloc keeps the most memory that is not requested. Requested
 * bytes and the pages of live objects are counted while the recording is put in order, at moments
 * whose resident bytes are known:
 *
 *   - in the middle of 32 equal parts of the run, from the recorder's rss_series. Only the one with
 *     the second most waste counts, because such waste lasts for about a sixteenth of the run. One
 *     does not count if more than a 64th of the requested bytes is freed until the next one, because
 *     the program is then about to end, or uses the memory again soon.
 *   - in its longest pauses (rss_pauses)
 *   - at its end, unless it has freed nearly everything by then: a sixteenth of the most requested
 *     bytes is left, and half of those of the last part of the run
 *
 * Of those with at least nine tenths of the most waste, the one that lasts longest is written: a
 * process that waits for a processor looks as if it paused, even while it frees its objects.
 *
 * Calls may share a reading of the clock, so it is not known of the last calls before a pause and
 * the first ones after it on which side they are. The most requested bytes between them count.
 */
#ifndef SW_TRACE_RETAINED_H
#define SW_TRACE_RETAINED_H

#include "trace/file.h"
#include "trace/merge.h"
#include "trace/writer.h"

enum {
    SWT_RETAINED_POINTS = 32,
    SWT_RETAINED_PAUSES = 33, /* with the end */
    SWT_RETAINED_ALL = SWT_RETAINED_POINTS + SWT_RETAINED_PAUSES,
};

typedef enum swt_retained_kind {
    SWT_RETAINED_PART,
    SWT_RETAINED_PAUSE,
    SWT_RETAINED_LAST
} swt_retained_kind;

typedef struct swt_retained_point {
    swt_retained_kind kind;
    uint64_t ns, end_ns;                      /* operations in between may count; ns <= end_ns */
    uint64_t malloc_bytes;                    /* resident */
    uint64_t requested_bytes, page_bytes, op; /* op: operations until then */
} swt_retained_point;

/* Used by one thread at a time.
 *   next <= count <= SWT_RETAINED_ALL;  times of points rise */
typedef struct swt_retained {
    swt_retained_point points[SWT_RETAINED_ALL];
    uint32_t count, next;                     /* points before `next` are counted */
    uint64_t op, requested_bytes, most_bytes; /* most_bytes: the most requested bytes */
    uint64_t part_ns;                         /* a 32nd of the run */
    uint64_t open_ns;                         /* the latest end_ns of the points before `next` */
    uint64_t *sizes;                          /* of live objects, by id */
    size_t capacity;
} swt_retained;

/* Sets the points. Without a series there are none. */
void swt_retained_init(swt_retained *retained, const swt_notes *notes);
void swt_retained_free(swt_retained *retained);
/* The time of the next point; UINT64_MAX: there is none, and nothing needs to be added. */
static inline uint64_t swt_retained_next_ns(const swt_retained *retained) {
    return retained->next < retained->count ? retained->points[retained->next].ns : UINT64_MAX;
}
/* Adds operations; only the last may come after the next point. `addresses` has the objects that
 * are live after them. False: no memory. */
bool swt_retained_add(swt_retained *retained, const sw_op *ops, size_t count,
                      const swt_addresses *addresses);
/* Counts the points after the last operation. False: no memory. */
bool swt_retained_end(swt_retained *retained, const swt_addresses *addresses);
/* The point to be written, once all operations were added. Waste is malloc_bytes - requested_bytes.
 * NULL: there is none. */
const swt_retained_point *swt_retained_best(const swt_retained *retained);

#endif
