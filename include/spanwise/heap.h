/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps: allocate, free, resize. Any number of heaps in a process, any number of threads in a heap.
 *
 *   sw_heap *h;                            one line a heap:   sw_malloc(n) / sw_free(p) use the
 *   sw_heap_create(NULL, &h);              process-wide default heap (default table, untracked)
 *   void *p = sw_heap_alloc(h, 100, 0);
 *   sw_heap_free(h, p);
 *   sw_heap_destroy(h);
 *
 * Every free is validated: a pointer that is foreign, inside an object, past the last slot, free
 * already or of another heap is found. What happens then is described in status.h. When memory is
 * exhausted an allocation returns NULL with errno ENOMEM, and never aborts.
 */
#ifndef SPANWISE_HEAP_H
#define SPANWISE_HEAP_H

#include <spanwise/sizeclass.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_heap sw_heap;
typedef struct sw_cache sw_cache;

/* Flags of sw_heap_alloc. */
enum {
    SW_ZERO = 1, /* memory reads as zero */
    SW_SCAN = 2, /* the object may hold pointers: kept in spans of its own, zeroed if needed */
};

/* Which partial span serves next when a thread's current span is used up. */
typedef enum sw_placement {
    SW_PLACE_LIFO = 0,    /* the one that last became partial (fast, default) */
    SW_PLACE_ADDRESS = 1, /* the lowest address */
    SW_PLACE_FULLEST = 2, /* the one with the fewest free slots, then the lowest address */
    /* The one that will be empty last, by the history of its class: of n live objects, each of
     * which dies at the rate that objects of the class had in spans that waited as long, the last
     * one dies after H(n) / rate. */
    SW_PLACE_LASTING = 3,
} sw_placement;

/* sw_heap_options_init fills it in; then the caller changes what it wants. Later versions add
 * fields at the end, whose 0 is their default, so struct_bytes tells what the caller's version has:
 * 16 to 4096, a multiple of 8. Fields that lie behind it have their defaults. Of a longer struct
 * than this version knows, the rest must be 0. */
typedef struct sw_heap_options {
    uint64_t struct_bytes; /* sizeof(sw_heap_options) */
    const sw_table *table; /* NULL: sw_table_default() */
    uint64_t limit_bytes;  /* most bytes held (pages and metadata); 0: no limit */
    uint64_t decay_ns;     /* free pages go back to the OS after 1 to 2 of these; see below */
    sw_placement placement;
    uint32_t batch_spans; /* wholly free spans that a cache keeps per class */
    uint8_t tracked;      /* 1: requested sizes are kept, so a ledger can name round-up */
    uint8_t dry;          /* 1: addresses are only numbers, no memory is touched */
    uint8_t tiny;         /* 1: pointer-free objects below 16 B share blocks; not freed singly */
    uint8_t manual_clock; /* 1: time moves by sw_heap_set_time only */
    uint8_t huge_pages;   /* 1: the system is asked for transparent huge pages; see below */
    uint8_t touch_map;    /* 1, dry heaps: runs note which pages the program would write */
    /* With touch_map: so many percent of a large object's bytes are written, the first ones; 1 to
     * 100; 0: 100. */
    uint8_t large_touched_percent;
    /* 1: a cache keeps as many wholly free spans of each class as it would lately have taken again,
     * but at most batch_spans, which then is not 0. */
    uint8_t batch_by_use;
    /* With touch_map: so many millionths of a large object's bytes are written, the first ones; 1
     * to 1000000; 0: large_touched_percent counts. One of the two is 0. */
    uint64_t large_touched_ppm;
} sw_heap_options;

enum { SW_DECAY_DEFAULT_MS = 500 };
/* decay_ns of SW_DECAY_NEVER: keep pages; 0 in sw_heap_options_init means the default. */
#define SW_DECAY_NEVER UINT64_MAX

/* decay_ns: no thread of the library's own watches the time. Calls that take or give up pages do: a
 * large object, the first object of a span, the free of a span's last object, and not every one of
 * these. A heap that is not called, or whose calls only reuse slots, returns nothing; sw_heap_trim
 * returns every free page at once. A thread that ends needs no later call: if it leaves more than 8
 * MiB of free pages in a heap, all free pages go back then, except with SW_DECAY_NEVER. Up to 8 MiB
 * of free pages and 512 KiB of empty spans stay until the next calls. */

/* huge_pages: madvise(MADV_HUGEPAGE) on each window. Pages are then backed 2 MiB at a time where
 * the system agrees, so more may be resident than is held until idle pages go back. */

/* Fills in struct_bytes bytes, which are stored in the first field: the defaults, and 0 behind the
 * fields of this version. The defaults are the default table, no limit, decay of 500 ms, LIFO,
 * batch 0, untracked, real memory. Errors: SW_INVALID for a struct_bytes that the struct can not
 * have. */
SW_API sw_status sw_heap_options_fill(sw_heap_options *options, uint64_t struct_bytes);
/* As sw_heap_options_fill, with the size that the struct has in this header. */
static inline void sw_heap_options_init(sw_heap_options *options) {
    (void)sw_heap_options_fill(options, sizeof *options);
}

/* options may be NULL: the defaults. Errors: SW_INVALID, SW_NOMEM, SW_LIMIT, and SW_UNSUPPORTED for
 * options of a later version. */
SW_API sw_status sw_heap_create(const sw_heap_options *options, sw_heap **out);
/* Releases every page and record. No other thread may be inside a call on this heap; its objects
 * are gone, and its caches are closed. NULL is ignored; the default heap answers SW_STATE; a heap
 * that was destroyed before is misuse (STALE_HANDLE), and SW_INVALID. */
