/* SPDX-License-Identifier: Apache-2.0 */
/* The recording on disk: writes blocks, and keeps the descriptor. */
#ifndef SW_RECORDER_FILE_H
#define SW_RECORDER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "os/os.h"
#include "recorder/descriptor.h"
#include "trace/raw.h"

/* The file of the recording. Under its lock, but for the times of clocks:
 *   last_offset <= offset;  last_calls == 0 where offset == 0;  and the rules of at */
typedef struct record_file {
    sw_os_lock lock;                  /* of all fields, and of writing */
    record_descriptor at;             /* a device can not be cut back */
    uint64_t offset;                  /* end of the last whole block that stays */
    uint64_t last_offset, last_calls; /* where that block begins, and the calls in it */
    uint64_t last_clock_ns, ns_per_tick_q32;
    uint64_t start_ticks, start_ns;
} record_file;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *record_file_check(const record_file *file);

/* Creates `path` with its header. fresh: an existing file is replaced; else it is an error
 * (EEXIST). False: errno tells why, and there is no file. */
bool record_file_create(const char *path, bool fresh);
/* Removes a file whose first blocks could not be written. errno stays as it is. */
void record_file_discard(void);
bool record_file_is_open(void);
/* False: the recording goes to a device. The answer stays the same after the file is lost. */
bool record_file_is_regular(void);

/* Writes a block of events, which are so many calls. False: they are lost. */
bool record_file_put_events(const swt_raw *events, uint64_t calls);
/* Writes a block of another kind, unless the payload is empty. False: the recording has stopped. */
bool record_file_put(swt_block_kind kind, const swt_buffer *payload);
/* Writes a CLOCK block. */
bool record_file_put_clock(void);
/* Writes a CLOCK block if the last one is a second old. */
void record_file_keep_clock(void);
/* Writes CLOCK and END at the end of the file without moving the end; cut_tail removes them.
 * counts: of threads and children; the calls that the file has, and why calls are missing, are
 * added. */
void record_file_put_tail(const swt_end *counts);
void record_file_cut_tail(void);

/* Nothing more is recorded in this process. Of several reasons the first is kept. */
void record_file_stop(swt_drop_reason reason);

/* In a fork child: closes the parent's file and forgets it. */
void record_file_after_fork(void);

#endif
