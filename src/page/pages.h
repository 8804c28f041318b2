/* SPDX-License-Identifier: Apache-2.0 */
/* The page heap of a heap allocates runs of pages from windows, first fit by logical address.
 *
 * Pages have logical numbers. Between the numbers of one window and the next is a gap of 64, so
 * that no run crosses a window. Placement depends on these numbers only, so it is the same in every
 * process and in a dry heap. Each page has four bits:
 *
 *   free   it is accessible and belongs to no span     (in runs)
 *   held   it was allocated and not purged since; it counts in held_bytes
 *   dirty  it may hold old bytes: code that takes it must clear them (needzero)
 *   idle   it was free and held at the last decay tick; it is purged at the next, if it still is
 *
 * held_pages == popcount(held); free_held_pages == popcount(free & held) Every page of a span is
 * held. Pages that were only made accessible ahead of their use are not held: they take no memory.
 * The heap's lock protects everything here. Callers: heap, which takes pages for spans and large
 * objects; inspect, which reads.
 */
#ifndef SW_PAGE_PAGES_H
#define SW_PAGE_PAGES_H

#include "page/runs.h"
#include "page/space.h"

enum {
    SW_WINDOWS_MAX = 64,
    SW_WINDOW_FIRST_BYTES = 64 << 20,
    SW_PAGE_GAP = 64,
    SW_TAKE_OUT_BYTES = 1 << 20, /* see sw_pages_bound_free */
    SW_TAKE_OUT_RUN_PAGES = 16,
    SW_FREE_SHARE = 4,
    SW_HELD_LOOK = 4096,  /* see sw_pages_find_held */
    SW_HELD_RUN_MAX = 16, /* see sw_pages_alloc */
    SW_PURGE_RUNS = 32,   /* maximum of runs taken out at once */
};

/* --- giving back without the lock ----------------------------------------------------------------
 * A system call that gives pages back takes long, so most runs are *taken out* under the heap's
 * lock and given back after it was released. A run that was taken out is not free, is not held and
 * belongs to no span. The thread that took it out gives it back, under the purge lock, which is
 * taken inside the heap's lock.
 *
 *   NONE  --take out-->  TAKEN  --begin-->  RUNNING  --finish-->  NONE
 *         purge lock taken         heap's lock       heap's lock taken,
 *                                  released          the runs are free
 *
 * Only the holder of the heap's lock ever sees TAKEN. A thread that needs the runs while they are
 * RUNNING calls sw_pages_purge_finish, which waits for the purge lock under the heap's. */
typedef enum sw_purge_state { SW_PURGE_NONE, SW_PURGE_TAKEN, SW_PURGE_RUNNING } sw_purge_state;

/* Summary of the runs of free held pages in one word of the bitmaps, as in sw_run_summary.
 *   known == 0, or the lengths are those of (runs.free & held) in that word */
typedef struct sw_held_word {
    uint8_t start, max, end; /* pages */
    uint8_t known;
} sw_held_word;

/* A run that was taken out. */
typedef struct sw_purge_run {
    uint32_t page, pages;
    uint32_t held;    /* number of its pages that were held */
    uint32_t refused; /* 1: the system did not take it back; written under the purge lock */
} sw_purge_run;

/* sw_pages_check checks these rules of the fields:
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
    sw_held_word *held_words; /* one per word of the bitmaps; see runs.c */
    uint32_t page_shift;
    uint32_t unit; /* pages that are committed and purged together: 1, or the number in one page of
                    * the system (of 16 or 64 KiB) */
    uint32_t take_out_pages; /* SW_TAKE_OUT_BYTES in pages */
    uint32_t capacity;       /* number of bits in held, dirty and idle */
    uint32_t page_end;       /* logical number after the last window and its gap */
    uint32_t window_count;
    sw_window windows[SW_WINDOWS_MAX];
    uint64_t held_pages; /* atomic: see sw_pages_held_bytes */
    uint64_t free_held_pages;
    uint64_t frontier_pages;   /* atomic: sum of the windows' frontiers */
    uint64_t fixed_bytes;      /* atomic: metadata that is in neither meta nor the page map */
    uint64_t large_peak_pages; /* most pages in use at a request of sw_pages_bound_free */
    uint64_t limit_bytes;      /* UINT64_MAX: no limit */
    uint64_t returned_bytes;   /* purged over the heap's life */
    uint64_t retry_bytes;      /* that the system refused to take back, summed over attempts */
    uint64_t decay_ns;
    uint64_t tick_ns;         /* atomic: time of the last decay tick */
    uint64_t peak_held_bytes; /* atomic, as of the last page operation: sw_pages_peak_held_bytes */
    sw_touch_map touch;       /* off unless the heap was created with touch_map */
    bool huge;                /* request transparent huge pages from the system */
    bool purge_left;          /* more free pages are to be taken out, in later turns */
    bool purge_idle_only;     /* only if they are idle */
    sw_purge_state purge_state;
    uint32_t purge_count;  /* runs that are taken out now */
    uint32_t purge_next;   /* the page at which the search for more runs continues */
    uint64_t purge_number; /* number of the current purge turn */
    uint64_t purges;       /* atomic: system calls that purge pages */
    uint64_t commits;      /* atomic: system calls that commit pages */
    sw_os_lock purge_lock;
    sw_purge_run purging[SW_PURGE_RUNS];
} sw_pages;

