/* SPDX-License-Identifier: Apache-2.0 */
/* The heap, from the inside.
 *
 * Terms. A *heap* owns pages (page/), a metadata pool (ds/meta) and span records. A *cache* is one
 * thread's part of a heap, and owns spans: for each span class (class * 2 + noscan) it has a *bin*
 * with the current span, a list of partial spans and a list of full ones. A *hint* refers to a slot
 * that was freed recently, usually of a full span. A *shelf* of a cache keeps a freed large object
 * for the next request of its kind. A *hazard* is another cache's span that a cache is freeing
 * into. *Central* lists hold the spans that no cache owns. An *idle* span has no slot in use.
 *
 * Allocation of a small object
 *   1. The size's class and the bin of its span class are looked up. (template.h, alloc.c)
 *   2. The slot is that of the newest hint, or else that of the lowest set bit of the bin's word.
 *      Paths for which the class is a constant look at the word first.
 *   3. If the word is empty, the next word of the current span that has a free bit is taken.
 *      (refill.h)
 *   4. If the span has none, it goes to the full list, and a partial span of this cache becomes the
 *      current one. If there is none, the frees of other threads are drained. (refill.c)
 *   5. If there is still none, a span that the heap keeps is taken. Otherwise, under the heap's
 *      lock, a partial span of the central lists is taken (central.c), or a fresh one is made from
 *      pages of the page heap (fresh.c).
 *   6. If there are no pages, idle memory is returned (fresh.c) and more is requested from the
 *      system, within the limit. If that fails, the caller gets NULL and ENOMEM.
 *
 * Free of a small object
 *   1. The address gives a frame, the page map gives its span record, and a multiplication gives
 *      the slot. (fast_slots.h)
 *   2. If the cache owns the span and the slot's bit is clear in `free` and in `local`, the bit is
 *      set in `local`.
 *   3. If that makes a word of a partial span wholly free, the span may be given up. (owned.c)
 *   4. If the span is marked, because it is fresh or full, the free takes the slow path. A full
 *      span stays in its list if a hint names the slot. (free.c)
 *   5. If another cache owns the span, the slot's bit in `remote` is set, and the free is announced
 *      to the owner unless one of the same word was announced already. (owned.c, span.h)
 *   6. If no cache owns the span, the bit is set under the heap's lock. (central.c)
 *   7. If no slot starts at the address, it is a large object (large.c), or misuse, whose reason is
 *      found and reported (target.c).
 *
 * Locks, outermost first: the default heap's (heap.c) < registry (registry.c) < a
 * collector's < heap.lock < purge lock (pages.h), space.lock. Steps 1 to 4 of an allocation and 1,
 * 2, 4 and 5 of a free take none.
 *
 * The files in order: each calls only files before it in this list.
 *   target, central         what a pointer leads to; records and lists of spans of no cache
 *   fresh, owned            returning memory, and taking it; what a cache does with its spans
 *   cache, registry, heap   lives of caches and heaps
 *   thread, trim            threads and forks; trims and sweeps
 *   refill, large, alloc, free, realloc   the public calls
 * Any of them may call checks (rules of the structs; points at which whole heaps are verified).
 *
 * Addresses nest: space > windows of this heap > page runs > spans > slots. The heap reads and
 * writes bytes of an object only to zero it, and to copy it when realloc moves it.
 */
#ifndef SW_HEAP_HEAP_H
#define SW_HEAP_HEAP_H

#include "ds/handle.h"
#include "ds/meta.h"
#include "page/pages.h"
#include "sizeclass/table.h"
#include "span/span.h"
#include "spanwise/fast_abi.h"
#include "spanwise/fast_slots.h"
#include "spanwise/heap.h"

/* --- specialised paths ------------------------------------------------------------------------ */

/* The specialised paths of a built-in table: one function per class, instantiated by the generator
 * (src/gen/paths_*.c) from the template in heap/template.h. */

/* Whether plain heaps take specialised paths. It is 0 in the preloaded malloc, whose inline path
 * serves the same requests (heap/default.h), and in builds with a sanitizer; then every request
 * takes the generic path, and sw_heap_path says so. */
