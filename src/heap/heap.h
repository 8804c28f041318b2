/* SPDX-License-Identifier: Apache-2.0 */
/* The heap, from the inside.
 *
 * Nouns. A *heap* owns pages (page/), a metadata pool (ds/meta) and span records. A *cache* is one
 * thread's front of it and owns spans: for each span class (class * 2 + noscan) one current span, a
 * list of partial ones and a list of full ones. *Central* lists hold spans that no cache owns.
 *
 * Allocation of a small object
 *   1. class of the size, slot of the span class in the cache           (template.h, alloc.c)
 *   2. a slot that a hint names; else the lowest set bit of the current word; clear it; done
 *      (paths that know the class when compiled look at the word first)
 *   3. word empty: the current span's next word with a bit              (cache.c)
 *   4. none: drain frees of other threads; span full -> full list; a partial span of this cache
 *   5. none: under the heap's lock, a central partial span, else a new one from the page heap
 *   6. no pages: the OS, within the limit; else NULL and ENOMEM
 *
 * Free of a small object, mirrored
 *   1. frame -> page map -> span record; slot by magic division         (free.c)
 *   2. own span, start of a slot, bit clear in both words: set it; done
 *   3. word now wholly free: the span may be given up; span marked: it is fresh or full, and a full
 *      one keeps its place while a hint can bring the slot back (cache.c)
 *   4. other owner: OR into the remote word, announce                   (remote.c, span.h)
 *   5. no owner: under the heap's lock                                  (central.c)
 *   6. anything else: large object, or misuse with its reason           (free.c)
 *
 * Locks, outermost first: registry (thread.c) < heap.lock < space.lock. No lock on steps 1-4 of an
 * allocation, 1-4 of a free.
 *
 * Address map: space > windows of this heap > page runs > spans > slots. No byte of an object is
 * read or written here except to zero it.
 */
#ifndef SW_HEAP_HEAP_H
#define SW_HEAP_HEAP_H

#include "ds/handle.h"
#include "ds/meta.h"
#include "page/pages.h"
#include "size/table.h"
#include "span/span.h"
#include "spanwise/fast.h"

enum {
    SW_HEAPS_MAX = 4096,
    SW_LARGE_WAYS = 2,                    /* freed large objects that a cache keeps of one band */
    SW_LARGE_SHELVES = 9 * SW_LARGE_WAYS, /* bands: a page, 2, 3..4, ... up to 1 MiB of 4 KiB */
};

/* How a heap differs from the plain one. Such heaps take the generic path. */
enum {
    SW_MODE_TRACKED = 1, /* requested sizes are kept */
    SW_MODE_DRY = 2,     /* addresses are numbers */
    SW_MODE_TINY = 4,    /* pointer-free objects below 16 B share blocks */
};

/* One specialised path; see paths.c. */
typedef void *sw_path_fn(sw_cache *cache, size_t size, unsigned flags);

struct sw_heap {
    uint64_t mark;   /* ds/handle.h */
    sw_os_lock lock; /* pages, meta, central, caches, free records */
    uint32_t id;     /* never reused; 1 is the default heap */
    uint32_t index;  /* place in the registry and in each thread's table; reused. SW_HEAPS_MAX once
                      * the heap is destroyed: no thread has a cache there */
    const sw_table *table;
    sw_space *space;
    sw_meta meta;
    sw_pages pages;
    sw_heap_options options;
    uint64_t mode;                 /* SW_MODE_... */
    sw_path_fn *const *tiny_paths; /* NULL: the generic code packs */
    uint32_t large_kept;           /* atomic; 0: no cache keeps a large object, most likely */
    uint32_t span_classes;         /* 2 * table->class_count */
    sw_span_list *central_partial; /* by span class: no owner, some slot free */
    sw_span_list *central_full;    /* by span class: no owner, no slot free */
    uint32_t closing; /* threads that exit and are closing their cache; under the registry's lock */
    sw_cache *caches; /* every cache ever opened, open or closed */
    sw_cache *open_caches;   /* cache_count of them */
    sw_cache *closed_caches; /* others keep no large object and have no hazard */
    sw_cache *closed_handles, *closed_handles_end; /* the other closed ones, the oldest first */
    uint32_t closed_handle_count;
    uint32_t cache_count;
    uint32_t central_idle;   /* 0: no central span is wholly free */
    uint32_t cache_numbers;  /* opened so far, for numbering */
    uint32_t free_records;   /* unused span records, linked by next */
    uint32_t batches;        /* first records of the batches taken from the space */
    uint64_t now_ns;         /* manual clock; under the lock */
    sw_limit_fn *limit_hook; /* both under the lock; NULL: none */
    void *limit_hook_arg;
};

