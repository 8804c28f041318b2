/* SPDX-License-Identifier: Apache-2.0 */
/* The data that the recorder writes: raw events of one thread, and the blocks of a raw `.swt` file.
 *
 * All of this runs inside an interposed malloc. So it allocates nothing, takes no lock, uses no
 * thread-local variable, and calls only memcpy and memset of libc. The caller passes all memory
 * (sw_os_map). Byte layout: docs/design/trace.md.
 *
 *   a thread of the program                        the thread that flushes (the same, or another)
 *   swt_raw_init(&raw, events, cap, thread, NULL)  enc = swt_encoder_init(mem, swt_encoder_bytes())
 *   swt_raw_alloc / _free / _realloc / _end        n = swt_encode_raw(enc, &raw, flags, &block)
 *     -> false: full, flush, then try again        write(fd, block, n);  swt_raw_clear(&raw)
 *
 * A raw file is, in this order: swt_file_header; a META block; a CLOCK block; then RAW, SITES,
 * MODULES and CLOCK blocks in any order; last a CLOCK and an END block. Blocks of several threads
 * must not mix: each is appended whole, under a lock (file.c of the recorder) or by one write(2)
 * with O_APPEND. After a short write nothing more may be written, unless the file is cut back to
 * its last whole block.
 *
 * Order of events: `stamp` is a number that grows with real time over all threads (a shared
 * counter). It is taken after an allocation returned and before a free begins; for a reallocation
 * both before (old) and after (new). Within a thread stamps never decrease; nothing else orders the
 * threads. A recorder whose cycle counter is the same on all cores (invariant TSC, read with rdtsc
 * before a free and rdtscp after an allocation) may pass 0 as stamp everywhere and set
 * SWT_RAW_TICKS_ARE_STAMPS.
 *
 * A failed call is not recorded. realloc(NULL, n) is an allocation; realloc(p, 0) that freed p is a
 * free, with the stamp taken before it.
 */
#ifndef SW_TRACE_RAW_H
#define SW_TRACE_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum {
    SWT_FILE_HEADER_BYTES = 64,
    SWT_RAW_EVENTS_MAX = 4096,       /* in one RAW block; about 35 KB encoded */
    SWT_PAYLOAD_BYTES_MAX = 1 << 20, /* of any block, before compression */
    SWT_SITE_DEPTH_MAX = 128,        /* return addresses of a call site */
};

typedef enum swt_raw_kind {
    SWT_RAW_MALLOC = 0,
    SWT_RAW_CALLOC = 1, /* malloc whose memory reads as zero */
    SWT_RAW_FREE = 2,
    SWT_RAW_REALLOC_OLD = 3, /* internal: first event of a reallocation, the old address */
    SWT_RAW_REALLOC_NEW = 4, /* internal: second event, the new address */
    SWT_RAW_THREAD_END = 5,  /* no address, no size */
    SWT_RAW_KIND_COUNT
} swt_raw_kind;

/* Returns whether events of this kind have a size: they create or resize an object. */
static inline bool swt_raw_has_size(uint32_t kind) {
    return kind <= SWT_RAW_CALLOC || kind == SWT_RAW_REALLOC_NEW;
}

/* One event, 32 bytes. word = address | kind << 48 | align_log2 << 56. */
typedef struct swt_event {
    uint64_t word;
    uint64_t size;  /* requested bytes; 0 for a free */
    uint64_t ticks; /* of the clock that the CLOCK blocks calibrate; not strictly increasing */
    uint32_t stamp; /* difference from the block's base stamp */
    uint32_t site;  /* id of a call site (SITES block); 0: unknown */
} swt_event;

/* The open block of a thread. Only that thread changes it, until it is passed on to be flushed.
 *   events <= next <= limit;  limit - events <= SWT_RAW_EVENTS_MAX */
typedef struct swt_raw {
    swt_event *next;
    swt_event *limit;
    swt_event *events;
    uint64_t base_stamp; /* stamp of the first event; the block's stamps are relative to it */
    uint64_t *base_copy; /* a copy of base_stamp for the reader of an area (area.h); or NULL */
    uint32_t thread;     /* id of the thread, assigned by the recorder */
} swt_raw;

const char *swt_raw_check(const swt_raw *raw);

/* Empties the block. The first event's word is cleared for the reader of an area (area.h). */
static inline void swt_raw_clear(swt_raw *raw) {
    raw->next = raw->events;
    raw->events[0].word = 0;
}

/* events: memory for `capacity` + 1 events, 2 <= capacity <= SWT_RAW_EVENTS_MAX. The extra one is
 * for the zero word after the last event (area.h). */