#ifndef SW_SPECIALISED
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SW_SPECIALISED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SW_SPECIALISED 0
#endif
#endif
#endif
#ifndef SW_SPECIALISED
#define SW_SPECIALISED 1
#endif

typedef void *sw_path_fn(sw_cache *cache, size_t size, unsigned flags);

/* The paths of a table, by size in bytes. */
typedef struct sw_paths {
    size_t cutoff;           /* the largest size in bytes that they serve */
    sw_path_fn *const *scan; /* for objects that may hold pointers */
    sw_path_fn *const *tiny; /* for packed objects of 1 .. 15 bytes; NULL: none were generated */
} sw_paths;

/* --- heaps ------------------------------------------------------------------------------------ */

enum { SW_HEAPS_MAX = 4096 };
enum { SW_SPAN_CLASS_WORDS = 2 * SW_TABLE_CLASSES_MAX / 64 }; /* a bit for each span class */

/* How a heap differs from a plain one, whose mode is 0. All others use the generic path. */
enum {
    SW_MODE_TRACKED = 1,   /* requested sizes are kept */
    SW_MODE_DRY = 2,       /* addresses are numbers */
    SW_MODE_TINY = 4,      /* objects without pointers of less than 16 bytes share blocks */
    SW_MODE_COLLECTED = 8, /* a collector frees objects; every free takes the slow path */
    SW_MODE_GUARDED = 16,  /* tracked, with protections; every call takes the slow path */
};

/* 0 in the preloaded malloc: none of its heaps is collected, and the code for that is left out. */
#ifndef SW_COLLECTABLE
#define SW_COLLECTABLE 1
#endif
/* 0 in the preloaded malloc, whose only heap is guarded from above. */
#ifndef SW_GUARDABLE
#define SW_GUARDABLE 1
#endif
typedef struct sw_heap_hooks sw_heap_hooks;
typedef struct sw_heap_guard sw_heap_guard;
typedef struct sw_history sw_history; /* central.h */

struct sw_heap {
    uint64_t mark;   /* ds/handle.h */
    sw_os_lock lock; /* pages, meta, instrument, central lists, lists of caches, free records */
    uint32_t id;     /* never reused; 1 is the default heap */
    uint32_t index;  /* in the registry and in each thread's table; reused. SW_HEAPS_MAX once the
                      * heap is destroyed: at that index no thread has a cache */
    const sw_table *table;
    sw_space *space;
    sw_meta meta;
    sw_pages pages;
    sw_meta *instrument; /* of a tracked heap: the pool of slack arrays, which counts in no part of
                      * the ledger and in no limit; else NULL */
    sw_heap_options options;
    uint64_t mode;                 /* SW_MODE_... */
    sw_path_fn *const *tiny_paths; /* NULL: the generic code packs tiny objects */
    const sw_paths *paths;         /* the table's, in plain heaps; NULL: none */
    uint32_t large_shelved;        /* atomic; 0: most likely every shelf is empty */
    uint32_t span_classes;         /* 2 * table->class_count */
    sw_span_list *central_partial; /* by span class: no owner, some slot free */
    sw_span_list *central_full;    /* by span class: no owner, no slot free */
    uint32_t *class_pages; /* by span class: pages of all its spans; atomic. NULL if all spans of
                            * a class have the same length */
    sw_history *histories; /* by span class, if the placement is SW_PLACE_LASTING; else NULL */
    uint32_t closing; /* exiting threads that are closing their cache; under the registry's lock */
    uint32_t leaving; /* grade 3: threads still at work on a closed cache; under the lock */
    sw_cache *caches; /* every cache ever opened, open or closed */
    sw_cache *open_caches;     /* cache_count of them */
    sw_cache *closed_caches;   /* closed caches have empty shelves and no hazard */
    sw_cache *stripped_caches; /* closed ones without the pages after the first (cache.h) */
    sw_cache *closed_handles, *closed_handles_end; /* closed caches of users, oldest first */
    uint32_t closed_handle_count;
    uint32_t closed_count; /* caches in closed_caches */
    uint32_t cache_count;
    uint32_t central_idle;   /* 0: no span of the central lists is idle */
    uint32_t kept_pages;     /* atomic: pages of the kept spans (central.h) */
    uint32_t kept_credit;    /* kept spans that may still be given up before the next tick */
    uint32_t *kept;          /* atomic, by span class: the id of a kept span; 0: none */
    uint32_t cache_numbers;  /* cache records made so far; the newest has this number */
    uint32_t free_records;   /* unused span records, linked by next */
    uint32_t batches;        /* first records of the batches taken from the space */
    uint64_t now_ns;         /* manual clock; under the lock */
    sw_limit_fn *limit_hook; /* with its argument under the lock; NULL: none */
    void *limit_hook_arg;
    const sw_heap_hooks *hooks; /* NULL: the heap is not collected */
    void *collector;            /* NULL: the heap has no collector, or its collector is ending */
    sw_os_lock *collector_lock; /* NULL where `collector` is */
    const sw_heap_guard *guard; /* NULL: the heap has no protections */
    void *guard_state;          /* of the guard layer; NULL: none */
};

