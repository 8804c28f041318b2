/* SPDX-License-Identifier: Apache-2.0 */
/* The resident bytes over time (rss.h). */
#include "recorder/rss.h"

#include "base/assert.h"
#include "trace/format.h"

enum { STEP_FIRST_NS = 1000 * 1000 };

static record_rss rss = {.step_ns = STEP_FIRST_NS};
static char text[RECORD_RSS_TEXT_BYTES];

/* Drops every second point; from now on they are twice as far apart. */
static void thin(void) {
    rss.count /= 2;
    for (uint32_t i = 0; i < rss.count; i++) rss.points[i] = rss.points[2 * i];
    rss.step_ns *= 2;
}

static bool differs(const record_rss_point *from, uint64_t ns, uint64_t bytes) {
    uint64_t change = bytes > from->bytes ? bytes - from->bytes : from->bytes - bytes;
    return change > from->bytes / 64 || ns - from->ns >= rss.step_ns;
}

void record_rss_note(uint64_t ns, uint64_t bytes, bool last) {
    if (__atomic_exchange_n(&rss.busy, 1, __ATOMIC_ACQUIRE) != 0) return;
    sw_check2(record_rss_check(&rss));
    const record_rss_point *from = rss.count == 0 ? NULL : &rss.points[rss.count - 1];
    if (from == NULL || (ns > from->ns && (last || differs(from, ns, bytes)))) {
        if (rss.count == RECORD_RSS_POINTS) thin();
        rss.points[rss.count++] = (record_rss_point){ns, bytes};
    }
    __atomic_store_n(&rss.busy, 0, __ATOMIC_RELEASE);
}

static char *put_decimal(char *p, uint64_t value) {
    char digits[20];
    uint32_t n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0) *p++ = digits[--n];
    return p;
}

bool record_rss_put(swt_buffer *buffer) {
    if (__atomic_exchange_n(&rss.busy, 1, __ATOMIC_ACQUIRE) != 0) return false;
    char *p = text;
    for (uint32_t i = 0; i < rss.count; i++) {
        if (i != 0) *p++ = ' ';
        p = put_decimal(p, rss.points[i].ns);
        *p++ = ':';
        p = put_decimal(p, rss.points[i].bytes);
    }
    *p = '\0';
    bool done = rss.count != 0 && swt_put_meta(buffer, "rss_series", text);
    __atomic_store_n(&rss.busy, 0, __ATOMIC_RELEASE);
    return done;
}

void record_rss_after_fork(void) {
    rss.busy = 0;
    rss.count = 0;
    rss.step_ns = STEP_FIRST_NS;
}
