/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the process's resident memory came through malloc.
 *
 * Pages in which malloc returned an object are marked in a bitmap. When the RSS has grown by a
 * sixteenth since the last reading, /proc/self/smaps is read, and the anonymous bytes of each
 * mapping are divided: marked pages are malloc's, and so is the heap of brk; pages of the recorder
 * are its own; the rest was mapped by the program itself or is data of its files. A marked page
 * stays marked until it is unmapped, because a freed page that is resident is still malloc's.
 */
#ifndef SW_RECORDER_MEMORY_H
#define SW_RECORDER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/raw.h"

enum {
    RECORD_LARGE_BYTES = 1 << 17, /* an object from here on is noted when it is allocated */
    RECORD_MAPS_MAX = 256,        /* mappings of the recorder that are known as its own */
};

/* Resident bytes at one moment. rss == malloc + mapped + data + file + own. */
typedef struct record_resident {
    uint64_t malloc_bytes; /* anonymous pages in which malloc returned objects */
    uint64_t mapped_bytes; /* other anonymous mappings: mmap calls of the program, thread stacks */
    uint64_t data_bytes;   /* private pages of files, and the first thread's stack */
    uint64_t file_bytes;   /* pages that are shared with files or other processes */
    uint64_t own_bytes;    /* the recorder's tables and buffers */
} record_resident;

/* Without memory for the bitmap nothing is measured. */
void record_memory_init(void);
/* sw_os_map for memory of the recorder. NULL: refused. */
void *record_map(size_t bytes);
/* Marks the pages of the objects that a block allocates, without those of RECORD_LARGE_BYTES and
 * more, which may be unmapped again by now. */
void record_memory_mark(const swt_raw *events);
/* Reads the resident memory if the RSS has grown by a sixteenth since the last reading, or if this
 * is the last one. A call while another thread reads does nothing. */
void record_memory_read(bool last);
/* Whether there is a reading that record_memory_put has not put yet. */
bool record_memory_is_new(void);
/* Marks the pages of an object of at least RECORD_LARGE_BYTES, and reads. Keeps errno. */
void record_memory_large(uint64_t address, uint64_t bytes);
/* Reads before [address, address + bytes) goes back to the system, and clears its marks. Keeps
 * errno. */
void record_memory_before_unmap(uint64_t address, uint64_t bytes);
/* As above for an object that glibc mapped, by the word before it. Does nothing if the pages that
 * the word describes are not marked: then another allocator made the object. */
void record_memory_before_free(const void *p);
/* Reads before pages are purged that stay mapped. Keeps errno. */
void record_memory_before_purge(void);
/* Appends the highest reading and the peak RSS to a META block, as rss_* keys. False: there is no
 * reading, or another thread is reading. */
bool record_memory_put(swt_buffer *buffer);
void record_memory_after_fork(void);

#endif
