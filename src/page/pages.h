/* SPDX-License-Identifier: Apache-2.0 */
/* The page heap of one heap: runs of pages out of windows, first fit by logical address.
 *
 * Pages have logical numbers, windows one after the other with a gap of 64 between them, so that no
 * run crosses a window. Placement depends on these numbers only: equal in every process and in a
 * dry heap. Four bits a page:
 *
 *   free   no span has it                 (in runs)
 *   held   was handed out, and not given back to the system since: counts in held_bytes
 *   dirty  may hold old bytes: whoever takes it must clear them (needzero)
 *   idle   was free and held at the last decay tick: if it still is, it goes back at the next one
 *
 * held_pages == popcount(held);  free_held_pages == popcount(free & held);  not free => held.
 * Pages that were only made accessible ahead of use are not held: they cost no memory.
 * The heap's lock covers everything here.
 * Callers: heap, which takes pages for spans and large objects; watch, which reads.
 */
#ifndef SW_PAGE_PAGES_H
#define SW_PAGE_PAGES_H

#include "page/runs.h"
#include "page/space.h"
#include "page/touch_map.h"

enum {
    SW_WINDOWS_MAX = 64,
    SW_WINDOW_FIRST_BYTES = 64 << 20,
    SW_PAGE_GAP = 64,
    SW_TAKE_OUT_BYTES = 1 << 20, /* see sw_pages_take_out_highest */
    SW_TAKE_OUT_RUN_PAGES = 16,
    SW_HELD_LOOK = 4096,  /* see sw_pages_find_held */
    SW_HELD_RUN_MAX = 16, /* see sw_pages_alloc */
    SW_PURGE_RUNS = 32,   /* runs that are given back between two holds of the heap's lock */
};

/* --- giving back without the lock ----------------------------------------------------------------
 * The system takes a while to take pages back, so most runs are *taken out* under the heap's lock and
 * given back after it was released. A run that was taken out is not free, not held and no span's; only
 * whoever took it out gives it back, under the purge lock, which lies inside the heap's lock.
 *
 *   NONE  --take out-->  TAKEN  --begin-->  RUNNING  --finish-->  NONE
 *         purge lock taken         heap's lock       heap's lock taken,
 *                                  released          the runs are free
 *
 * TAKEN is seen by nobody but who holds the heap's lock. Who needs the runs while they are RUNNING
 * finishes them itself: it waits for the purge lock, under the heap's. */
typedef enum sw_purge_state { SW_PURGE_NONE, SW_PURGE_TAKEN, SW_PURGE_RUNNING } sw_purge_state;

/* The runs of pages that are free and held within one word of the bitmaps, as a sw_run_summary has them.
 *   known == 0, or the lengths are those of (runs.free & held) in that word */
typedef struct sw_held_word {
    uint8_t start, max, end; /* pages */
    uint8_t known;
} sw_held_word;

/* A run that was taken out. */
typedef struct sw_purge_run {
    uint32_t page, pages;
    uint32_t held;    /* of its pages, so many were held */
    uint32_t refused; /* 1: the system did not take it back. Under the purge lock */
} sw_purge_run;

/* Further rules of the fields, which sw_pages_check looks at:
 *   free_held_pages <= held_pages <= frontier_pages <= page_end <= capacity <= 64 * runs.leaves
 *   window_count <= SW_WINDOWS_MAX;  (capacity == 0) == (held == NULL)
 *   unit is a power of two;  take_out_pages << page_shift == SW_TAKE_OUT_BYTES
 *   (purge_state == SW_PURGE_NONE) == (purge_count == 0);  purge_count <= SW_PURGE_RUNS */
typedef struct sw_pages {
    sw_space *space;
    sw_meta *meta;
    sw_runs runs;
    uint64_t *held;
    uint64_t *dirty;
    uint64_t *idle;
    sw_held_word *held_words; /* one for each word of the bitmaps: held.c */
    uint32_t page_shift;
    uint32_t unit; /* pages that the system makes accessible and takes back together: 1, or
                        * as many as fit into one of its own pages (16 or 64 KiB) */
    uint32_t take_out_pages; /* SW_TAKE_OUT_BYTES in pages */
    uint32_t capacity;       /* pages that held, dirty and idle have bits for */
    uint32_t page_end;       /* logical number after the last window and its gap */
    uint32_t window_count;
    sw_window windows[SW_WINDOWS_MAX];
    uint64_t held_pages; /* atomic: see sw_pages_held_bytes */
    uint64_t free_held_pages;
    uint64_t frontier_pages; /* atomic: sum of the windows' frontiers */
    uint64_t fixed_bytes;    /* atomic: metadata that is in neither meta nor the page map */
    uint64_t limit_bytes;    /* UINT64_MAX: none */
    uint64_t returned_bytes; /* over the heap's life */
    uint64_t retry_bytes;    /* the OS refused to take back; summed over attempts */
    uint64_t decay_ns;
    uint64_t tick_ns;         /* atomic: time of the last decay tick */
    uint64_t peak_held_bytes; /* atomic, as of the last page operation: sw_pages_peak_held_bytes */
    sw_touch_map touch;       /* off unless the heap was made so */
    bool huge;                /* ask for transparent huge pages */
    bool purge_left;          /* some thread takes out, by and by, what is free now */
    bool purge_idle_only;     /* ... as far as it is idle */
    sw_purge_state purge_state;
    uint32_t purge_count;  /* runs that were taken out */
    uint32_t purge_next;   /* where the search for those that are left goes on */
    uint64_t purge_number; /* of the runs that are taken out now */
    uint64_t purges;       /* atomic: calls by which the system was asked to take pages back */
    uint64_t commits;      /* atomic: calls by which frontiers moved up */
    sw_os_lock purge_lock;
    sw_purge_run purging[SW_PURGE_RUNS];
} sw_pages;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_pages_check(const sw_pages *pages);

