/* SPDX-License-Identifier: Apache-2.0 */
/* A space: a reservation of addresses, its page map and its span records. One live space serves
 * every heap of the process, so one load finds the span of any pointer; each dry heap has a space
 * of its own whose addresses are only numbers.
 *
 *   address:   base ........ windows handed to heaps, each a power of two, naturally aligned ...
 *   page map:  u32 a frame (4 KiB) -> span id;  0 nobody's, 1 released (was an object's once)
 *   spans:     sw_span[id], 64 B each; cold: sw_span_cold[id] beside it
 *
 * Where a large reservation is refused (ulimit -v) the space starts small and adds further ones;
 * pointers into those are found by sw_space_entry on the slow path only.
 * The space's lock covers windows and span ids; heaps take it inside their own lock.
 * Callers: the page heap (windows), heap (span records, look-up of pointers), watch.
 */
#ifndef SW_PAGE_SPACE_H
#define SW_PAGE_SPACE_H

#include "os/os.h"
#include "page/touch_map.h"
#include "spanwise/fast_abi.h"

enum {
    SW_SPAN_NONE = 0,     /* page-map id of frames that were never an object's */
    SW_SPAN_RELEASED = 1, /* page-map id of frames whose objects are gone */
    SW_SPAN_FIRST = 2,
    SW_SPAN_BATCH = 64, /* span records are given to heaps this many at a time */
    SW_SPACE_EXTRAS = 256,
    SW_SPACE_FREE_WINDOWS = 1 << 14, /* 1 TiB in windows of 64 MiB; further ones are never reused */
    SW_WINDOW_LOG2_MAX = 40,
};

/* What only slow paths read of a span. The holder of the heap's lock writes heap, page and pages;
 * the links and `looked` belong to whoever has the list.
 *   next == 0 or next != prev;  page + pages does not wrap round */
typedef struct sw_span_cold {
    sw_heap *heap;
    uint32_t page; /* first logical page in its heap */
    uint32_t pages;
    union {
        void *slack;        /* slots, tracked: slot - requested bytes, a u16 or u32 for each */
        uint64_t requested; /* large objects: the size asked for */
    };
    /* Bit k of remote_words[h]: remote word 64 * h + k holds frees that its owner has not drained.
     * Half h of the span is on its owner's remote stack while remote_words[h] is not 0. A span of one
     * word has 0 there, and is on the stack while that word has remote bits. Atomic. */
    uint64_t remote_words[2];
    uint32_t remote_next[2]; /* links of that stack */
    uint32_t batch_next;     /* first record of a batch: the next batch of the same heap */
    uint32_t next, prev;     /* links of the span's list; 0 ends it */
    uint32_t looked;         /* what the last choice saw of it: heap/placement.c; 0: nothing */
} sw_span_cold;

_Static_assert(sizeof(sw_span_cold) == 64, "a cold record is one cache line");

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_span_cold_check(const sw_span_cold *cold);

/* A piece of address space that belongs to one heap. The heap's lock covers every field.
 *   frontier <= pages <= frames;  base is a multiple of the frame;  map != NULL */
typedef struct sw_window {
    uintptr_t base;
    uint32_t *map; /* page-map entries of its frames */
    uint64_t frames;
    uint32_t first_page; /* logical number of its first page (set by the heap) */
    uint32_t pages;
    uint32_t frontier; /* pages committed so far, from the start */
} sw_window;

const char *sw_window_check(const sw_window *window);

/* The space's lock covers every field but view, which is constant, and the ones marked atomic.
 *   SW_SPAN_FIRST <= span_next <= span_committed <= span_limit
 *   (span_next - SW_SPAN_FIRST) % SW_SPAN_BATCH == 0;  free_batches < span_next
 *   free_window_count <= SW_SPACE_FREE_WINDOWS;  extra_count <= SW_SPACE_EXTRAS */
