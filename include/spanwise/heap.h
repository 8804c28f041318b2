/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps: allocate, free, resize. A process may have any number of heaps, and a heap any number of
 * threads.
 *
 *   sw_heap *h;                            sw_malloc(n) / sw_free(p) use the
 *   sw_heap_create(NULL, &h);              process-wide default heap (default table, untracked)
 *   void *p = sw_heap_alloc(h, 100, 0);
 *   sw_heap_free(h, p);
 *   sw_heap_destroy(h);
 *
 * Every free is validated: foreign and interior pointers, pointers past the last slot, double frees
 * and objects of other heaps are detected and reported as misuse (status.h). If memory is
 * exhausted, an allocation returns NULL with errno ENOMEM; it never aborts.
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
    SW_SCAN = 2, /* the object may hold pointers: separate spans, zeroed if needed */
};

/* Which partial span a cache takes next when its current span is full. */
typedef enum sw_placement {
    SW_PLACE_LIFO = 0,    /* the span that became partial last (fast, default) */
    SW_PLACE_ADDRESS = 1, /* the lowest address */
    SW_PLACE_FULLEST = 2, /* the span with the fewest free slots, then the lowest address */
    /* The span expected to be empty last. Of n live objects that die at the rate observed in the
     * class for spans of that age, the last one dies after H(n) / rate. */
    SW_PLACE_LASTING = 3,
} sw_placement;

/* Initialise with sw_heap_options_init, then change fields. Later versions append fields whose
 * default is 0; struct_bytes, a multiple of 8 from 16 to 4096, is the size of the caller's struct.
 * Fields past it have their defaults. Bytes past the fields of this version must be 0. */
typedef struct sw_heap_options {
    uint64_t struct_bytes; /* sizeof(sw_heap_options) */
    const sw_table *table; /* NULL: sw_table_default() */
    uint64_t limit_bytes;  /* maximum of bytes held (pages and metadata); 0: no limit */
    uint64_t decay_ns;     /* free pages return to the OS after 1 to 2 times this; see below */
    sw_placement placement;
    uint32_t batch_spans; /* empty spans that a cache keeps per class */
    uint8_t tracked;      /* 1: requested sizes are kept, so that a ledger shows round-up */
    uint8_t dry;          /* 1: addresses are never mapped, and no memory is touched */
    uint8_t tiny;         /* 1: pointer-free objects below 16 B share blocks, freed together */
    uint8_t manual_clock; /* 1: time advances only by sw_heap_set_time */
    uint8_t huge_pages;   /* 1: request transparent huge pages; see below */
    uint8_t touch_map;    /* 1, dry heaps: record which pages the program would write */
    /* With touch_map: the program writes the first N percent of a large object; 1 to 100; 0:
     * 100. */
    uint8_t large_touched_percent;
    /* large_touched_percent in millionths: 1 to 1000000; 0: unused. One of the two must be 0. */
    uint64_t large_touched_ppm;
    /* Protections against overflows, uses after a free and other misuse: names separated by commas,
     * of "hardened", "paranoid", "canary", "zero", "hold", "empty", "match", "sample", "random" and
     * "pages" (docs/design/guard.md). NULL or "default": none. Not for dry heaps, packed tiny
     * objects or heaps with a collector. Read by sw_heap_create only. */
    const char *protect;
} sw_heap_options;

enum { SW_DECAY_DEFAULT_MS = 500 };
/* decay_ns of SW_DECAY_NEVER: keep pages; 0 in sw_heap_options_init means the default. */
#define SW_DECAY_NEVER UINT64_MAX

/* decay_ns: the library has no background thread. Some calls that allocate or free pages check the
 * time: a large object, the first object of a span, the free of a span's last object. A heap that
 * is not used, or only reuses slots, returns nothing; sw_heap_trim returns every free page at once.
 * If a heap has more than 8 MiB of free pages when a thread ends, all of them are returned, except
 * with SW_DECAY_NEVER. Up to 8 MiB of free pages and 512 KiB of empty spans stay until the next
 * calls. */

/* huge_pages: madvise(MADV_HUGEPAGE) on each window. The system may then back 2 MiB at a time, so
 * more may be resident than committed until idle pages are purged. */

/* Fill in struct_bytes bytes: the defaults, then 0 past the fields of this version. Defaults: the
 * default table, no limit, decay of 500 ms, LIFO, batch 0, untracked, real memory. Errors:
 * SW_INVALID: struct_bytes is not a valid size. */
SW_API sw_status sw_heap_options_fill(sw_heap_options *options, uint64_t struct_bytes);
/* As sw_heap_options_fill, with the size of this header. */
static inline void sw_heap_options_init(sw_heap_options *options) {
    (void)sw_heap_options_fill(options, sizeof *options);
}

/* Create a heap. options: NULL for the defaults. Errors: SW_INVALID, SW_NOMEM, SW_LIMIT;
 * SW_UNSUPPORTED: options of a later version. */
SW_API sw_status sw_heap_create(const sw_heap_options *options, sw_heap **out);
/* Release all pages and metadata, and close the caches. No other thread may be inside a call on
 * this heap. NULL is ignored; the default heap returns SW_STATE; a destroyed heap is misuse
 * (STALE_HANDLE), and SW_INVALID. */