const char *sw_pages_check(const sw_pages *pages);

/* Returns the logical address of a page. */
static inline uint64_t sw_page_start(const sw_pages *pages, uint32_t page) {
    return (uint64_t)page << pages->page_shift;
}

void sw_pages_init(sw_pages *pages, sw_space *space, sw_meta *meta, uint32_t page_shift);
/* Returns the windows to the space. */
void sw_pages_destroy(sw_pages *pages);

/* Returns the lowest run of n pages that are free and held. The search covers the SW_HELD_LOOK
 * pages from the lowest run of n free pages on; SW_PAGE_NONE: there is none. */
uint32_t sw_pages_find_held(sw_pages *pages, uint32_t n);
/* Allocates n >= 1 pages whose first address is a multiple of align bytes (a power of two): the
 * lowest run that fits. If some of its pages are not held and n <= SW_HELD_RUN_MAX, the run that
 * sw_pages_find_held finds, if any, is preferred. *needzero: some page may hold old bytes.
 * SW_NOMEM, SW_LIMIT: nothing was allocated. */
sw_status sw_pages_alloc(sw_pages *pages, uint32_t n, uint64_t align, uint32_t *page,
                         bool *needzero);
/* Allocates n pages that are held already, so that the heap does not grow. False:
 * sw_pages_find_held finds none, or the limit forbids it. */
bool sw_pages_alloc_held(sw_pages *pages, uint32_t n, uint32_t *page, bool *needzero);
/* Extends a run of n pages in use by the `more` pages after it. False: they are not free, cannot be
 * committed, or exceed the limit; nothing changes. */
bool sw_pages_extend(sw_pages *pages, uint32_t page, uint32_t n, uint32_t more, bool *needzero);
void sw_pages_free(sw_pages *pages, uint32_t page, uint32_t n);

static inline bool sw_pages_decay_due(const sw_pages *pages, uint64_t now_ns) {
    uint64_t tick_ns = __atomic_load_n(&pages->tick_ns, __ATOMIC_RELAXED);
    return pages->decay_ns != SW_DECAY_NEVER && now_ns >= tick_ns &&
           now_ns - tick_ns >= pages->decay_ns;
}
/* A decay tick: takes out the pages that have been free and held since the last tick. Those that do
 * not fit into `purging` are taken out in later turns (sw_pages_purge_end). It does nothing if no
 * tick is due, or while the runs of an earlier one are still being purged. */
void sw_pages_decay(sw_pages *pages, uint64_t now_ns);
/* Takes out every free held page. Pages that do not fit into `purging` are taken out in later
 * turns, and so are all of them if the runs of an earlier call are still being purged. */
void sw_pages_take_out_all(sw_pages *pages);
/* Purges every free held page at once, under the lock. Returns the bytes. */
uint64_t sw_pages_trim(sw_pages *pages);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* Does the search of sw_pages_find_held; `page` is the start of the lowest run of n free pages. It
 * examines at most SW_HELD_LOOK / 64 words, and recomputes the summaries of those that have
 * changed. */
uint32_t sw_pages_held_from(sw_pages *pages, uint32_t page, uint32_t n);
/* Invalidates the summaries of n pages from `page`, after their free or held bits changed. */
static inline void sw_pages_forget_held(sw_pages *pages, uint32_t page, uint32_t n) {
    sw_held_word *word = &pages->held_words[page / 64],
                 *last = &pages->held_words[(page + n - 1) / 64];
    do word->known = 0;
    while (word++ != last);
}
/* Returns whether every known summary agrees with the bitmaps. O(words). */
bool sw_pages_held_words_add_up(const sw_pages *pages);

