/* SPDX-License-Identifier: Apache-2.0 */
/* What the recorder writes: raw events of one thread, and the blocks of a raw `.swt` file.
 *
 * Everything here runs inside an interposed malloc: no allocation, no locks, no libc beyond
 * memcpy and memset, no thread-locals. All memory is the caller's (sw_os_map). Byte layout:
 * docs/design/trace.md.
 *
 *   recorder thread                                whoever flushes (same thread, or a writer)
 *   swt_raw_init(&raw, events, cap, thread, NULL)  enc = swt_encoder_init(mem, swt_encoder_bytes())
 *   swt_raw_alloc / _free / _realloc / _end        n = swt_encode_raw(enc, &raw, flags, &block)
 *     -> false: full, flush, then try again        write(fd, block, n);  swt_raw_clear(&raw)
 *
 * A raw file is, in this order: swt_file_header; a META block; a CLOCK block; then RAW, SITES,
 * MODULES and CLOCK blocks as they come; last a CLOCK and an END block. Append each block whole with one
 * write(2) to a file opened with O_APPEND: then blocks of threads interleave and never tear. After
 * a short write nothing more may be written (cut the file back to the last whole block if you can).
 *
 * Order of events. `stamp` is a number that grows with real time over all threads (a shared
 * counter): taken after an allocation returned, before a free is begun, and for a reallocation
 * both before (old) and after (new). Within a thread stamps never fall; threads need not agree on
 * anything else. A recorder whose cycle counter is the same on all cores (invariant TSC, read with
 * rdtsc before a free and rdtscp after an allocation) may pass 0 as stamp everywhere and set
 * SWT_RAW_TICKS_ARE_STAMPS.
 *
 * A failed call is not recorded. realloc(NULL, n) is an allocation; realloc(p, 0) that freed p is
 * a free (with its stamp taken before).
 */
#ifndef SW_TRACE_RAW_H
#define SW_TRACE_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"

enum {
    SWT_FILE_HEADER_BYTES = 64,
    SWT_RAW_EVENTS_MAX = 4096,       /* events of one RAW block; about 35 KB encoded */
    SWT_PAYLOAD_BYTES_MAX = 1 << 20, /* of any block, before compression */
    SWT_SITE_DEPTH_MAX = 128,        /* return addresses of a site */
};

typedef enum swt_raw_kind {
    SWT_RAW_MALLOC = 0,
    SWT_RAW_CALLOC = 1, /* malloc whose memory reads as zero */
    SWT_RAW_FREE = 2,
    SWT_RAW_REALLOC_OLD = 3, /* internal: first event of a reallocation */
    SWT_RAW_REALLOC_NEW = 4, /* internal: second event */
    SWT_RAW_THREAD_END = 5,  /* no address, no size; since version 2 */
    SWT_RAW_KIND_COUNT
} swt_raw_kind;

/* Whether an event of this kind has a size: whether it makes an object, or makes one anew. */
static inline bool swt_raw_has_size(uint32_t kind) {
    return kind <= SWT_RAW_CALLOC || kind == SWT_RAW_REALLOC_NEW;
}

/* One event, 32 bytes. word = address | kind << 48 | align_log2 << 56. */
typedef struct swt_event {
    uint64_t word;
    uint64_t size;  /* requested bytes; 0 for a free */
    uint64_t ticks; /* of the clock that the CLOCK blocks calibrate; need not be ordered exactly */
    uint32_t stamp; /* since the block's base stamp */
    uint32_t site;  /* id of a SITE entry, 0 unknown */
} swt_event;

/* One thread's open block. Owned by the thread until it is handed to whoever flushes.
 *   events <= next <= limit;  limit - events <= SWT_RAW_EVENTS_MAX */
typedef struct swt_raw {
    swt_event *next;
    swt_event *limit;
    swt_event *events;
    uint64_t base_stamp; /* of the first event; every event's stamp counts from it */
    uint64_t
        *base_copy;  /* base_stamp again, for a reader who has only the area (area.h); or NULL */
    uint32_t thread; /* the recorder's dense thread id */
} swt_raw;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *swt_raw_check(const swt_raw *raw);

/* Empties the block. The first event's word is cleared, so that a reader who has only the area (area.h)
 * finds no event. */
static inline void swt_raw_clear(swt_raw *raw) {
    raw->next = raw->events;
    raw->events[0].word = 0;
}

/* events: memory for one event more than `capacity`, 2 <= capacity <= SWT_RAW_EVENTS_MAX: the word
 * behind the last event is 0 (area.h). */
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
        __ATOMIC_RELEASE); /* the word last: an event whose word is set is whole */
    event->word = (address & 0xFFFFFFFFFFFFull) | kind << 48 | align_log2 << 56;
}

static sw_cold void swt_raw_begin(swt_raw *raw, uint64_t stamp) {
    raw->base_stamp = stamp;
    if (raw->base_copy != NULL) *raw->base_copy = stamp;
}

/* True when `events` more fit, the last of them with this stamp. */
static sw_always_inline bool swt_raw_fits(swt_raw *raw, uint32_t events, uint64_t first_stamp,
                                          uint64_t last_stamp) {
    if (sw_unlikely((size_t)(raw->limit - raw->next) < events))
        return false; /* also when the block was wiped and all fields are 0 */
    if (sw_unlikely(raw->next == raw->events)) swt_raw_begin(raw, first_stamp);
    return sw_likely(last_stamp - raw->base_stamp <= UINT32_MAX);
}

/* kind: SWT_RAW_MALLOC or SWT_RAW_CALLOC. align_log2: 0 unless an alignment was asked for.
 * All three return false, and record nothing, when the block must be flushed first. */
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