SW_API sw_status sw_heap_destroy(sw_heap *heap);
/* Return the default heap; the first call creates it. NULL if memory is exhausted. */
SW_API sw_heap *sw_heap_default(void);
/* Create the default heap with these options. Errors: SW_STATE: it has been used; SW_INVALID: a
 * table other than the default one, a dry heap, tiny objects or a manual clock; those of
 * sw_heap_create. */
SW_API sw_status sw_heap_default_init(const sw_heap_options *options);
/* Return the heap's number, which error messages print; 0 for an invalid heap. */
SW_API uint32_t sw_heap_id(const sw_heap *heap);
/* Return the heap's size classes, valid until it is destroyed; NULL for an invalid heap. */
SW_API const sw_table *sw_heap_table(const sw_heap *heap);
SW_API int sw_heap_is_dry(const sw_heap *heap); /* 1: addresses are never mapped */

/* Called if `bytes` more, for a large object or a span, would exceed the heap's limit even after
 * every free page was purged. It runs in the calling thread without a lock; it may free objects of
 * the heap and trim it, but not allocate from it. Return nonzero to retry, 0 to fail the
 * allocation; it also fails after 65,536 retries. */
typedef int sw_limit_fn(sw_heap *heap, uint64_t bytes, void *arg);
/* Set the hook at any time; NULL: none. An allocation in progress may still call the old hook. */
SW_API void sw_heap_set_limit_hook(sw_heap *heap, sw_limit_fn *hook, void *arg);

/* Allocate `size` bytes; size 0 allocates a slot of the smallest class. NULL with errno ENOMEM if
 * memory or the limit is exhausted, or size > PTRDIFF_MAX. */
SW_API void *sw_heap_alloc(sw_heap *heap, size_t size, unsigned flags);
/* The path that serves a request of this heap: a function generated for the class (SW_SCAN, plain
 * heaps of a built-in table, sizes up to the cut-off, no sanitizer), packing of tiny objects, the
 * generic path, or whole pages. */
typedef enum sw_path { SW_PATH_SPECIALISED, SW_PATH_TINY, SW_PATH_GENERIC, SW_PATH_LARGE } sw_path;
SW_API sw_path sw_heap_path(const sw_heap *heap, size_t size, unsigned flags);
/* As sw_heap_alloc, aligned to `align`, a power of two (else NULL, EINVAL). */
SW_API void *sw_heap_alloc_aligned(sw_heap *heap, size_t size, size_t align, unsigned flags);
/* Resize an object. ptr NULL: allocate. size 0: shrink to the smallest slot; it never frees. On
 * failure it returns NULL, and the old object is unchanged. flags: SW_ZERO clears the bytes past
 * the old *usable* size (past the old requested size in a tracked heap); SW_SCAN moves an object
 * that was allocated without it. */
SW_API void *sw_heap_realloc(sw_heap *heap, void *ptr, size_t size, unsigned flags);
/* Free an object. NULL is ignored. */
SW_API void sw_heap_free(sw_heap *heap, void *ptr);
/* As sw_heap_free; a `size` of another class than the object's is misuse (SIZE_MISMATCH). */
SW_API void sw_heap_free_sized(sw_heap *heap, void *ptr, size_t size);
/* Return the bytes that the caller may use; 0 for NULL and for tiny objects, which share a block. A
 * bad pointer is misuse. */
SW_API size_t sw_heap_usable_size(sw_heap *heap, const void *ptr);

/* Allocate from the default heap, with libc's conventions for results and errno. */
SW_API void *sw_malloc(size_t size);
SW_API void *sw_calloc(size_t count, size_t size);
SW_API void *sw_realloc(void *ptr, size_t size);
SW_API void *sw_aligned_alloc(size_t align, size_t size);
SW_API void sw_free(void *ptr);
SW_API void sw_free_sized(void *ptr, size_t size);
SW_API size_t sw_usable_size(const void *ptr);

/* Open a thread cache of a heap, used without a lock. An explicit cache avoids the TLS look-up, and
 * lets one thread act for many, as the replayer does. The caller must use it from one thread at a
 * time and close it before the heap is destroyed. In the child of a fork it is open, empty and
 * usable, even if another thread was inside a call with it. Every call rejects a closed cache
 * (STALE_HANDLE), even after its heap was destroyed. sw_cache_alloc and sw_cache_free do not check
 * for NULL, which faults at an address below 8192; builds with SW_CHECK of 2 or 3 report
 * NULL_HANDLE instead. */
SW_API sw_status sw_cache_open(sw_heap *heap, sw_cache **out);
SW_API void sw_cache_close(sw_cache *cache); /* NULL is ignored */
SW_API void *sw_cache_alloc(sw_cache *cache, size_t size, unsigned flags) SW_NONNULL(1);
SW_API void *sw_cache_alloc_aligned(sw_cache *cache, size_t size, size_t align, unsigned flags);
SW_API void *sw_cache_realloc(sw_cache *cache, void *ptr, size_t size, unsigned flags);
SW_API void sw_cache_free(sw_cache *cache, void *ptr) SW_NONNULL(1);

/* Advance the heap's clock (manual_clock only, never backwards) and purge idle pages. */
SW_API void sw_heap_set_time(sw_heap *heap, uint64_t now_ns);
/* Return the cache's empty spans to the heap. Only the cache's thread may call. */
SW_API void sw_cache_trim(sw_cache *cache);
/* Trim this thread's cache, then return every free page to the OS; return the bytes. */
SW_API size_t sw_heap_trim(sw_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
