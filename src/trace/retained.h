/* SPDX-License-Identifier: Apache-2.0 */
/* The moment at which the recorded malloc keeps the most memory that is not requested. The
 * recorder's rss_series has the resident bytes over time. In the middle of 32 equal parts of the
 * run, requested bytes and the pages of live objects are counted while the recording is put in
 * order. The moment with the second most waste is written, because such waste lasts for about a
 * sixteenth of the run. A moment does not count if more than a 64th of the requested bytes is freed
 * until the next one, because the program is then about to end, or uses the memory again soon.
 */
#ifndef SW_TRACE_RETAINED_H
#define SW_TRACE_RETAINED_H

#include "trace/file.h"
#include "trace/merge.h"
#include "trace/writer.h"

enum { SWT_RETAINED_POINTS = 32 };

typedef struct swt_retained_point {
    uint64_t ns;
    uint64_t malloc_bytes;                    /* resident */
    uint64_t requested_bytes, page_bytes, op; /* op: operations until then */
} swt_retained_point;

/* Used by one thread at a time.
 *   next <= count <= SWT_RETAINED_POINTS;  times of points rise */
typedef struct swt_retained {
    swt_retained_point points[SWT_RETAINED_POINTS];
    uint32_t count, next; /* points before `next` are counted */
    uint64_t op, requested_bytes;
    uint64_t *sizes; /* of live objects, by id */
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
/* The point of the second most waste, which is malloc_bytes - requested_bytes, once all operations
 * were added. NULL: there is no waste. */
const swt_retained_point *swt_retained_best(const swt_retained *retained);

#endif