SW_API sw_status sw_heap_destroy(sw_heap *heap);
SW_API sw_heap *sw_heap_default(void);
/* Makes the default heap with the given options. Errors: SW_STATE when it has been used already,
 * SW_INVALID for a table other than the default one, a dry heap, tiny objects or a manual clock,
 * and those of sw_heap_create. */
SW_API sw_status sw_heap_default_init(const sw_heap_options *options);
SW_API uint32_t sw_heap_id(const sw_heap *heap);
SW_API const sw_table *sw_heap_table(const sw_heap *heap);
SW_API int sw_heap_is_dry(const sw_heap *heap); /* 1: addresses are only numbers */

/* A hook that is called when `bytes` more, for a large object or a span of small ones, would exceed
 * the heap's limit although every free page was given back. It runs in the calling thread, without
 * a lock; it may free objects of the heap and trim it, but not allocate from it. It returns nonzero
 * to try again, and 0 when it could not free anything: then the allocation fails, as it does after
 * 65,536 calls for one request. */
typedef int sw_limit_fn(sw_heap *heap, uint64_t bytes, void *arg);
/* Sets the hook; NULL: none. It may be called at any time. An allocation that has begun may still
 * call the old hook. */
SW_API void sw_heap_set_limit_hook(sw_heap *heap, sw_limit_fn *hook, void *arg);

/* NULL with errno ENOMEM when memory or the limit is exhausted or size > PTRDIFF_MAX.
 * size 0 gives a unique smallest slot. */
SW_API void *sw_heap_alloc(sw_heap *heap, size_t size, unsigned flags);
/* Which path serves a request of this heap: a function that was generated for the class (in plain
 * heaps of a built-in table, for sizes up to the cut-off, unless a sanitizer is at work), packing
 * of tiny objects, the generic path, or whole pages. While the requests of a cache vary in class,
 * it looks up the class of those without pointers instead of calling the function of the class: the
 * outcome is the same. */
typedef enum sw_path { SW_PATH_SPECIALISED, SW_PATH_TINY, SW_PATH_GENERIC, SW_PATH_LARGE } sw_path;
SW_API sw_path sw_heap_path(const sw_heap *heap, size_t size, unsigned flags);
/* align: a power of two (else NULL, EINVAL). */
SW_API void *sw_heap_alloc_aligned(sw_heap *heap, size_t size, size_t align, unsigned flags);
/* ptr NULL: allocates. size 0 keeps a smallest slot (never frees). On failure NULL and the old
 * object is untouched. flags as for alloc: SW_ZERO clears what the object grew by (the bytes past
 * the old *usable* size, or past the old requested size in a tracked heap); SW_SCAN moves an object
 * that was allocated without it. */
SW_API void *sw_heap_realloc(sw_heap *heap, void *ptr, size_t size, unsigned flags);
/* NULL is ignored. */
SW_API void sw_heap_free(sw_heap *heap, void *ptr);
/* As free, and `size` must be of the object's class (else misuse SIZE_MISMATCH). */
SW_API void sw_heap_free_sized(sw_heap *heap, void *ptr, size_t size);
/* Bytes that the caller may use; 0 for NULL, and for tiny objects, which share a block. A bad pointer
 * is misuse. */
SW_API size_t sw_heap_usable_size(sw_heap *heap, const void *ptr);

/* The default heap, with libc's conventions for results and errno. */
SW_API void *sw_malloc(size_t size);
SW_API void *sw_calloc(size_t count, size_t size);
SW_API void *sw_realloc(void *ptr, size_t size);
SW_API void *sw_aligned_alloc(size_t align, size_t size);
SW_API void sw_free(void *ptr);
SW_API void sw_free_sized(void *ptr, size_t size);
SW_API size_t sw_usable_size(const void *ptr);

/* A cache is the part of a heap that one thread works with, without a lock. Passing it explicitly
 * saves the look-up of the thread's own, and lets one thread act for many, as the replayer does. A
 * cache that is opened here belongs to the caller, who must use it from one thread at a time and
 * close it before the heap is destroyed. In the child of a fork it is open, empty and usable, even
 * if another thread was inside a call with it. A closed one is refused by every call
 * (STALE_HANDLE), also when its heap is gone. sw_cache_alloc and sw_cache_free, the shortest paths,
 * do not check whether the cache is NULL: with one that is, the processor faults at an address
 * below 8192. Builds of the library with SW_CHECK of 2 or 3 report NULL_HANDLE instead. */
SW_API sw_status sw_cache_open(sw_heap *heap, sw_cache **out);
SW_API void sw_cache_close(sw_cache *cache); /* NULL is ignored */
SW_API void *sw_cache_alloc(sw_cache *cache, size_t size, unsigned flags) SW_NONNULL(1);
SW_API void *sw_cache_alloc_aligned(sw_cache *cache, size_t size, size_t align, unsigned flags);
SW_API void *sw_cache_realloc(sw_cache *cache, void *ptr, size_t size, unsigned flags);
SW_API void sw_cache_free(sw_cache *cache, void *ptr) SW_NONNULL(1);

/* Moves the heap's clock (manual_clock only, never backwards) and gives idle pages back. */
SW_API void sw_heap_set_time(sw_heap *heap, uint64_t now_ns);
/* Gives the pages of spans that the cache holds wholly free back to its heap. Only the cache's
 * thread may call it. */
SW_API void sw_cache_trim(sw_cache *cache);
/* Trims this thread's cache, then gives every free page back to the OS now; returns the bytes. */
SW_API size_t sw_heap_trim(sw_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