static inline void swt_raw_init(swt_raw *raw, swt_event *events, uint32_t capacity, uint32_t thread,
                                uint64_t *base_copy) {
    raw->limit = events + capacity;
    raw->events = events;
    raw->base_stamp = 0;
    raw->base_copy = base_copy;
    raw->thread = thread;
    swt_raw_clear(raw);
}

static inline uint32_t swt_raw_count(const swt_raw *raw) {
    return (uint32_t)(raw->next - raw->events);
}

static sw_always_inline void swt_event_put(swt_event *event, uint64_t address, uint64_t kind,
                                           uint64_t align_log2, uint64_t size, uint64_t ticks,
                                           uint64_t stamp, uint32_t site) {
    event[1].word = 0;
    event->size = size;
    event->ticks = ticks;
    event->stamp = (uint32_t)stamp;
    event->site = site;
    __atomic_signal_fence(
        __ATOMIC_RELEASE); /* the word is written last: an event whose word is set is complete */
    event->word = (address & 0xFFFFFFFFFFFFull) | kind << 48 | align_log2 << 56;
}

static sw_cold void swt_raw_begin(swt_raw *raw, uint64_t stamp) {
    raw->base_stamp = stamp;
    if (raw->base_copy != NULL) *raw->base_copy = stamp;
}

/* Returns whether `events` more events fit, the last of them with the stamp `last_stamp`. */
static sw_always_inline bool swt_raw_fits(swt_raw *raw, uint32_t events, uint64_t first_stamp,
                                          uint64_t last_stamp) {
    if (sw_unlikely((size_t)(raw->limit - raw->next) < events))
        return false; /* also if a fork has cleared the block, and all fields are 0 */
    if (sw_unlikely(raw->next == raw->events)) swt_raw_begin(raw, first_stamp);
    return sw_likely(last_stamp - raw->base_stamp <= UINT32_MAX);
}

/* Appends an allocation. kind: SWT_RAW_MALLOC or SWT_RAW_CALLOC. align_log2: 0 unless an alignment
 * was requested. This function, swt_raw_free and swt_raw_realloc return false and record nothing if
 * the block must be flushed first. */
static sw_always_inline bool swt_raw_alloc(swt_raw *raw, swt_raw_kind kind, uint64_t stamp,
                                           uint64_t ticks, uint64_t address, uint64_t size,
                                           uint32_t align_log2, uint32_t site) {
    if (!swt_raw_fits(raw, 1, stamp, stamp)) return false;
    swt_event_put(raw->next++, address, kind, align_log2, size, ticks, stamp - raw->base_stamp,
                  site);
    return true;
}

static sw_always_inline bool swt_raw_free(swt_raw *raw, uint64_t stamp, uint64_t ticks,
                                          uint64_t address, uint32_t site) {
    if (!swt_raw_fits(raw, 1, stamp, stamp)) return false;
    swt_event_put(raw->next++, address, SWT_RAW_FREE, 0, 0, ticks, stamp - raw->base_stamp, site);
    return true;
}

/* old_stamp and old_ticks were taken before the call, new_stamp and new_ticks after it. */
static sw_always_inline bool swt_raw_realloc(swt_raw *raw, uint64_t old_stamp, uint64_t old_ticks,
                                             uint64_t old_address, uint64_t new_stamp,
                                             uint64_t new_ticks, uint64_t new_address,
                                             uint64_t size, uint32_t site) {
    if (!swt_raw_fits(raw, 2, old_stamp, new_stamp)) return false;
    swt_event_put(raw->next++, old_address, SWT_RAW_REALLOC_OLD, 0, 0, old_ticks,
                  old_stamp - raw->base_stamp, 0);
    swt_event_put(raw->next++, new_address, SWT_RAW_REALLOC_NEW, 0, size, new_ticks,
                  new_stamp - raw->base_stamp, site);
    return true;
}

/* Appends the end of the thread. If the thread allocates after that, another end follows. The event
 * has no address; it stores that of the previous event, because a difference of 0 takes one
 * byte. */
static inline bool swt_raw_end(swt_raw *raw, uint64_t stamp, uint64_t ticks) {
    if (!swt_raw_fits(raw, 1, stamp, stamp)) return false;
    uint64_t address = raw->next == raw->events ? 0 : raw->next[-1].word;
    swt_event_put(raw->next++, address, SWT_RAW_THREAD_END, 0, 0, ticks, stamp - raw->base_stamp,
                  0);
    return true;
}

/* --- blocks ----------------------------------------------------------------------------------- */

enum { SWT_RAW_TICKS_ARE_STAMPS = 1 }; /* flag of swt_encode_raw; all blocks of a file agree */