/* The logical address of a page. */
static inline uint64_t sw_page_start(const sw_pages *pages, uint32_t page) {
    return (uint64_t)page << pages->page_shift;
}

void sw_pages_init(sw_pages *pages, sw_space *space, sw_meta *meta, uint32_t page_shift);
/* Gives the windows back to the space. */
void sw_pages_destroy(sw_pages *pages);

/* The lowest run of n pages that are free and held; SW_PAGE_NONE: there is none in the SW_HELD_LOOK pages
 * from the lowest run of n free pages on. */
uint32_t sw_pages_find_held(sw_pages *pages, uint32_t n);
/* n >= 1 pages whose first address is a multiple of align bytes (a power of two): the lowest run that
 * fits, or, where some of its pages are not held and n <= SW_HELD_RUN_MAX, the run that
 * sw_pages_find_held finds.
 * *needzero: some page may hold old bytes. SW_NOMEM or SW_LIMIT leaves everything as it was. */
sw_status sw_pages_alloc(sw_pages *pages, uint32_t n, uint64_t align, uint32_t *page,
                         bool *needzero);
/* The same, but only of pages that are held: then the heap's memory does not grow. False if
 * sw_pages_find_held finds none. */
bool sw_pages_alloc_held(sw_pages *pages, uint32_t n, uint32_t *page, bool *needzero);
/* Adds the `more` pages behind a run of n pages that is in use. False when they are not free, or can
 * not be made accessible; nothing has changed then. */
bool sw_pages_extend(sw_pages *pages, uint32_t page, uint32_t n, uint32_t more, bool *needzero);
void sw_pages_free(sw_pages *pages, uint32_t page, uint32_t n);

static inline bool sw_pages_decay_due(const sw_pages *pages, uint64_t now_ns) {
    uint64_t tick_ns = __atomic_load_n(&pages->tick_ns, __ATOMIC_RELAXED);
    return pages->decay_ns != SW_DECAY_NEVER && now_ns >= tick_ns &&
           now_ns - tick_ns >= pages->decay_ns;
}
/* Decay: pages that have been free since the last tick are taken out, and so are, by and by, those
 * that did not fit. Does nothing when no tick is due. */
void sw_pages_decay(sw_pages *pages, uint64_t now_ns);
/* Every free page is taken out, as far as they fit; the others are by and by. */
void sw_pages_take_out_all(sw_pages *pages);
/* Every free page goes back at once, under the lock; returns bytes. */
uint64_t sw_pages_trim(sw_pages *pages);

/* --- held.c ---------------------------------------------------------------------------------- */

/* What sw_pages_find_held does, where `page` is the start of the lowest run of n free pages. Looks at no
 * more than SW_HELD_LOOK / 64 words, and counts anew the runs of those that have changed. */
uint32_t sw_pages_held_from(sw_pages *pages, uint32_t page, uint32_t n);
/* Whoever changes which of the n pages from `page` are free and held says so. */
static inline void sw_pages_forget_held(sw_pages *pages, uint32_t page, uint32_t n) {
    sw_held_word *word = &pages->held_words[page / 64],
                 *last = &pages->held_words[(page + n - 1) / 64];
    do word->known = 0;
    while (word++ != last);
}
/* Whether what is known of each word agrees with the bitmaps: looks at every word. */
bool sw_pages_held_words_add_up(const sw_pages *pages);

/* --- purge.c --------------------------------------------------------------------------------- */

/* Gives a run of free pages back at once; returns the bytes of those that were held. 0: there were none,
 * or the system refuses. */
uint64_t sw_pages_purge(sw_pages *pages, uint32_t page, uint32_t n);
/* Takes a run of free pages out; gives it back at once if there is no room. */
void sw_pages_take_out(sw_pages *pages, uint32_t page, uint32_t n);

