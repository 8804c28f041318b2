/* SPDX-License-Identifier: Apache-2.0 */
/* The resident bytes of the process over time: a few hundred points, for what stays after the peak. */
#ifndef SW_RECORDER_RSS_H
#define SW_RECORDER_RSS_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/raw.h"

enum {
    RECORD_RSS_POINTS = 512,
    RECORD_RSS_TEXT_BYTES = RECORD_RSS_POINTS * 42, /* two numbers of at most 20 digits each */
};

typedef struct record_rss_point {
    uint64_t ns, bytes;
} record_rss_point;

/* Only the thread that has set busy uses it.
 *   busy <= 1;  count <= RECORD_RSS_POINTS;  step_ns > 0;  times rise */
typedef struct record_rss {
    uint32_t busy;
    uint32_t count;
    uint64_t step_ns; /* between points, unless the bytes change by a 64th */
    record_rss_point points[RECORD_RSS_POINTS];
} record_rss;

const char *record_rss_check(const record_rss *rss);

/* Keeps the resident bytes at a time since the start of the recording, if they or the time differ
 * enough from the last point, or if it is the last one. */
void record_rss_note(uint64_t ns, uint64_t bytes, bool last);
/* Appends the key rss_series, "ns:bytes" separated by spaces, to a META block, which needs room for
 * RECORD_RSS_TEXT_BYTES and 16 more. False: there are no points, or another thread adds one. */
bool record_rss_put(swt_buffer *buffer);
void record_rss_after_fork(void);

#endif
