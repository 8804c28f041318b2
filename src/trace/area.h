/* SPDX-License-Identifier: Apache-2.0 */
/* Areas: a file with the events and call sites that the recorder has not written to its recording
 * yet. It outlives the recorded program, and the process that started the program appends its
 * content to the recording (salvage.c).
 *
 *   +-- area 0: call sites --+-- area 1: thread a --+-- area 2: thread b --+ ...
 *   | head | SITES entries   | head | events ... 0  | head | events ... 0  |
 *
 * All areas of a file have the same length. The recorder maps each one shared and writes to it
 * without system calls. The file is read on the machine that wrote it, so it has that machine's
 * byte order.
 *
 * An event counts as written if its first word is not 0. The word after the last event is 0:
 * swt_event_put first clears the next event's word and sets its own event's word last. A killed
 * program has done all stores before some instruction and none after it, so only the compiler must
 * keep the order of these stores.
 */
#ifndef SW_TRACE_AREA_H
#define SW_TRACE_AREA_H

#include <stddef.h>
#include <stdint.h>

#include "trace/raw.h"

enum {
    SWT_AREA_EVENTS = SWT_RAW_EVENTS_MAX + 1, /* one more, for the word of zero after the last
                                               * event */
    SWT_AREA_BYTES_MAX = 1 << 20,             /* of one area */
};

#define SWT_AREA_MAGIC 0x3141455241545753ull /* "SWTAREA1" */

typedef enum swt_area_kind { SWT_AREA_SITES = 1, SWT_AREA_THREAD = 2 } swt_area_kind;

/* The head of an area. The content follows it directly. */
struct swt_area {
    uint64_t magic;       /* written last: 0 in an area that is not ready */
    uint32_t area_bytes;  /* of each area of this file */
    uint32_t kind;        /* swt_area_kind */
    uint64_t base_stamp;  /* THREAD: stamp of the first event, a copy of swt_raw.base_stamp */
    uint32_t thread;      /* THREAD: the recorder's thread id */
    uint32_t used;        /* SITES: bytes of the whole entries */
    uint32_t lost;        /* SITES: 1: calls were lost, or the block of a thread is not in this
                          * file */
    uint32_t drop_reason; /* SITES: swt_drop_reason; not NONE: the program ended without writing the
                           * END block */
    uint64_t dropped_calls; /* SITES: the dropped calls that END would contain */
    uint32_t unused[4];
};
_Static_assert(sizeof(struct swt_area) == 64, "events begin at a cache line");

/* Returns the bytes of an area on a machine with pages of `page_bytes`. */
static inline size_t swt_area_bytes(size_t page_bytes) {
    size_t bytes = sizeof(struct swt_area) + SWT_AREA_EVENTS * sizeof(swt_event);
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

static inline void *swt_area_content(struct swt_area *area) { return area + 1; }

#endif
