/* SPDX-License-Identifier: Apache-2.0 */
/* The heap, from the inside.
 *
 * Nouns. A *heap* owns pages (page/), a metadata pool (ds/meta) and span records. A *cache* is one
 * thread's front of it and owns spans: for each span class (class * 2 + noscan) it has a *bin* with
 * the current span, a list of partial spans and a list of full ones. A *hint* names a slot of a
 * full span that was freed lately. A *shelf* of a cache keeps a freed large object for the next
 * request of its kind. A *hazard* is the span of another cache that a cache is freeing into.
 * *Central* lists hold the spans that no cache owns. An *idle* span has no slot in use.
 *
 * Allocation of a small object
 *   1. The size's class and the bin of its span class are looked up.        (template.h, alloc.c)
 *   2. The newest hint gives its slot, or the lowest set bit of the bin's word does. Paths that
 *      know the class when compiled look at the word first.
 *   3. The word is empty: the current span's next word with a bit is taken.           (refill.h)
 *   4. The span has none: it goes to the full list, and a partial span of this cache follows it;
 *      where there is none, the frees of other threads are drained first.             (refill.c)
 *   5. There is still none: under the heap's lock a partial span of the central lists is taken
 *      (central.c), or a fresh one is made of pages of the page heap.                  (fresh.c)
 *   6. There are no pages: what can be given back is given back (reclaim.c), the system is asked,
 *      within the limit; else the caller gets NULL and ENOMEM.
 *
 * Free of a small object, mirrored
 *   1. The address gives a frame, the page map a span record, a multiplication the slot. (fast_slots.h)
 *   2. The cache owns the span and the slot's bit is clear in both words: it is set.
 *   3. A word of a partial span is now wholly free: the span may be given up.           (owned.c)
 *   4. The span is marked, because it is fresh or full. A full one stays where it is while a hint
 *      can bring the slot back.                                                          (free.c)
 *   5. Another cache owns the span: the bit is set in the remote word, and the owner is told, if
 *      nobody has told it yet.                                                (remote.c, span.h)
 *   6. Nobody owns the span: its bit is set under the heap's lock.                    (central.c)
 *   7. No slot starts there: a large object (large.c), or misuse with its reason       (target.c).
 *
 * Locks, outermost first: registry (registry.c) < a collector's < heap.lock < space.lock. Steps 1 to 4 of an
 * allocation and 1, 2, 4 and 5 of a free take none.
 *
 * Files, the lowest first. Each calls only files that stand before it in this list.
 *   misuse, record, hint, placement, central, span_shelf, shelf, target
 *                                                   records, spans and large objects that nobody owns
 *   object                                          a slot becomes an object: size, zeroes, type
 *   reclaim, fresh                                  what gives memory back, and what takes it
 *   owned, remote, idle, refill                     what a cache does with its spans
 *   variety                                         whether a cache's requests vary in class
 *   cache, close, registry, heap, default_heap, fork, thread, trim
 *                                                   lives of caches, heaps, threads
 *   large, alloc, free, realloc                     what callers ask for
 *   sweep                                           what a collector has found dead
 * Beside them stand paths (the table of the specialised functions), checks (rules of the structs),
 * collected.h (what a collector gives the heap to call) and verify_point (where whole heaps may be
 * verified).
 *
 * Address map: space > windows of this heap > page runs > spans > slots. No byte of an object is
 * read or written here except to zero it.
 */
#ifndef SW_HEAP_HEAP_H
#define SW_HEAP_HEAP_H

#include "ds/handle.h"
#include "ds/meta.h"
#include "heap/paths.h"
#include "page/pages.h"
#include "size/table.h"
#include "span/span.h"
#include "spanwise/fast_slots.h"

enum { SW_HEAPS_MAX = 4096 };
enum { SW_SPAN_CLASS_WORDS = 2 * SW_TABLE_CLASSES_MAX / 64 }; /* a bit for each span class */

/* How a heap differs from the plain one. Such heaps take the generic path. */
enum {
    SW_MODE_TRACKED = 1,   /* requested sizes are kept */
    SW_MODE_DRY = 2,       /* addresses are numbers */
    SW_MODE_TINY = 4,      /* pointer-free objects below 16 B share blocks */
    SW_MODE_COLLECTED = 8, /* a collector frees objects; every free takes the slow path */
};

/* 0: no heap of this library is collected, and none has the code for it (the preloaded malloc). */
#ifndef SW_COLLECTABLE
#define SW_COLLECTABLE 1
#endif
typedef struct sw_heap_hooks sw_heap_hooks; /* collected.h */
typedef struct sw_history sw_history;       /* placement.h */

