/* SPDX-License-Identifier: Apache-2.0 */
/* Areas: what the recorder has not written to its recording yet, in a file that outlives the recorded
 * program. The process that started the program appends it to the recording (salvage.c).
 *
 *   +-- area 0: call sites --+-- area 1: thread a --+-- area 2: thread b --+ ...
 *   | head | SITES entries   | head | events ... 0  | head | events ... 0  |
 *
 * All areas of a file have the same length. The recorder maps each of them, shared, and works in
 * place, without system calls. The file is read on the machine that wrote it, soon afterwards, so
 * numbers have the byte order of the machine.
 *
 * An event counts as written when its first word is not 0, and the word behind the last event is 0: the
 * writer first clears the next event's word and sets its own word last (swt_event_put). A program that
 * is killed has done all stores up to some instruction, so it is enough that the compiler keeps the
 * order of these stores.
 */
#ifndef SW_TRACE_AREA_H
#define SW_TRACE_AREA_H

#include <stddef.h>
#include <stdint.h>

#include "trace/raw.h"

enum {
    SWT_AREA_EVENTS = SWT_RAW_EVENTS_MAX + 1, /* one more for the word that ends them */
    SWT_AREA_BYTES_MAX = 1 << 20,             /* of one area */
};

#define SWT_AREA_MAGIC 0x3141455241545753ull /* "SWTAREA1" */

typedef enum swt_area_kind { SWT_AREA_SITES = 1, SWT_AREA_THREAD = 2 } swt_area_kind;

/* The head of an area. Its content lies right behind it. */
struct swt_area {
    uint64_t magic;      /* written last: 0 in an area that is not ready */
    uint32_t area_bytes; /* of each area of this file */
    uint32_t kind;       /* swt_area_kind */
    uint64_t base_stamp; /* THREAD: of the first event; swt_raw has the same */
    uint32_t thread;     /* THREAD: the recorder's thread id */
    uint32_t used;       /* SITES: bytes of whole entries */
    uint32_t lost;       /* SITES: 1: calls were lost, or a thread's block is not in this file */
    uint32_t unused[7];
};
_Static_assert(sizeof(struct swt_area) == 64, "events begin at a cache line");

/* Bytes of an area on a machine with such pages. */
static inline size_t swt_area_bytes(size_t page_bytes) {
    size_t bytes = sizeof(struct swt_area) + SWT_AREA_EVENTS * sizeof(swt_event);
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

static inline void *swt_area_content(struct swt_area *area) { return area + 1; }

#endif