typedef struct sw_space {
    sw_space_view view; /* what fast paths read */
    sw_span_cold *cold;
    sw_os_lock lock;
    bool dry;
    bool constrained;        /* the large reservation was refused */
    uint32_t span_limit;     /* records that the reservation holds */
    uint32_t span_committed; /* records that are writable */
    uint32_t span_next;      /* atomic: first id never handed out */
    uint32_t free_batches;   /* ids of returned batches, linked through sw_span_cold.next */
    sw_window free_windows[SW_SPACE_FREE_WINDOWS];
    uint32_t free_window_count;
    sw_window extras[SW_SPACE_EXTRAS]; /* further reservations */
    uint32_t extra_count;
    /* Of a dry space whose heap notes writes, under the heap's lock: the written pages of the page map, by bytes of
     * view.page_map; and of the entries of accessible pages the bytes that lie in such pages. */
    sw_touch_map map_touch;
    uint64_t map_touched_bytes;
} sw_space;

const char *sw_space_check(const sw_space *space);

/* The word of records without slots: of the two sentinels, of large objects, of bins without a span.
 * It has nothing to allocate, and every free that reads it takes the slow path. Never written. */
extern sw_word sw_sentinel_word;

/* The live space of the process, made at first use. NULL when the system refuses even the smallest. */
sw_space *sw_space_live(void);
extern sw_space sw_live_space;

/* A dry space. NULL: no memory. */
sw_space *sw_space_dry_create(void);
void sw_space_dry_destroy(sw_space *space);

typedef enum sw_window_answer {
    SW_WINDOW_TAKEN,
    SW_WINDOW_NO_ADDRESSES, /* a shorter one may be had */
    SW_WINDOW_NO_MEMORY,    /* the system refuses its first bytes, or its piece of the page map */
} sw_window_answer;

/* Takes a window of at least `bytes`, whose first `ready_bytes` are accessible. When it is refused, no
 * address is mapped that was not mapped before. */
sw_window_answer sw_space_take_window(sw_space *space, uint64_t bytes, uint64_t ready_bytes,
                                      sw_window *out);
/* Gives a window back: purges it, takes the access away and clears its page-map entries. */
void sw_space_return_window(sw_space *space, const sw_window *window);

/* The first id of SW_SPAN_BATCH fresh records; 0 when exhausted. */
uint32_t sw_space_take_spans(sw_space *space);
void sw_space_return_spans(sw_space *space, uint32_t first);

/* The page-map entry of an address; NULL outside every reservation. Slow path. */
const uint32_t *sw_space_entry(const sw_space *space, uintptr_t address);

/* The span id at an address; SW_SPAN_NONE outside of every reservation. Who holds a live object has
 * got it in order, and sees its span's record as it is. Who does not, because an object is freed twice
 * at once, sees the record at least as it was when the id was written: acquire here, release in
 * sw_pages_map. Fast paths need no acquire, for the record's address depends on the id. */
static inline uint32_t sw_space_id_of(const sw_space *space, uintptr_t address) {
    const uint32_t *entry = sw_space_entry(space, address);
    return entry == NULL ? SW_SPAN_NONE : __atomic_load_n(entry, __ATOMIC_ACQUIRE);
}

/* Writes the id into the page map for a span's bytes. Whoever calls this has the span to itself. */
void sw_space_map(const sw_space *space, uintptr_t base, uint64_t bytes, uint32_t id);

static sw_always_inline sw_span *sw_space_span(const sw_space *space, uint32_t id) {
    return &space->view.spans[id];
}
static sw_always_inline uint32_t sw_space_span_id(const sw_space *space, const sw_span *span) {
    return (uint32_t)(span - space->view.spans);
}
static sw_always_inline sw_span_cold *sw_space_cold(const sw_space *space, const sw_span *span) {
    return &space->cold[sw_space_span_id(space, span)];
}

/* For fork handlers: the lock of the live space, and the one under which it is made. In the child they
 * are set free, since the threads that may hold them do not exist there. */
void sw_space_live_lock(void);
void sw_space_live_unlock(void);
void sw_space_live_reset(void);

#endif