/* Whose a cache is. */
typedef enum sw_cache_holder {
    SW_CACHE_OF_THREAD = 0,
    SW_CACHE_OF_LIBRARY = 1, /* the library's own code opened it: any thread may be in it */
    SW_CACHE_OF_USER = 2,    /* sw_cache_open: any thread may be in it, users have its address */
} sw_cache_holder;

/* What only slow paths read of a cache. The record is never freed while the heap lives, because a
 * freer may still hold a pointer to it; a closed one is reused by the next cache. */
struct sw_cache_cold {
    sw_cache *next;                      /* all caches of the heap */
    sw_cache *list_next, *list_previous; /* open caches, or closed ones */
    uint32_t number;                     /* 1, 2, ... */
    uint32_t closed;                     /* atomic */
    uint32_t remote_head;  /* atomic: stack of halves with announced frees, span id * 2 + half */
    uint32_t tiny_used;    /* bytes used of the tiny block */
    uint32_t hazard_id;    /* atomic: id of sw_cache.hazard, for others; 0: none */
    uint16_t holder;       /* sw_cache_holder */
    uint16_t exhausted;    /* 1: the central lists and the page heap had nothing at the last look */
    uint64_t tick_ns;      /* the decay tick at which idle spans were last given up */
    uintptr_t tiny_block;  /* 0: none */
    sw_span_list *partial; /* by span class */
    sw_span_list *full;
    uint16_t *kept;                     /* by span class: wholly free spans in `partial` */
    uint32_t large_frees;               /* of large objects that it kept */
    uint32_t large_turns;               /* which of two shelves was taken last */
    uint64_t shelves[SW_LARGE_SHELVES]; /* atomic: kinds of large objects, those that it keeps */
};

/* True when the manual clock at `now_ns` asks for sw_heap_set_time: a decay tick is due. */
static inline bool sw_heap_tick_due(const sw_heap *heap, uint64_t now_ns) {
    return sw_pages_tick_due(&heap->pages, now_ns);
}

/* What the caches of the heap know of its space. Where objects share slots no free is a fast one:
 * no address is found. */
static inline sw_space_view sw_heap_view(const sw_heap *heap) {
    sw_space_view view = heap->space->view;
    if ((heap->mode & SW_MODE_TINY) != 0) view.frames = 0;
    return view;
}

/* Smaller sizes need no more than their class, in a plain heap; 0 in others. */
static inline size_t sw_heap_plain_end(const sw_heap *heap) {
    size_t most = heap->table->max_size < SW_SMALL_LIMIT ? heap->table->max_size : SW_SMALL_LIMIT;
    return heap->mode == 0 ? most + 1 : 0;
}

/* Bytes of a slot of a span of slots. */
static sw_always_inline uint32_t sw_slot_bytes(const sw_table *table, const sw_span *span) {
    return table->classes[span->span_class / 2].size;
}

/* After an allocation of `bytes` more failed with SW_LIMIT: asks the hook, if there is one. True:
 * try again. *asked counts a request's calls, which are bounded: a hook may promise what it does not
 * do. No lock is held. */
enum { SW_LIMIT_ASKS_MAX = 1 << 16 };
bool sw_heap_ask_limit(sw_heap *heap, uint64_t bytes, uint32_t *asked);

/* The span that holds page n of a window, NULL for a free page; *step: pages to the next one. */
sw_span *sw_heap_span_at(const sw_heap *heap, const sw_window *window, uint32_t n, uint32_t *step);

/* --- handles -----------------------------------------------------------------------------------
 * Of a cache that has ended, no path finds anything: its slots are empty, no address is in its view,
 * no size is small, no large object is kept. So only the slow ends of the paths look at its mark. A
 * heap that was destroyed has an index at which no thread has a cache. */

static sw_always_inline bool sw_heap_check(const sw_heap *heap, const char *op) {
    return sw_handle_check(heap, offsetof(sw_heap, mark), SW_HANDLE_HEAP, op);
}
static sw_always_inline sw_status sw_heap_status(const sw_heap *heap, const char *op) {
    return sw_handle_status(heap, offsetof(sw_heap, mark), SW_HANDLE_HEAP, op);
}
static sw_always_inline bool sw_cache_check(const sw_cache *cache, const char *op) {
    return sw_handle_check(cache, offsetof(struct sw_cache, mark), SW_HANDLE_CACHE, op);
}
/* Of one that was open once: the slow ends of paths ask this. */
static sw_always_inline bool sw_cache_is_open(const sw_cache *cache) {
    uint64_t mark = __atomic_load_n(&cache->mark, __ATOMIC_RELAXED);
    return sw_likely(mark == SW_HANDLE_LIVE + SW_HANDLE_CACHE);
}
/* Where an allocation ended that found no cache, or one that has ended: reports that. NULL, with
 * errno EINVAL. */