/* Exact under the heap's lock, unless another thread is taking a kept span. */
static inline uint32_t sw_heap_kept_pages(const sw_heap *heap) {
    return __atomic_load_n(&heap->kept_pages, __ATOMIC_RELAXED);
}

static sw_always_inline bool sw_heap_is_collected(const sw_heap *heap) {
    return SW_COLLECTABLE && sw_unlikely(heap->hooks != NULL);
}
static sw_always_inline bool sw_heap_is_guarded(const sw_heap *heap) {
    return SW_GUARDABLE && sw_unlikely(heap->guard != NULL);
}

/* True if a decay tick is due at `now_ns`. */
static inline bool sw_heap_decay_due(const sw_heap *heap, uint64_t now_ns) {
    return sw_pages_decay_due(&heap->pages, now_ns);
}

/* The view of the space that the caches of the heap get. If objects share slots, or a collector or
 * a guard frees them, every free must take the slow path, so the view has no frames and contains no
 * address. */
static inline sw_space_view sw_heap_view(const sw_heap *heap) {
    sw_space_view view = sw_space_view_now(heap->space);
    if ((heap->mode & (SW_MODE_TINY | SW_MODE_COLLECTED | SW_MODE_GUARDED)) != 0) view.frames = 0;
    return view;
}

/* Requests of fewer bytes need nothing but their class. 0 unless the heap is plain. */
static inline size_t sw_heap_plain_end(const sw_heap *heap) {
    size_t most = heap->table->max_size < SW_SMALL_LIMIT ? heap->table->max_size : SW_SMALL_LIMIT;
    return heap->mode == 0 ? most + 1 : 0;
}

/* Bytes of a slot of a span of slots. */
static sw_always_inline uint32_t sw_slot_bytes(const sw_table *table, const sw_span *span) {
    return table->classes[span->span_class / 2].size;
}

/* Pages of the class's next fresh span, unless it is a cache's first (refill.c). A class of up to 1
 * KiB uses the shortest of its lengths that exceeds the pages of all its spans, or else its
 * longest. A larger class uses its first length until its spans have twice the pages of its
 * longest, and then the longest. So a class with few objects has short spans. The length depends
 * only on the operations on the heap. */
uint32_t sw_heap_next_pages(const sw_heap *heap, uint32_t span_class);
/* Counts the pages of a span that the class has got, or lost (`pages` below 0). */
static inline void sw_heap_add_class_pages(sw_heap *heap, uint32_t span_class, int64_t pages) {
    if (heap->class_pages == NULL) return;
    __atomic_fetch_add(&heap->class_pages[span_class], (uint32_t)pages, __ATOMIC_RELAXED);
}

/* The span at page n of a window; NULL: the page belongs to no span. *step: pages to the next
 * one. */
sw_span *sw_heap_span_at(const sw_heap *heap, const sw_window *window, uint32_t n, uint32_t *step);
/* Calls fn with each span until it returns false, under the heap's lock. */
typedef bool sw_span_visit(sw_heap *heap, sw_span *span, void *arg);
void sw_heap_each_span(sw_heap *heap, sw_span_visit *fn, void *arg);