struct sw_heap {
    uint64_t mark;   /* ds/handle.h */
    sw_os_lock lock; /* pages, meta, instrument, central lists, lists of caches, free records */
    uint32_t id;     /* never reused; 1 is the default heap */
    uint32_t index;  /* in the registry and in each thread's table; reused. SW_HEAPS_MAX once the
                      * heap is destroyed: no thread has a cache there */
    const sw_table *table;
    sw_space *space;
    sw_meta meta;
    sw_pages pages;
    sw_meta
        *instrument; /* of a tracked heap: the pool of slack arrays, which counts in no term of the
                          * ledger and in no limit; else NULL */
    sw_heap_options options;
    uint64_t mode;                 /* SW_MODE_... */
    sw_path_fn *const *tiny_paths; /* NULL: the generic code packs */
    const sw_paths *paths;         /* of the table, in plain heaps; NULL: none */
    sw_paths varied;               /* the same with cut-off 0 (heap/variety.h) */
    uint32_t large_shelved;        /* atomic; 0: most likely no shelf holds anything */
    uint32_t span_classes;         /* 2 * table->class_count */
    sw_span_list *central_partial; /* by span class: no owner, some slot free */
    sw_span_list *central_full;    /* by span class: no owner, no slot free */
    uint32_t *class_pages; /* by span class: pages of its spans, whoever owns them; atomic. NULL
                            * where the table's spans have one length each */
    sw_history *histories; /* by span class, of SW_PLACE_LASTING; else NULL */
    uint32_t closing; /* threads that exit and are closing their cache; under the registry's lock */
    uint32_t
        leaving; /* grade 3: threads at work on a cache that they have closed; under the lock */
    sw_cache *caches;        /* every cache ever opened, open or closed */
    sw_cache *open_caches;   /* cache_count of them */
    sw_cache *closed_caches; /* closed ones have empty shelves and no hazard */
    sw_cache *closed_handles, *closed_handles_end; /* closed ones that users opened, oldest first */
    uint32_t closed_handle_count;
    uint32_t cache_count;
    uint32_t central_idle;   /* 0: no span of the central lists is idle */
    uint32_t kept_pages;     /* atomic: pages of the spans that are kept (central.h) */
    uint32_t kept_credit;    /* for giving them up one by one, until the next tick */
    uint32_t *kept;          /* atomic, by span class: the id of a kept span; 0: none */
    uint32_t cache_numbers;  /* opened so far, for numbering */
    uint32_t free_records;   /* unused span records, linked by next */
    uint32_t batches;        /* first records of the batches taken from the space */
    uint64_t now_ns;         /* manual clock; under the lock */
    sw_limit_fn *limit_hook; /* both under the lock; NULL: none */
    void *limit_hook_arg;
    const sw_heap_hooks *hooks; /* NULL: the heap is not collected */
    void *collector;            /* NULL: no collector, or it ends */
    sw_os_lock *collector_lock; /* as collector */
};

/* Exact for the holder of the heap's lock when no other thread is taking one. */
static inline uint32_t sw_heap_kept_pages(const sw_heap *heap) {
    return __atomic_load_n(&heap->kept_pages, __ATOMIC_RELAXED);
}

static sw_always_inline bool sw_heap_is_collected(const sw_heap *heap) {
    return SW_COLLECTABLE && sw_unlikely(heap->hooks != NULL);
}

/* True when the manual clock at `now_ns` asks for sw_heap_set_time: a decay tick is due. */
static inline bool sw_heap_decay_due(const sw_heap *heap, uint64_t now_ns) {
    return sw_pages_decay_due(&heap->pages, now_ns);
}

/* What the caches of the heap know of its space. Where objects share slots, or a collector frees them, no
 * free is a fast one: no address is found. */
static inline sw_space_view sw_heap_view(const sw_heap *heap) {
    sw_space_view view = heap->space->view;
    if ((heap->mode & (SW_MODE_TINY | SW_MODE_COLLECTED)) != 0) view.frames = 0;
    return view;
}

/* Requests below this many bytes need nothing but their class. 0 unless the heap is plain. */
static inline size_t sw_heap_plain_end(const sw_heap *heap) {
    size_t most = heap->table->max_size < SW_SMALL_LIMIT ? heap->table->max_size : SW_SMALL_LIMIT;
    return heap->mode == 0 ? most + 1 : 0;
}

/* Bytes of a slot of a span of slots. */
static sw_always_inline uint32_t sw_slot_bytes(const sw_table *table, const sw_span *span) {
    return table->classes[span->span_class / 2].size;
}

/* Pages of the class's next fresh span. Up to 1 KiB: the least of its lengths that is more than all
 * its spans have by now, or the longest. Above: the first length until they have twice the longest,
 * then the longest. So a class of few objects has short spans. The length follows from the
 * operations on the heap alone. */
uint32_t sw_heap_next_pages(const sw_heap *heap, uint32_t span_class);
/* A span of the class has come, or has gone (less than 0 pages). */
static inline void sw_heap_add_class_pages(sw_heap *heap, uint32_t span_class, int64_t pages) {
    if (heap->class_pages == NULL) return;
    __atomic_fetch_add(&heap->class_pages[span_class], (uint32_t)pages, __ATOMIC_RELAXED);
}

/* The span that holds page n of a window, NULL for a free page; *step: pages to the next one. */
sw_span *sw_heap_span_at(const sw_heap *heap, const sw_window *window, uint32_t n, uint32_t *step);

/* Whether the handle is a heap that lives; else its misuse is reported. A heap that was destroyed
 * has an index at which no thread has a cache, so only the slow ends of the paths ask. */
static sw_always_inline bool sw_heap_check(const sw_heap *heap, const char *op) {
    return sw_handle_check(heap, offsetof(sw_heap, mark), SW_HANDLE_HEAP, op);
}
static sw_always_inline sw_status sw_heap_status(const sw_heap *heap, const char *op) {
    return sw_handle_status(heap, offsetof(sw_heap, mark), SW_HANDLE_HEAP, op);
}

#endif