/* --- purge.c --------------------------------------------------------------------------------- */

/* Returns whether the caller, which holds the heap's lock, has taken runs out. If so, the caller
 * calls sw_pages_purge_begin, which returns the number of the turn, releases the lock, calls
 * sw_pages_purge_run, takes the lock again and calls sw_pages_purge_end with the number. That call
 * may take out more runs; then the caller starts again. (sw_pages_purge_end is in purge.c.) */
static inline bool sw_pages_has_taken_out(const sw_pages *pages) {
    return sw_unlikely(pages->purge_state == SW_PURGE_TAKEN);
}
uint64_t sw_pages_purge_begin(sw_pages *pages);
void sw_pages_purge_run(sw_pages *pages);
void sw_pages_purge_end(sw_pages *pages, uint64_t number);
/* Waits until the runs that were taken out have been purged; they are free again afterwards. The
 * caller holds the heap's lock. */
void sw_pages_purge_finish(sw_pages *pages);
/* As sw_pages_purge_finish, before a fork. No runs are taken out until the next tick. */
void sw_pages_purge_stop(sw_pages *pages);

/* Called when a request needs `fresh` pages that are not held yet, SW_TAKE_OUT_BYTES or more,
 * because the runs of free held pages are too short. Takes out free held pages, at most `fresh`,
 * the highest first, from runs of at least SW_TAKE_OUT_RUN_PAGES pages. Without this, large objects
 * of many sizes would each leave a hole of resident memory until the next tick. If more pages are
 * in use than at any such request before, `fresh` included, the heap grows, and none need stay.
 * Otherwise large blocks are being replaced, and free pages up to 1 / SW_FREE_SHARE of those in use
 * stay. */
void sw_pages_bound_free(sw_pages *pages, uint32_t fresh);

/* Called after the system has refused memory. It purges the free pages at the end of each window's
 * accessible part and makes them inaccessible, because limits may count every writable page of a
 * process (ulimit -d). Returns their bytes; 0: the system would refuse another request too. */
uint64_t sw_pages_uncommit_ends(sw_pages *pages);

/* --- windows.c ------------------------------------------------------------------------------- */

/* Makes room for a run of n pages after the caller found none: moves the frontier of a window up,
 * or adds a window that begins at a multiple of `align`. False: it failed, and no frontier has
 * moved. */
bool sw_pages_grow(sw_pages *pages, uint32_t n, uint64_t align);
/* Moves a window's frontier up by at least n pages. False: the system refused. */
bool sw_pages_advance(sw_pages *pages, sw_window *window, uint32_t n);
/* Returns the free pages at the end of the window's accessible part. */
uint32_t sw_pages_free_before_frontier(const sw_pages *pages, const sw_window *window);
void sw_pages_drop_windows(sw_pages *pages);

uintptr_t sw_pages_address(const sw_pages *pages, uint32_t page);
/* Returns the logical address of an address in a window: its offset from logical page 0. */
uint64_t sw_pages_locate(const sw_pages *pages, uintptr_t address);
/* Records that the program writes to these bytes of an object. pages->touch is on. */
void sw_pages_touch(sw_pages *pages, uintptr_t address, uint64_t bytes);
/* Writes the span id into the page map for n pages. */
void sw_pages_map(sw_pages *pages, uint32_t page, uint32_t n, uint32_t span_id);
/* Returns the page-map entries of a window's accessible pages. */
const void *sw_pages_window_map(const sw_pages *pages, const sw_window *window, uint64_t *bytes);
const sw_window *sw_pages_window_of(const sw_pages *pages, uint32_t page);

/* Return the bytes of metadata, the bytes of the held pages, and their sum. Any thread may call
 * without the lock, because each number is written atomically. While another thread changes the
 * heap, a sum may mix numbers from before and after the change. */
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

/* Returns the maximum of bytes held so far, except metadata that was allocated and freed between
 * two page operations. */
static inline uint64_t sw_pages_peak_held_bytes(const sw_pages *pages) {
    uint64_t now = sw_pages_held_bytes(pages);
    uint64_t before = __atomic_load_n(&pages->peak_held_bytes, __ATOMIC_RELAXED);
    return now > before ? now : before;
}

/* Counts the runs of free held pages: their number, and the length of the longest in pages. */
void sw_pages_holes(const sw_pages *pages, uint64_t *runs, uint64_t *longest);

#endif