/* Take and release the lock of the heap's collector, if it has one, and then that of the heap. */
void sw_heap_lock(sw_heap *heap);
void sw_heap_unlock(sw_heap *heap);

/* Whether the handle is a live heap; if not, the misuse is reported. A destroyed heap has an index
 * at which no thread has a cache, so every call with it takes a slow path, and only slow paths need
 * this check. */
static sw_always_inline bool sw_heap_check(const sw_heap *heap, const char *op) {
    return sw_handle_check(heap, offsetof(sw_heap, mark), SW_HANDLE_HEAP, op);
}
static sw_always_inline sw_status sw_heap_status(const sw_heap *heap, const char *op) {
    return sw_handle_status(heap, offsetof(sw_heap, mark), SW_HANDLE_HEAP, op);
}

/* --- the default heap ------------------------------------------------------------------------- */

/* For fork handlers: while the lock is held no thread creates the default heap. It is the outermost
 * of all locks: it is taken before the registry's. */
void sw_default_heap_lock(void);
void sw_default_heap_unlock(void);
void sw_default_heap_reset_lock(void);

/* --- forks ------------------------------------------------------------------------------------ */

/* Registers the fork handlers, unless that was done already. The library's constructor calls it.
 * The preloaded malloc calls it at its first allocation, because handlers registered before ours
 * run while ours hold the heaps' locks. */
void sw_fork_register(void);

/* --- collected heaps -------------------------------------------------------------------------- */

/* Collected heaps. The collector is a layer above the heap, so it passes functions for the heap to
 * call (hooks). */

/* The flags of an allocation contain the object's type from this bit on. */
enum { SW_TYPE_SHIFT = 8 };

/* What a collector does with an explicit free. */
typedef enum sw_deferral {
    SW_FREE_NOW,    /* the caller frees the object */
    SW_FREE_LATER,  /* the collector will free it */
    SW_FREE_DOUBLE, /* the program has already freed the object, which waits for the sweep */
} sw_deferral;

/* Bit masks of 64 slots: slots that count as allocated and that the sweep of the running cycle will
 * free. */
typedef struct sw_dead_slots {
    uint64_t pending; /* the program has freed them */
    uint64_t unswept; /* other slots that no root reached; 0 until marking has ended */
} sw_dead_slots;

struct sw_heap_hooks {
    size_t record_bytes; /* the collector's for each span record; metadata of the heap */
    /* Under the heap's lock: the record of a span was initialised. False: no memory; the span is
     * not created. */
    bool (*born)(sw_heap *heap, sw_span *span);
    /* Under the heap's lock: the record is about to be released. */
    void (*gone)(sw_heap *heap, sw_span *span);
    /* The object at p was just allocated, with this type. */
    void (*typed)(sw_cache *cache, const sw_span *span, uintptr_t p, uint32_t type);
    /* No lock is held: the cache owns the span and is about to allocate from it. */
    void (*taken)(sw_cache *cache, sw_span *span);
    /* No lock is held: the cache has no partial span of the class. True: it may have one now. */
    bool (*sought)(sw_cache *cache, uint32_t span_class);
    /* No lock is held: the program wants to free a live object; a large object is slot 0. */
    sw_deferral (*deferred)(sw_heap *heap, sw_span *span, uint32_t slot);
    /* Whether the allocated slot was freed by the program and waits for the sweep. */
    bool (*waits)(const sw_heap *heap, const sw_span *span, uint32_t slot);
    /* Under the collector's lock and the heap's, or in a quiet heap: which of the slots 64 k to 64
     * k + 63 of a span the sweep will free. A large object is slot 0. */
    sw_dead_slots (*dead)(const sw_heap *heap, const sw_span *span, uint32_t k);
    /* Whether spans, and pages of large objects, may be released now. */
    bool (*may_release)(const sw_heap *heap);
    /* No lock is held: the thread is about to change spans or lists of the heap. Waits while
     * another thread works on a cycle; that is misuse of a thread that has not joined, if
     * `reports`. */
    void (*enter)(sw_heap *heap, bool reports);
    /* The change is done. */
    void (*leave)(sw_heap *heap);
    /* No lock is held: the calling thread is about to get a cache. False: no memory; the last error
     * is set. */
    bool (*opens)(sw_heap *heap);
    /* There was no memory for that cache. */
    void (*unopens)(sw_heap *heap);
    /* The calling thread ends: it leaves the collector. */
    void (*ended)(sw_heap *heap);
    /* In the child of a fork, which has no other thread. */
    void (*forked)(sw_heap *heap);
};

