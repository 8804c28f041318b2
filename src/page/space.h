/* SPDX-License-Identifier: Apache-2.0 */
/* A space is a range of addresses with a page map and span records. One live space serves all heaps
 * of the process, so one load of its page map finds the span of any pointer. Each dry heap has its
 * own space, whose addresses are never mapped.
 *
 *   address:   base ........ windows handed to heaps, each a power of two, naturally aligned ...
 *   page map:  a u32 per frame (4 KiB): span id;  0: never an object's; 1: released
 *   spans:     sw_span[id], 64 B each; cold: sw_span_cold[id] next to it
 *
 * All of it is in one place (os.h); only the parts in use are mapped: the accessible part of each
 * window, the page map up to the highest window ever used, and the span records ever used. So a
 * limit that the program sets later counts only these. `base`, `page_map` and `spans` never change,
 * while `frames` grows with the page map. A cache has a copy of `frames` that may be out of date;
 * then a free takes the slow path, which updates the copy.
 *
 *   cache's frames <= view.frames = frames whose entries are mapped <= range_frames
 *   every window of the range ends at or below view.frames
 *
 * If the range is used up, or part of it is occupied by another library, windows have their own
 * reservations (extras). Only sw_space_entry, on the slow path, finds pointers into those. The
 * space's lock protects windows and span ids; heaps take it while they hold their own lock.
 * Callers: the page heap (windows), heap (span records, look-up of pointers), inspect.
 */
#ifndef SW_PAGE_SPACE_H
#define SW_PAGE_SPACE_H

#include "os/os.h"
#include "page/runs.h"
#include "spanwise/fast_abi.h"

enum {
    SW_SPAN_NONE = 0,     /* page-map id of frames that never had an object */
    SW_SPAN_RELEASED = 1, /* page-map id of frames whose objects were released */
    SW_SPAN_FIRST = 2,
    SW_SPAN_BATCH = 64, /* heaps take span records in batches of this many */
    SW_SPACE_EXTRAS = 256,
    SW_SPACE_FREE_WINDOWS = 1 << 14, /* 1 TiB in windows of 64 MiB; further ones are not reused */
    SW_WINDOW_LOG2_MAX = 40,
};

/* The part of a span's record that only slow paths read. The holder of the heap's lock writes heap,
 * page and pages; the owner of the list that the span is in writes the links and `looked`.
 *   next == 0 or next != prev;  page + pages does not wrap round */
typedef struct sw_span_cold {
    sw_heap *heap;
    uint32_t page; /* first logical page in its heap */
    uint32_t pages;
    union {
        void *slack;        /* tracked span of slots: slot bytes - requested, u16 or u32 per slot */
        uint64_t requested; /* large object: the requested size in bytes */
    };
    /* Bit k of remote_words[h]: word 64 * h + k of the span has frees that the owner has not
     * drained. Half h of the span is on its owner's remote stack while remote_words[h] is not 0. In
     * a span of one word it is always 0, and the span is on the stack while the word has remote
     * bits. Atomic. */
    uint64_t remote_words[2];
    uint32_t remote_next[2]; /* links of the remote stack */
    uint32_t batch_next;     /* in the first record of a batch: the next batch of the same heap */
    uint32_t next, prev;     /* links of the span's list; 0 ends it */
    uint32_t looked;         /* state of the last examination (heap/central.c); 0: none yet */
} sw_span_cold;

_Static_assert(sizeof(sw_span_cold) == 64, "a cold record is one cache line");

const char *sw_span_cold_check(const sw_span_cold *cold);

/* A piece of address space that belongs to one heap. The heap's lock protects every field.
 *   frontier <= pages <= frames;  base is a multiple of the frame;  map != NULL */
typedef struct sw_window {
    uintptr_t base;
    uint32_t *map; /* page-map entries of its frames */
    uint64_t frames;
    uint32_t first_page; /* logical number of its first page (set by the heap) */
    uint32_t pages;
    uint32_t frontier; /* pages committed so far, from the start */
    bool blocked;      /* another mapping is above the frontier, which cannot move up */
} sw_window;

const char *sw_window_check(const sw_window *window);

/* Maps another layer's data for `count` span records from `first` on. False: refused, and nothing
 * has changed. */
typedef bool sw_space_records_fn(uint32_t first, uint32_t count);

/* The space's lock protects every field except those marked atomic and `view`, which is constant
 * except for view.frames.
 *   view.frames <= range_frames;  SW_SPAN_FIRST <= span_next <= span_committed <= span_limit
 *   (span_next - SW_SPAN_FIRST) % SW_SPAN_BATCH == 0;  free_batches < span_next
 *   free_window_count <= SW_SPACE_FREE_WINDOWS;  extra_count <= SW_SPACE_EXTRAS */
