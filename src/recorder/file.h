/* SPDX-License-Identifier: Apache-2.0 */
/* The recording on disk: blocks out, the END block, descriptor care. Used by the other record_*.c.
 */
#ifndef SW_RECORDER_FILE_H
#define SW_RECORDER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/raw.h"

struct record_thread;

/* Creates `path` and writes its first blocks. fresh: an existing file is replaced; else it is an
 * error (EEXIST). False: errno tells why, and there is no file. */
bool record_file_open(const char *path, bool fresh);
bool record_file_is_open(void);
bool record_file_is_regular(void); /* else a device; holds after the file is lost, too */

/* Encodes and writes a thread's block and empties it. The thread must not be changing it. */
void record_file_flush(struct record_thread *thread);
/* Writes a block of another kind; an empty payload is nothing to do. False: recording stopped. */
bool record_file_put(swt_block_kind kind, const swt_buffer *payload);
/* Writes CLOCK and END at the end of the file without moving the end; cut_tail removes them. */
void record_file_tail(void);
void record_file_cut_tail(void);

/* Ends recording for this process, whatever is still to come; the first reason is kept. */
void record_file_stop(swt_drop_reason reason);

/* In a fork child: closes the parent's file and forgets it. */
void record_file_after_fork(void);

#endif