/* As sw_heap_create, for a heap with a collector. The hooks must live as long as the heap. `lock`
 * is the collector's lock, which is taken before the heap's. */
sw_status sw_heap_create_collected(const sw_heap_options *options, const sw_heap_hooks *hooks,
                                   void *collector, sw_os_lock *lock, sw_heap **out);
/* Destroys the heap when its collector is destroyed. No cycle is running. */
sw_status sw_heap_destroy_collected(sw_heap *heap);

/* --- guarded heaps ---------------------------------------------------------------------------- */

/* The guard is a layer above the heap. The heap passes it the calls on heaps with protections; the
 * guard serves them by calls with SW_UNGUARDED, and by sw_free_unguarded (alloc.h). */
enum { SW_UNGUARDED = 1 << 6 }; /* a flag of allocations */

struct sw_heap_guard {
    void *(*alloc)(sw_cache *cache, size_t size, size_t align, unsigned flags); /* align 0: any */
    void *(*realloc)(sw_cache *cache, void *ptr, size_t size, unsigned flags);
    void (*free)(sw_cache *cache, void *ptr, size_t stated, const char *op); /* SIZE_MAX: unknown */
    size_t (*usable)(sw_heap *heap, const void *ptr, const char *op);
    /* The requested size of a live object of the program, given what the heap was asked for. False:
     * the program has freed the object. */
    bool (*requested)(uint64_t asked, uint64_t *size);
    /* Under the heap's lock, in a quiet heap: checks what the protections keep in objects. */
    sw_status (*verify)(sw_heap *heap);
    void (*leave)(sw_cache *cache); /* the cache is about to close */
    void (*end)(sw_heap *heap);     /* the heap is being destroyed */
    /* For forks, under the heap's lock; reset is called in the child. */
    void (*lock)(sw_heap *heap);
    void (*unlock)(sw_heap *heap);
    void (*reset)(sw_heap *heap);
};

/* The options as sw_heap_create reads them: every field is set and valid. */
sw_status sw_heap_options_read(const sw_heap_options *given, const char *op, sw_heap_options *out);
/* Creates a heap without a collector. guard NULL: without protections. The state belongs to the
 * guard, and to the caller if this fails. */
sw_status sw_heap_create_guarded(const sw_heap_options *options, const sw_heap_guard *guard,
                                 void *state, sw_heap **out);

/* Whether a call on this cache is for the guard. */
static sw_always_inline bool sw_cache_is_guarded(const sw_cache *cache, unsigned flags) {
    return SW_GUARDABLE && sw_unlikely((cache->mode & SW_MODE_GUARDED) != 0) &&
           (flags & SW_UNGUARDED) == 0;
}

/* Enclose every change of spans or lists of the heap, so that none happens while a cycle works. No
 * code in between calls the program. */
static sw_always_inline void sw_heap_enter(sw_heap *heap) {
    if (sw_unlikely(sw_heap_is_collected(heap))) heap->hooks->enter(heap, true);
}
static sw_always_inline void sw_heap_leave(sw_heap *heap) {
    if (sw_unlikely(sw_heap_is_collected(heap))) heap->hooks->leave(heap);
}

/* Metadata that each span record of the heap takes. */
static inline size_t sw_heap_record_bytes(const sw_heap *heap) {
    size_t more = sw_heap_is_collected(heap) ? heap->hooks->record_bytes : 0;
    return sizeof(sw_span) + sizeof(sw_span_cold) + more;
}

#endif
