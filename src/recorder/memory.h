/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the process's resident memory came through malloc.
 *
 * Pages in which malloc returned an object are marked in a bitmap. When the RSS has grown by a
 * sixteenth since the last reading, /proc/self/smaps is read, and the anonymous bytes of each
 * mapping are divided: marked pages are malloc's, and so is the heap of brk; pages of the recorder
 * are its own; the rest was mapped by the program itself or is data of its files. A marked page
 * stays marked until it is unmapped, because malloc still holds a freed page that is resident.
 */
#ifndef SW_RECORDER_MEMORY_H
#define SW_RECORDER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/raw.h"

enum {
    RECORD_LARGE_BYTES = 1 << 17, /* a larger object is marked when it is allocated */
    RECORD_READ_EVERY = 1 << 20,  /* bytes that a thread allocates between two looks at the RSS */
    RECORD_MAPS_MAX = 4096,       /* mappings of the recorder that are known as its own */
    RECORD_PAUSE_NS = 100 * 1000 * 1000, /* a shorter time without calls is no pause */
    RECORD_PAUSES_MAX = 32,              /* the longest ones are kept */
    RECORD_PAUSES_TEXT_BYTES = (RECORD_PAUSES_MAX + 1) * 63, /* three numbers of 20 digits each */
};

/* A time in which the process made no call that was recorded, in ticks, and malloc's resident bytes
 * at its end. from == to: the end of the process, without a pause before it. */
typedef struct record_pause {
    uint64_t from, to, malloc_bytes;
} record_pause;

/* Resident bytes at one moment. rss == malloc + mapped + data + file + own. */
typedef struct record_resident {
    uint64_t malloc_bytes; /* anonymous pages in which malloc returned objects */
    uint64_t mapped_bytes; /* other anonymous mappings: mmap calls of the program, thread stacks */
    uint64_t data_bytes;   /* private pages of files, and the first thread's stack */
    uint64_t file_bytes;   /* pages that are shared with files or other processes */
    uint64_t own_bytes;    /* the recorder's tables and buffers */
    uint64_t untouched_bytes; /* not in rss: pages of malloc's objects that were never written */
} record_resident;

/* Without memory for the bitmap nothing is measured. */
void record_memory_init(void);
/* sw_os_map for memory of the recorder. NULL: refused. */
void *record_map(size_t bytes);
/* Marks the pages of the objects that a block allocates, without those of RECORD_LARGE_BYTES and
 * more, which may be unmapped again by now. Another thread may be appending to the block. */
void record_memory_mark(const swt_raw *block);
/* Marks the pages of one object. */
void record_memory_mark_object(uint64_t address, uint64_t bytes);
/* Clears the marks of pages that the program has mapped or unmapped, or that have gone back. */
void record_memory_unmark(uint64_t address, uint64_t bytes);
/* Clears the marks of an object that glibc mapped, by the word before it. False, and nothing is
 * changed: the pages that the word describes are not marked, so another allocator made it. */
bool record_memory_unmark_mapped(const void *p);
/* True if the RSS has grown by a sixteenth since the last reading, or if this is the last one: then
 * the caller marks the open blocks and calls record_memory_end, which reads. One thread at a time;
 * false in others meanwhile. */
bool record_memory_begin(bool last);
void record_memory_end(void);
/* Whether a process of so many threads used less than half of a processor in a pause that ends now.
 * One that computes, or in which a free takes long, uses more. */
bool record_memory_was_idle(uint64_t pause_ns, uint64_t threads);
/* As record_memory_begin, for a pause that has ended, if it is one of the longest. False also if
 * more than a 64th of the time has gone into readings: then the parts are taken to be as at the
 * latest one, and only malloc's differs. */
bool record_memory_begin_pause(uint64_t from, uint64_t to);
/* Keeps the latest reading as that of the end of the process; from < to: after such a pause. */
void record_memory_note_end(uint64_t from, uint64_t to);
/* Appends the pauses and the end to a META block, as rss_pauses, "from:to:malloc" separated by
 * spaces. False: there are none, or another thread is reading. */
bool record_memory_put_pauses(swt_buffer *buffer);
/* Whether there is a reading that record_memory_put has not put yet. */
bool record_memory_is_new(void);
/* Appends the highest reading and the peak RSS to a META block, as rss_* keys. False: there is no
 * reading, or another thread is reading. */
bool record_memory_put(swt_buffer *buffer);
void record_memory_after_fork(void);

#endif