sw_cold void *sw_cache_refuse(const sw_cache *cache);

/* Whether a cache that the caller promised not to be NULL (SW_NONNULL) is NULL after all. Builds of
 * grade 1 do not ask: it is two instructions of each call (docs/decisions/0026-null-caches.md). The
 * compiler believes the promise and would delete the comparison; the empty assembly keeps it. */
static sw_always_inline bool sw_cache_is_null(const sw_cache *cache) {
    if (SW_CHECK < 2) return false;
    __asm__("" : "+r"(cache));
    return cache == NULL;
}

/* --- hints ------------------------------------------------------------------------------------ */

/* In place of a span class: that of the size, which is small, without pointers. */
enum { SW_CLASS_OF_SIZE = 0 };

/* The bin of a class's pointer-free objects. */
static sw_always_inline sw_cache_bin *sw_cache_noscan_bin(sw_cache *cache, size_t cls) {
    sw_cache_bin(*of_class)[2] = (sw_cache_bin(*)[2])cache->bins;
    return &of_class[cls][1];
}
/* Of a noscan class. Scan classes keep none: malloc has no use for them, and every cache would hold
 * twice as many places. */
static sw_always_inline sw_hint *sw_cache_hints(const sw_cache *cache, uint32_t span_class) {
    return &cache->hints[(size_t)(span_class / 2) << SW_HINTS_LOG2];
}
/* Behind the newest hint. */
static sw_always_inline sw_hint *sw_bin_hints_end(const sw_cache_bin *slot) {
    return (sw_hint *)((uintptr_t)slot->hints + slot->hinted);
}

/* Which slot is next is the placement's to say in heaps that do not place as the fast ones do. */
static inline uint32_t sw_heap_hints_max(const sw_heap *heap, uint32_t span_class) {
    bool hinted = span_class % 2 != 0 && heap->options.placement == SW_PLACE_LIFO;
    return hinted && !SW_ABLATE_NO_HINTS ? SW_HINTS_MAX * (uint32_t)sizeof(sw_hint) : 0;
}

/* --- cache.c ---------------------------------------------------------------------------------- */

/* Gives the bin a word with a free bit. False: no memory (the bin is left empty). */
bool sw_cache_refill(sw_cache *cache, uint32_t span_class);
/* Before the first free into a marked span of this cache: see sw_span_set_owner. */
void sw_cache_unmark(sw_cache *cache, sw_span *span);
/* Takes the slot that the newest valid hint names: its address and span, else 0. */
uintptr_t sw_cache_take_hinted(sw_cache *cache, uint32_t span_class, sw_span **span);
/* True when a hint names the slot. */
bool sw_cache_is_hinted(const sw_cache *cache, const sw_span *span, uint32_t slot);
/* sw_cache_emptied (fast.h): a word of the span has become wholly free. */
/* No current span, no hint. */
void sw_cache_reset_bins(sw_cache *cache);
/* Opens or closes without taking the registry's lock. */
sw_status sw_cache_make(sw_heap *heap, sw_cache_holder holder, sw_cache **out);
void sw_cache_shut(sw_cache *cache);
/* Under the heap's lock: an open cache that owns nothing any more counts as closed. */
void sw_cache_set_closed(sw_cache *cache);
/* Before the heap's metadata goes: the records stay for a while as those of ended handles. */
void sw_cache_retire_records(sw_heap *heap);

/* Says that a slot was found free twice: p its address. */
void sw_cache_report_double(const sw_cache *cache, uintptr_t p);

/* --- remote.c: frees by other threads --------------------------------------------------------- */

/* Merges frees that other threads announced. */
void sw_cache_drain_remote(sw_cache *cache);
/* The same, but for a few spans that others seem to be freeing into still: to allocate from words
 * while another thread frees into them costs both a cache miss a step. */
void sw_cache_drain_worth(sw_cache *cache);
/* The same of a cache that has closed: by whoever announces to it. */
void sw_remote_drain_closed(sw_cache *cache);
/* Pushes half of a span on its owner's remote stack. The caller is its announcer. */
void sw_cache_announce(sw_cache *owner, sw_span *span, uint32_t half);

