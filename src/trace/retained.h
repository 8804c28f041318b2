/* SPDX-License-Identifier: Apache-2.0 */
/* The moment at which the recorded malloc keeps the most memory that is not requested. Requested
 * bytes and the pages of live objects are counted while the recording is put in order, at moments
 * whose resident bytes are known:
 *
 *   - in the middle of 32 equal parts of the run, from the recorder's rss_series. Only the one with
 *     the second most waste counts, because such waste lasts for about a sixteenth of the run. One
 *     does not count if more than a 64th of the requested bytes is freed until the next one, because
 *     the program is then about to end, or uses the memory again soon.
 *   - in its longest pauses (rss_pauses). One that lasts neither a second nor a sixteenth of the run
 *     does not count if more than an eighth of the requested bytes is freed until the middle of the
 *     next part: the program then works without calling malloc, and is about to free them.
 *
 * Of those with at least nine tenths of the most waste, the one that lasts longest is written: a
 * process whose threads wait for a processor may look as if it paused, even while it frees its
 * objects.
 *
 * Calls may share a reading of the clock, so it is not known of the last calls before a pause and
 * the first ones after it on which side they are. The most requested bytes between them count.
 *
 * Requested bytes are also counted while the RSS is at its peak.
 */
#ifndef SW_TRACE_RETAINED_H
#define SW_TRACE_RETAINED_H

#include "trace/file.h"
#include "trace/merge.h"
#include "trace/writer.h"

enum {
    SWT_RETAINED_POINTS = 32,
    SWT_RETAINED_PAUSES = 33, /* with that before the end */
    SWT_RETAINED_ALL = SWT_RETAINED_POINTS + SWT_RETAINED_PAUSES,
    SWT_RETAINED_SERIES = 512,
    SWT_RETAINED_LONG = 16,            /* a pause is long if it lasts such a part of the run, */
    SWT_RETAINED_LONG_NS = 1000000000, /* or so many nanoseconds */
};

typedef enum swt_retained_kind { SWT_RETAINED_PART, SWT_RETAINED_PAUSE } swt_retained_kind;

typedef struct swt_retained_point {
    swt_retained_kind kind;
    uint64_t ns, end_ns;                      /* operations in between may count; ns <= end_ns */
    uint64_t malloc_bytes;                    /* resident */
    uint64_t requested_bytes, page_bytes, op; /* op: operations until then */
    uint64_t least_bytes;                     /* the least requested from ns to end_ns */
} swt_retained_point;

/* The most requested bytes while the RSS is within 1 % of its peak: until each point of the series
 * that is, from the point before it on.
 *   next <= count <= SWT_RETAINED_SERIES */
typedef struct swt_retained_rss {
    uint64_t ns, bytes;
} swt_retained_rss;

typedef struct swt_retained_peak {
    swt_retained_rss series[SWT_RETAINED_SERIES];
    uint32_t count, next;         /* points before `next` are before the last operation */
    uint64_t near_bytes;          /* 99 % of the peak */
    uint64_t requested_bytes, op; /* op: operations until then */
} swt_retained_peak;

/* Used by one thread at a time.
 *   next <= count <= SWT_RETAINED_ALL;  times of points rise */
typedef struct swt_retained {
    swt_retained_point points[SWT_RETAINED_ALL];
    uint32_t count, next;                     /* points before `next` are counted */
    uint64_t op, requested_bytes, most_bytes; /* most_bytes: the most requested bytes */
    uint64_t duration_ns;                     /* of the run; 0: without a series */
    swt_retained_peak peak;
    uint64_t open_ns; /* the latest end_ns of the points before `next` */
    uint64_t *sizes;  /* of live objects, by id */
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
/* From when until when about as much was wasted as at `best`: at least three quarters of that in all
 * points between. The last point lasts until the end. */
void swt_retained_span(const swt_retained *retained, const swt_retained_point *best,
                       uint64_t *from_ns, uint64_t *until_ns);
/* Writes the results as META: rss_peak_op and _requested; rss_kept_ns, _op, _malloc, _requested,
 * _pages, _from and _until, if there is such a moment. */
sw_status swt_retained_write(const swt_retained *retained, sw_trace_writer *writer);

#endif