/* old_stamp, old_ticks were taken before the call, new_stamp, new_ticks after it. */
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

/* The thread ends. If it goes on to allocate, another end follows. The event has no address; it stores
 * that of the event before, because a difference of 0 takes one byte. */
static inline bool swt_raw_end(swt_raw *raw, uint64_t stamp, uint64_t ticks) {
    if (!swt_raw_fits(raw, 1, stamp, stamp)) return false;
    uint64_t address = raw->next == raw->events ? 0 : raw->next[-1].word;
    swt_event_put(raw->next++, address, SWT_RAW_THREAD_END, 0, 0, ticks, stamp - raw->base_stamp,
                  0);
    return true;
}

/* --- blocks ----------------------------------------------------------------------------------- */

enum { SWT_RAW_TICKS_ARE_STAMPS = 1 }; /* flag of swt_encode_raw; the same for a whole file */

typedef enum swt_block_kind {
    SWT_BLOCK_META = 1,    /* key, value strings */
    SWT_BLOCK_CLOCK = 2,   /* ticks <-> nanoseconds */
    SWT_BLOCK_RAW = 3,     /* one thread's events */
    SWT_BLOCK_SITES = 4,   /* additions to the call-site table */
    SWT_BLOCK_MODULES = 5, /* loaded modules */
    SWT_BLOCK_END = 6,     /* last block of a raw file */
    SWT_BLOCK_OPS = 7,     /* ordered operations */
    SWT_BLOCK_SUMMARY = 8, /* last block of an ordered file */
    SWT_BLOCK_KIND_COUNT
} swt_block_kind;

/* Column scratch and output of one flusher, in memory of the caller, and where it is asked for a
 * compressor. Use it from one thread at a time. */
typedef struct swt_encoder swt_encoder;

size_t swt_encoder_bytes(void);
/* memory: 64-byte aligned, at least swt_encoder_bytes(). NULL when it is not. The encoder lives
 * in it, and stores blocks as they are. */
swt_encoder *swt_encoder_init(void *memory, size_t bytes);
/* From now on blocks are compressed: that takes about twice the time and a fifth of the bytes. The
 * compressor allocates by malloc, until swt_encoder_end. False: out of memory, blocks are stored. */
bool swt_encoder_compress(swt_encoder *encoder);
/* Gives up the compressor, if there is one; NULL is ignored. */
void swt_encoder_end(swt_encoder *encoder);

/* The first bytes of a raw file. */
void swt_file_header(uint8_t out[SWT_FILE_HEADER_BYTES]);

/* Encodes the events of `raw` (at least one) as one whole block; *block points into the encoder and
 * holds until its next use. Returns its bytes; never fails. Does not change `raw`. */
size_t swt_encode_raw(swt_encoder *encoder, const swt_raw *raw, uint32_t flags,
                      const uint8_t **block);
/* A whole block of another kind from a payload made by the functions below. */
size_t swt_encode_block(swt_encoder *encoder, swt_block_kind kind, const void *payload,
                        size_t bytes, const uint8_t **block);

/* A payload under construction in memory of the caller (at most SWT_PAYLOAD_BYTES_MAX). Each put
 * appends a whole entry, or returns false and leaves the buffer as it was: flush and try again. */
typedef struct swt_buffer {
    uint8_t *data;
    size_t used, capacity;
} swt_buffer;

/* The rule that does not hold, or NULL (base/assert.h):
 *   used <= capacity;  data != NULL where capacity != 0 */
const char *swt_buffer_check(const swt_buffer *buffer);

/* META: any keys; those that spanwise reads are listed in docs/design/trace.md. A key may repeat
 * ("arg": the program's arguments in order). */
bool swt_put_meta(swt_buffer *buffer, const char *key, const char *value);
bool swt_put_meta_u64(swt_buffer *buffer, const char *key, uint64_t value);
/* SITES: ids count from 1 and are given out in order. addresses[0] is the innermost caller. */
bool swt_put_site(swt_buffer *buffer, uint32_t site, const uint64_t *addresses, uint32_t depth);
/* Above all addresses of programs: a module that begins here or later is a function of Python, and an
 * offset in it is a line. docs/design/trace.md. */
#define SWT_PYTHON_BASE 0xFFF0000000000000ull

/* MODULES: one entry for each mapped range [start, end) of a module; bias: run-time address minus
 * the file's virtual address. build_id may be NULL with 0 bytes. */
bool swt_put_module(swt_buffer *buffer, uint64_t start, uint64_t end, uint64_t bias,
                    const char *path, const void *build_id, uint32_t build_id_bytes);
/* CLOCK: the same instant on both clocks. ns_per_tick_q32: nanoseconds of a tick times 2^32 as best
 * known now (used only when the file holds one CLOCK block). The first block is time 0. */
bool swt_put_clock(swt_buffer *buffer, uint64_t ticks, uint64_t ns, uint64_t ns_per_tick_q32);

typedef enum swt_drop_reason {
    SWT_DROP_NONE = 0,
    SWT_DROP_DISK = 1,   /* write failed: disk full or file size limit */
    SWT_DROP_MEMORY = 2, /* no memory for a thread's buffer */
    SWT_DROP_OTHER = 3,
    SWT_DROP_REASON_COUNT
} swt_drop_reason;

typedef struct swt_end {
    uint64_t calls;         /* malloc-family calls seen, recorded or not */
    uint64_t dropped_calls; /* of these, not recorded */
    uint64_t drop_reason;   /* swt_drop_reason */
    uint64_t threads;
    uint64_t children_unrecorded; /* processes started that were not recorded */
    uint64_t children_recorded;
} swt_end;

/* END. */
bool swt_put_end(swt_buffer *buffer, const swt_end *end);

#endif