/* A cache that frees into a span of another says so: until it leaves, the span is not given up, or
 * its slots are seen to be free. (A hazard pointer; Michael, "Hazard pointers: safe memory
 * reclamation for lock-free objects", 2004. It guards against programs that free an object twice at
 * once: the first free may make the span empty.) The fence is the price of a hazard, so a cache
 * keeps it until it frees into another span, takes one from the central lists, trims or closes: frees in a
 * row into one span pay it once. */
static inline void sw_hazard_set(sw_cache *cache, uint32_t id) {
    cache->hazard = sw_space_span(cache->heap->space, id);
    /* Release: whoever finds the span before left sees what this cache did to it. */
    __atomic_store_n(&cache->cold->hazard_id, id, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void sw_hazard_clear(sw_cache *cache) {
    cache->hazard = NULL;
    __atomic_store_n(&cache->cold->hazard_id, 0, __ATOMIC_RELEASE);
}

/* --- central.c: all under heap->lock ---------------------------------------------------------- */

/* A span of the class with a free slot, owned by the cache from now on, in no list. NULL with
 * *why set. */
sw_span *sw_central_take(sw_heap *heap, sw_cache *cache, uint32_t span_class, sw_status *why);
/* Puts a span that has no owner into the list it belongs to, or gives it up when it is empty. */
void sw_central_put(sw_heap *heap, sw_span *span);
/* Drains half a span without owner that has just been popped from a remote stack. */
void sw_central_drain(sw_heap *heap, sw_span *span, uint32_t half, uintptr_t *doubled);
/* A free into a span without owner. SW_REMOTE_DOUBLE or DONE. */
sw_remote_result sw_central_free(sw_heap *heap, sw_span *span, uint32_t slot);
/* Gives a wholly free span, in no list, back to the page heap; to the central list if a free that
 * races with another is looking at it. */
void sw_central_release(sw_heap *heap, sw_span *span);
/* A cleared record; NULL: no memory. */
sw_span *sw_central_record(sw_heap *heap);
void sw_central_drop_record(sw_heap *heap, sw_span *span);
/* Gives up the central spans that are wholly free: they were hazards when they became so. */
void sw_central_release_idle(sw_heap *heap);
/* Reads the clock (manual or system) and lets the page heap give back idle pages. */
void sw_central_tick(sw_heap *heap);
/* After the system has refused memory for metadata: what caches keep of large objects and the free
 * pages at the windows' ends make up for it. False: they do not, another attempt would fail. */
bool sw_central_relieve(sw_heap *heap);
/* Pages for a span, as sw_pages_alloc. What caches keep of large objects is used up before fresh
 * pages are, and before a request is refused. */
sw_status sw_central_pages(sw_heap *heap, uint32_t n, size_t align, uint32_t *page, bool *needzero);

/* --- slack: requested sizes of tracked heaps -------------------------------------------------- */

/* Walks read what owners write. */

/* Bytes of the slack array of a span of this class. */
static inline size_t sw_slack_bytes(const sw_class *cls) {
    return (size_t)cls->slots * (cls->size > UINT16_MAX ? sizeof(uint32_t) : sizeof(uint16_t));
}
static inline uint32_t sw_slack_get(const void *slack, uint32_t slot_bytes, uint32_t slot) {
    return slot_bytes > UINT16_MAX
               ? __atomic_load_n(&((const uint32_t *)slack)[slot], __ATOMIC_RELAXED)
               : __atomic_load_n(&((const uint16_t *)slack)[slot], __ATOMIC_RELAXED);
}
static inline void sw_slack_set(void *slack, uint32_t slot_bytes, uint32_t slot, uint32_t value) {
    if (slot_bytes > UINT16_MAX) {
        __atomic_store_n(&((uint32_t *)slack)[slot], value, __ATOMIC_RELAXED);
    } else {
        __atomic_store_n(&((uint16_t *)slack)[slot], (uint16_t)value, __ATOMIC_RELAXED);
    }
}

/* --- large.c ---------------------------------------------------------------------------------- */

void *sw_large_alloc(sw_cache *cache, size_t size, size_t align, unsigned flags);
/* A large object has ended: see sw_span_large_end. */
void sw_large_ended(sw_cache *cache, sw_span *span);
/* False: no large object that lives starts at p. */
static sw_always_inline bool sw_large_free(sw_cache *cache, sw_span *span, uintptr_t p) {
    bool live = sw_span_large_end(span, p);
    if (sw_likely(live)) sw_large_ended(cache, span);
    return live;
}
/* Resizes in place: always when the page count shrinks or stays, when it grows if the pages behind
 * are free. */
bool sw_large_resize(sw_heap *heap, sw_span *span, uintptr_t p, size_t size);
/* All under the heap's lock. The freed large objects that the cache keeps, or every cache, become
 * free pages. */
void sw_large_give_up(sw_cache *cache);
void sw_large_give_up_all(sw_heap *heap);
/* In a forked child, whose caches keep nothing: gives up an object that does not live. */
void sw_large_recover(sw_heap *heap, sw_span *span);
/* What a shelf of sw_cache_cold.shelves holds: what a request must match, plus the id of the object
 * that is kept, if one is. */
static sw_always_inline uint64_t sw_large_kind(uint32_t pages, bool noscan) {
    return (uint64_t)(pages * 2 + (noscan ? 1u : 0u)) << 32;
}
/* The first of the SW_LARGE_WAYS shelves of objects of so many pages: their logarithm, rounded up,
 * tells which. */
static sw_always_inline uint32_t sw_large_shelf(uint32_t pages) {
    return sw_log2_floor(2 * (uint64_t)pages - 1) * SW_LARGE_WAYS;
}

/* --- free.c ----------------------------------------------------------------------------------- */

/* Where a pointer that a caller passed leads. */
typedef struct sw_target {
    sw_misuse misuse; /* NONE: a live object of `heap` */
    sw_span *span;
    uint32_t slot; /* of a span of slots */
    bool large;    /* decided once: the record may change under a free that races with another */
} sw_target;

sw_target sw_target_find(sw_heap *heap, const void *ptr);
/* In a heap that packs tiny objects, a 16-byte block may hold several: none of them can be freed or
 * resized alone. */
bool sw_target_is_shared(const sw_heap *heap, const sw_target *target);
/* The same of an object that the caller knows to be live. */
bool sw_object_is_shared(sw_heap *heap, const void *object);
/* Reports; returns only if the handler chose to leak and continue. */
void sw_target_report(sw_heap *heap, const sw_target *target, const char *op, const void *ptr,
                      size_t size);
/* sw_free_slow (fast.h): any free that the fast path did not finish. */

/* The free of a slot of a full span of this cache. */
void sw_free_full(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr);
/* The free of a slot whose span is marked or not this cache's. */
void sw_free_found(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr, const char *op);

/* --- paths.c ---------------------------------------------------------------------------------- */

/* The specialised paths of a built-in table, by size in bytes. */
typedef struct sw_paths {
    size_t cutoff; /* largest size that they serve */
    sw_path_fn *const *scan;
    sw_path_fn *const *noscan;
    sw_path_fn *const *tiny; /* sizes 1 .. 15 where tiny objects are packed; NULL: none generated */
} sw_paths;

/* NULL unless the table is built in and the heap plain. */
const sw_paths *sw_paths_for(const sw_table *table, uint64_t mode);
/* The paths that pack tiny objects; NULL: the generic one does. */
sw_path_fn *const *sw_paths_tiny(const sw_table *table);

/* --- alloc.c ---------------------------------------------------------------------------------- */

/* sw_alloc_slow (fast.h): any path whose first word was empty. */
void *sw_alloc_tiny(sw_cache *cache, size_t size, unsigned flags);

/* --- thread.c --------------------------------------------------------------------------------- */

/* sw_tls.cache (fast.h): this thread's cache of the default heap, or one without a heap. */
/* This thread's cache of the heap, opened if need be; NULL: no memory, or the heap is NULL or was
 * destroyed, which was reported; last error is set. */
sw_cache *sw_thread_cache(sw_heap *heap);
/* NULL, with the errno that says why there was no cache. */
sw_cold void *sw_thread_no_cache(void);
/* The same if it is open, else NULL. */
sw_cache *sw_thread_open_cache(const sw_heap *heap);
/* This thread's cache of the default heap, which is created if need be. */
sw_cache *sw_thread_default_cache(void);
/* True when this thread's caches were closed at its exit and nothing was opened since: what is
 * opened now may stay open for ever. */
bool sw_thread_has_ended(void);
/* Registers the fork handlers, unless that was done. The library's constructor does it; whoever
 * serves malloc does it at the first call, since handlers that are registered before ours run after
 * ours have locked the heaps. */
void sw_thread_register_fork(void);
/* Gives the heap an index; false when SW_HEAPS_MAX heaps live. */
bool sw_registry_add(sw_heap *heap);
/* Forgets the heap and every thread's cache of it. */
void sw_registry_remove(sw_heap *heap);

#endif
