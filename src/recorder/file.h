/* SPDX-License-Identifier: Apache-2.0 */
/* The recording on disk: writes blocks, and keeps the descriptor. */
#ifndef SW_RECORDER_FILE_H
#define SW_RECORDER_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "os/os.h"
#include "recorder/state.h"
#include "trace/raw.h"

/* A file that the recorder keeps open in a program that may close any descriptor and reuse its
 * number. */

/* Written under the lock of the struct that has the descriptor.
 *   fd >= -1;  path is absolute if fd >= 0 */
typedef struct record_descriptor {
    int fd; /* -1: none */
    int access;
    dev_t device;
    ino_t inode;
    bool regular; /* false: a device */
    char path[RECORD_PATH_MAX];
} record_descriptor;

/* Returns the first broken rule, or NULL (base/base.h). Like all <type>_check functions of this
 * folder it only reads the struct, so that a signal handler may call it. */
const char *record_descriptor_check(const record_descriptor *file);

/* Takes over the open file `fd` and moves its descriptor to a high number. access: O_WRONLY or
 * O_RDWR, the mode for reopening the file. False: fd is closed, and errno is set. */
bool record_descriptor_adopt(record_descriptor *file, int fd, const char *path, int access);
/* Checks that the descriptor is open and refers to our file; else reopens the file. False: that
 * failed, and the descriptor is -1 from now on. */
bool record_descriptor_hold(record_descriptor *file);
/* Closes the descriptor, unless the program has reused it. */
void record_descriptor_close(record_descriptor *file);
/* False, with errno EFBIG: a write up to the offset `end` would exceed the size limit of files and
 * raise SIGXFSZ in the program. */
bool record_within_size_limit(uint64_t end);

/* The file of the recording. The lock protects all fields except last_clock_ns, ns_per_tick_q32 and
 * the times of the start:
 *   last_offset <= offset;  last_calls == 0 if offset == 0;  and the rules of at */
typedef struct record_file {
    sw_os_lock lock;                  /* also held while a block is written */
    record_descriptor at;             /* may be a device, which cannot be cut back */
    uint64_t offset;                  /* the end of the last whole block */
    uint64_t last_offset, last_calls; /* offset of that block, and its calls */
    uint64_t last_clock_ns, ns_per_tick_q32;
    uint64_t start_ticks, start_ns;
    bool ended; /* END was written, and nothing follows */
} record_file;

const char *record_file_check(const record_file *file);

/* Creates `path` and writes its header. fresh: an existing file is replaced; otherwise it is an
 * error (EEXIST). False: errno is set, and there is no file. */
bool record_file_create(const char *path, bool fresh);
/* Removes the file, because its first blocks could not be written. Preserves errno. */
void record_file_discard(void);
bool record_file_is_open(void);
/* False: the recording is a device. The result stays the same after the descriptor is lost. */
bool record_file_is_regular(void);

/* Writes a block of events with `calls` calls. False: they are lost. */
bool record_file_put_events(const swt_raw *events, uint64_t calls);
/* Writes a block of another kind, unless the payload is empty. False: the recording has stopped. */
bool record_file_put(swt_block_kind kind, const swt_buffer *payload);
bool record_file_put_clock(void);
/* Nanoseconds of a number of ticks, about. */
uint64_t record_file_ns(uint64_t ticks);
/* Writes a CLOCK block if the last one is more than a second old. */
void record_file_keep_clock(void);
/* Writes CLOCK and END after the last block; record_file_cut_tail, or the next block, removes them.
 * The caller fills in the counts of threads, children and dropped calls; this function adds the
 * calls in the file, and the reason why calls are missing. False: the write failed, and errno is
 * set. */
bool record_file_put_tail(swt_end *end);
void record_file_cut_tail(void);
/* Closes the file, after the tail; nothing more can be written. */
void record_file_close(void);

/* In a fork child: closes the parent's file and forgets it. */
void record_file_after_fork(void);

#endif