typedef struct sw_space {
    sw_space_view view;    /* what fast paths read of the space; frames is atomic */
    uint64_t range_frames; /* frames of the whole range; constant */
    sw_span_cold *cold;
    sw_os_lock lock;
    bool dry;
    uint32_t span_limit;     /* records that fit into the place; constant */
    uint32_t span_committed; /* mapped records */
    uint32_t span_next;      /* atomic: the first id never allocated */
    uint32_t free_batches;   /* ids of returned batches, linked through sw_span_cold.next */
    sw_window free_windows[SW_SPACE_FREE_WINDOWS];
    uint32_t free_window_count;
    sw_window extras[SW_SPACE_EXTRAS]; /* windows outside the range */
    uint32_t extra_count;              /* atomic */
    sw_space_records_fn *records_fn;   /* NULL: no other layer has data for span records */
    /* For a dry space whose heap records writes; the heap's lock protects both. map_touch has the
     * written pages of the page map, by offset in view.page_map. map_touched_bytes counts the bytes
     * of page-map entries of accessible pages in such pages. */
    sw_touch_map map_touch;
    uint64_t map_touched_bytes;
} sw_space;

/* The word of records without slots: the two sentinel records, large objects, and bins without a
 * span. It has no free bit to allocate, and every free that reads it takes the slow path. It is
 * never written. */
extern sw_word sw_sentinel_word;

/* Returns the live space of the process, created by the first call. NULL: the system refused even
 * the smallest range. */
sw_space *sw_space_live(void);
extern sw_space sw_live_space;

/* Creates a dry space. NULL: no memory. */
sw_space *sw_space_dry_create(void);
void sw_space_dry_destroy(sw_space *space);

typedef enum sw_window_answer {
    SW_WINDOW_TAKEN,
    SW_WINDOW_NO_ADDRESSES, /* no addresses for this length; a shorter window may be granted */
    SW_WINDOW_NO_MEMORY,    /* the system refused its first bytes, or its piece of the page map */
} sw_window_answer;

/* Takes a window of at least `bytes`, whose first `ready_bytes` are accessible. After a refusal
 * nothing more is mapped than before. */
sw_window_answer sw_space_take_window(sw_space *space, uint64_t bytes, uint64_t ready_bytes,
                                      sw_window *out);
/* Returns a window, whose first `accessible` bytes are accessible: makes them inaccessible and
 * clears its page-map entries. */
void sw_space_return_window(sw_space *space, const sw_window *window, uint64_t accessible);

/* Makes bytes of a window of a live space accessible. They were never accessible, or
 * sw_space_uncommit was called for them. */
sw_os_mapped sw_space_commit(const sw_space *space, uintptr_t from, uint64_t bytes);
/* Makes purged pages inaccessible. False: refused, and nothing has changed. */
bool sw_space_uncommit(const sw_space *space, uintptr_t from, uint64_t bytes);

/* Returns the view of the space, with the current number of frames. */
static inline sw_space_view sw_space_view_now(const sw_space *space) {
    return (sw_space_view){.base = space->view.base,
                           .frames = __atomic_load_n(&space->view.frames, __ATOMIC_ACQUIRE),
                           .page_map = space->view.page_map,
                           .spans = space->view.spans};
}
/* Returns whether objects may be outside the range. */
static inline bool sw_space_has_extras(const sw_space *space) {
    return __atomic_load_n(&space->extra_count, __ATOMIC_ACQUIRE) != 0;
}
/* Calls fn for the mapped records, and later for further ones before they are allocated. Each
 * caller in the process passes the same fn. False: fn refused; it is not called again. */
bool sw_space_follow_records(sw_space *space, sw_space_records_fn *fn);

/* Takes SW_SPAN_BATCH fresh records and returns the first id; 0: no records are left, or no
 * memory. */
uint32_t sw_space_take_spans(sw_space *space);
void sw_space_return_spans(sw_space *space, uint32_t first);

/* Returns the page-map entry of an address; NULL outside the mapped frames and of every extra
 * window. Only slow paths call it. */
const uint32_t *sw_space_entry(const sw_space *space, uintptr_t address);

/* Returns the span id at an address; SW_SPAN_NONE if sw_space_entry is NULL. A thread that has a
 * live object received it from the thread that allocated it, so it sees the current record of its
 * span. If another thread frees the object at the same time, it sees the record at least as it was
 * when the id was written: this load is an acquire, and sw_pages_map releases. Fast paths need no
 * acquire, because the address of the record that they read depends on the id. */
static inline uint32_t sw_space_id_of(const sw_space *space, uintptr_t address) {
    const uint32_t *entry = sw_space_entry(space, address);
    return entry == NULL ? SW_SPAN_NONE : __atomic_load_n(entry, __ATOMIC_ACQUIRE);
}

static sw_always_inline sw_span *sw_space_span(const sw_space *space, uint32_t id) {
    return &space->view.spans[id];
}
static sw_always_inline uint32_t sw_space_span_id(const sw_space *space, const sw_span *span) {
    return (uint32_t)(span - space->view.spans);
}
static sw_always_inline sw_span_cold *sw_space_cold(const sw_space *space, const sw_span *span) {
    return &space->cold[sw_space_span_id(space, span)];
}

/* For fork handlers: take the lock of the live space and the lock of its creation.
 * sw_space_live_reset releases both in the child, in which the threads that held them do not
 * exist. */
void sw_space_live_lock(void);
void sw_space_live_unlock(void);
void sw_space_live_reset(void);

#endif