/* Whether the caller, who holds the heap's lock, has taken runs out. Then it calls begin, which
 * returns their number, releases the lock, calls run, takes the lock again and calls end with the number.
 * After that there may be more, which end has taken out. (end is in give_back.c.) */
static inline bool sw_pages_has_taken_out(const sw_pages *pages) {
    return sw_unlikely(pages->purge_state == SW_PURGE_TAKEN);
}
uint64_t sw_pages_purge_begin(sw_pages *pages);
void sw_pages_purge_run(sw_pages *pages);
void sw_pages_purge_end(sw_pages *pages, uint64_t number);
/* For whoever holds the heap's lock and needs them: the runs that were taken out are free again. */
void sw_pages_purge_finish(sw_pages *pages);
/* Before a fork: the same, and what is left stays where it is until the next tick. */
void sw_pages_purge_stop(sw_pages *pages);

/* For a request that takes n pages which are not held yet, SW_TAKE_OUT_BYTES or more, while the heap
 * holds free pages that are too short for it. Takes out as many of those, the highest first, out of
 * runs of at least SW_TAKE_OUT_RUN_PAGES pages. Otherwise large objects of many sizes would each leave a
 * hole of resident memory. */
void sw_pages_take_out_highest(sw_pages *pages, uint32_t n);

/* After the system has refused memory: gives back the free pages at the end of each window's accessible
 * part and takes the access away, since a process may be charged for all that it may write to
 * (ulimit -d), whether it has done so or not. Returns the bytes; 0 means that another attempt would be
 * refused as well. */
uint64_t sw_pages_uncommit_ends(sw_pages *pages);

/* --- windows.c ------------------------------------------------------------------------------- */

/* Makes room for a run of n pages, where the caller found none: moves the frontier of a window, or adds
 * a window that begins at a multiple of `align`. False: refused, nothing has changed. */
bool sw_pages_grow(sw_pages *pages, uint32_t n, uint64_t align);
/* Moves a window's frontier up by at least n pages. False: refused. */
bool sw_pages_advance(sw_pages *pages, sw_window *window, uint32_t n);
/* Free pages at the end of the window's accessible part. */
uint32_t sw_pages_free_before_frontier(const sw_pages *pages, const sw_window *window);
void sw_pages_drop_windows(sw_pages *pages);

uintptr_t sw_pages_address(const sw_pages *pages, uint32_t page);
/* The logical address of one in a window: bytes from logical page 0 on. */
uint64_t sw_pages_locate(const sw_pages *pages, uintptr_t address);
/* The program writes to these bytes of an object. Only where pages->touch is on. */
void sw_pages_touch(sw_pages *pages, uintptr_t address, uint64_t bytes);
/* Writes the span id into the page map for n pages. */
void sw_pages_map(sw_pages *pages, uint32_t page, uint32_t n, uint32_t span_id);
/* The page-map entries of a window's accessible pages. */
const void *sw_pages_window_map(const sw_pages *pages, const sw_window *window, uint64_t *bytes);
const sw_window *sw_pages_window_of(const sw_pages *pages, uint32_t page);

/* Bytes of metadata, of the pages that are held, and of both. They may be read without the lock, because the
 * numbers are written atomically. While another thread changes the heap, a sum may be of old and new
 * numbers. */
static inline uint64_t sw_pages_metadata_bytes(const sw_pages *pages) {
    uint64_t frontier = __atomic_load_n(&pages->frontier_pages, __ATOMIC_RELAXED);
    uint64_t frames = frontier << (pages->page_shift - SW_FRAME_SHIFT);
    uint64_t pool = __atomic_load_n(&pages->meta->held_bytes, __ATOMIC_RELAXED);
    uint64_t fixed = __atomic_load_n(&pages->fixed_bytes, __ATOMIC_RELAXED);
    return fixed + pool + frames * sizeof(uint32_t);
}
static inline uint64_t sw_pages_object_bytes(const sw_pages *pages) {
    return __atomic_load_n(&pages->held_pages, __ATOMIC_RELAXED) << pages->page_shift;
}
static inline uint64_t sw_pages_held_bytes(const sw_pages *pages) {
    return sw_pages_object_bytes(pages) + sw_pages_metadata_bytes(pages);
}

/* The most that was held at once. It misses only metadata that was allocated and freed between two page
 * operations. */
static inline uint64_t sw_pages_peak_held_bytes(const sw_pages *pages) {
    uint64_t now = sw_pages_held_bytes(pages);
    uint64_t before = __atomic_load_n(&pages->peak_held_bytes, __ATOMIC_RELAXED);
    return now > before ? now : before;
}

/* Runs of free held pages: their number and the longest, in pages. */
void sw_pages_holes(const sw_pages *pages, uint64_t *runs, uint64_t *longest);

#endif