typedef enum swt_block_kind {
    SWT_BLOCK_META = 1,    /* pairs of strings: key, value */
    SWT_BLOCK_CLOCK = 2,   /* ticks and nanoseconds of the same moment */
    SWT_BLOCK_RAW = 3,     /* events of one thread */
    SWT_BLOCK_SITES = 4,   /* additions to the call-site table */
    SWT_BLOCK_MODULES = 5, /* loaded modules */
    SWT_BLOCK_END = 6,     /* last block of a raw file */
    SWT_BLOCK_OPS = 7,     /* ordered operations */
    SWT_BLOCK_SUMMARY = 8, /* last block of an ordered file */
    SWT_BLOCK_KIND_COUNT
} swt_block_kind;

/* Encodes blocks in the caller's memory, compressed if swt_encoder_compress was called. Used by one
 * thread at a time. */
typedef struct swt_encoder swt_encoder;

size_t swt_encoder_bytes(void);
/* Creates an encoder in `memory`: aligned to 64 bytes, at least swt_encoder_bytes(). It stores
 * blocks uncompressed. NULL: the memory is not suitable. */
swt_encoder *swt_encoder_init(void *memory, size_t bytes);
/* Makes the encoder compress blocks from now on, which takes about twice the time and a fifth of
 * the bytes. The compressor allocates with malloc, until swt_encoder_end. False: no memory, and
 * blocks are stored uncompressed. */
bool swt_encoder_compress(swt_encoder *encoder);
/* Frees the compressor, if there is one. NULL is ignored. */
void swt_encoder_end(swt_encoder *encoder);

void swt_file_header(uint8_t out[SWT_FILE_HEADER_BYTES]);

/* Encodes the events of `raw` (at least one) as one block and returns its bytes. *block points into
 * the encoder and is valid until the encoder's next use. Never fails, and does not change `raw`. */
size_t swt_encode_raw(swt_encoder *encoder, const swt_raw *raw, uint32_t flags,
                      const uint8_t **block);
/* Builds a block of another kind from a payload of the functions below. */
size_t swt_encode_block(swt_encoder *encoder, swt_block_kind kind, const void *payload,
                        size_t bytes, const uint8_t **block);

/* A payload in progress, in the caller's memory (at most SWT_PAYLOAD_BYTES_MAX). Each swt_put_
 * function appends a whole entry. False: there is no room, and nothing has changed; flush the
 * buffer and try again. */
typedef struct swt_buffer {
    uint8_t *data;
    size_t used, capacity;
} swt_buffer;

/* Returns the first broken rule, or NULL (base/base.h):
 *   used <= capacity;  data != NULL if capacity != 0 */
const char *swt_buffer_check(const swt_buffer *buffer);

/* META: any keys; docs/design/trace.md lists those that spanwise reads. A key may be repeated, as
 * "arg" is for the program's arguments in order. */
bool swt_put_meta(swt_buffer *buffer, const char *key, const char *value);
bool swt_put_meta_u64(swt_buffer *buffer, const char *key, uint64_t value);
/* SITES: ids count from 1, in order. addresses[0] is the innermost caller. */
bool swt_put_site(swt_buffer *buffer, uint32_t site, const uint64_t *addresses, uint32_t depth);
/* Above all addresses of programs. A module at or above this address is a Python function, and an
 * offset in it is a line. docs/design/trace.md. */
#define SWT_PYTHON_BASE 0xFFF0000000000000ull

/* MODULES: one entry per mapped range [start, end) of a module. bias: address at run time minus
 * virtual address in the file. build_id may be NULL with 0 bytes. */
bool swt_put_module(swt_buffer *buffer, uint64_t start, uint64_t end, uint64_t bias,
                    const char *path, const void *build_id, uint32_t build_id_bytes);
/* CLOCK: the same moment on both clocks. ns_per_tick_q32: estimated nanoseconds per tick, times
 * 2^32; used only if the file holds one CLOCK block. The first block is time 0. */
bool swt_put_clock(swt_buffer *buffer, uint64_t ticks, uint64_t ns, uint64_t ns_per_tick_q32);

typedef enum swt_drop_reason {
    SWT_DROP_NONE = 0,
    SWT_DROP_DISK = 1,   /* write failed: disk full or file size limit */
    SWT_DROP_MEMORY = 2, /* no memory for a thread's buffer */
    SWT_DROP_OTHER = 3,
    SWT_DROP_REASON_COUNT
} swt_drop_reason;

typedef struct swt_end {
    uint64_t calls;         /* calls of the malloc family, recorded or not */
    uint64_t dropped_calls; /* of these, not recorded */
    uint64_t drop_reason;   /* swt_drop_reason */
    uint64_t threads;
    uint64_t children_unrecorded; /* child processes that were not recorded */
    uint64_t children_recorded;
} swt_end;

bool swt_put_end(swt_buffer *buffer, const swt_end *end);

#endif
