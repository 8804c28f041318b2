/* SPDX-License-Identifier: Apache-2.0 */
/* Range allocators allocate parts of [0, size). They return offsets and never touch the memory,
 * which may be a buffer, a file or device memory.
 *
 *   sw_range *range;
 *   sw_range_create(1 << 20, NULL, &range);           all of [0, 1 << 20) is free
 *   uint64_t at = sw_range_alloc(range, 1000);        SW_RANGE_NONE: nothing fits
 *   sw_range_free(range, at + 100, 200);              any part of it, in any order
 *   sw_range_destroy(range);
 *
 * There are four back ends (enum sw_range_backend); docs/design/range.md has their structures and
 * costs. A call allocates metadata only if the number of holes reaches a new maximum.
 *
 * After an error the state is unchanged; sw_last_error() has the offending values.
 *   SW_INVALID  size 0, a part outside [0, size), a free of a buddy block with another size
 *   SW_OVERLAP  a double free, wholly or in part
 *   SW_OWNER    a call by a thread that does not own the range
 *   SW_NOMEM    no hole is large enough; or no memory for the allocator's own data
 *
 * Thread rule: a range belongs to the thread that created it, or last called sw_range_adopt; calls
 * by other threads fail with SW_OWNER. With the option `locked` any thread may call.
 */
#ifndef SPANWISE_RANGE_H
#define SPANWISE_RANGE_H

#include <spanwise/allocator_vtable.h>
#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_range sw_range;

/* No offset: the request failed. */
#define SW_RANGE_NONE UINT64_MAX
/* Maximum size of a range. */
#define SW_RANGE_SIZE_MAX (UINT64_C(1) << 62)

typedef enum sw_range_backend {
    SW_RANGE_BTREE = 0,  /* one B+-tree by start, with the largest hole of each subtree */
    SW_RANGE_TREAP,      /* one treap by start, with the largest hole of each subtree */
    SW_RANGE_TWO_TREAPS, /* two treaps over the same nodes, by start and by size: best fit */
    SW_RANGE_BUDDY,      /* blocks of a unit times a power of two */
    SW_RANGE_BACKEND_COUNT
} sw_range_backend;

/* Which hole serves a request; the allocation is at the front of the hole. */
typedef enum sw_range_placement {
    SW_RANGE_FIT_DEFAULT = 0, /* BEST for SW_RANGE_TWO_TREAPS, else FIRST */
    SW_RANGE_FIT_FIRST,       /* the lowest address */
    SW_RANGE_FIT_BEST,        /* the smallest sufficient one; ties: the lowest address */
    SW_RANGE_FIT_NEXT,  /* the lowest at or after the end of the last request; else the first */
    SW_RANGE_FIT_WORST, /* the largest; ties: the lowest address */
    SW_RANGE_FIT_COUNT
} sw_range_placement;

typedef struct sw_range_options {
    uint32_t struct_bytes; /* sizeof(sw_range_options), for later versions */
    uint32_t backend;      /* sw_range_backend */
    uint32_t placement; /* sw_range_placement; BEST: SW_RANGE_TWO_TREAPS only; buddy: FIRST only */
    uint32_t locked;    /* 1: any thread may call, under a lock */
    uint64_t unit;      /* buddy: the smallest block, a power of two */
    uint32_t orders;    /* buddy: the largest block is unit << (orders - 1); 0: as many as fit */
    uint32_t pad;
    const sw_allocator *memory; /* for metadata; NULL: sw_allocator_system() */
} sw_range_options;

/* Set the defaults: SW_RANGE_BTREE, default placement, unlocked, unit 1024, memory of the system. */
SW_API void sw_range_options_init(sw_range_options *options);

/* Create a range with [0, size) free; a buddy never uses the last size % unit
 * (sw_range_stats.tail). size: 1 .. SW_RANGE_SIZE_MAX. options: NULL for the defaults. Errors:
 * SW_INVALID, SW_UNSUPPORTED (placement not supported by the back end), SW_NOMEM. */
SW_API sw_status sw_range_create(uint64_t size, const sw_range_options *options, sw_range **out);
SW_API void sw_range_destroy(sw_range *range); /* NULL is ignored */

/* Allocate `size`; return its offset, or SW_RANGE_NONE. O(log n) for n holes. */
SW_API uint64_t sw_range_alloc(sw_range *range, uint64_t size);
/* Return where sw_range_alloc would place `size` now. SW_RANGE_NONE, without an error: none. */
SW_API uint64_t sw_range_find(sw_range *range, uint64_t size);
/* Free [offset, offset + size), which must be allocated: one allocation, a part of one, or adjacent
 * ones. With a buddy, exactly one allocation, with the size that was requested. */
SW_API sw_status sw_range_free(sw_range *range, uint64_t offset, uint64_t size);
/* Free everything. */
SW_API sw_status sw_range_reset(sw_range *range);

/* Return the total free size; 0 after misuse. O(1). */
SW_API uint64_t sw_range_free_size(sw_range *range);
/* Return the largest size that fits; 0: the range is full. O(1) for trees. */
SW_API uint64_t sw_range_largest_hole(sw_range *range);

/* A maximal free interval [start, start + size). (Buddy: one free block.) */
typedef struct sw_range_hole {
    uint64_t start;
    uint64_t size;
} sw_range_hole;

/* Write up to `capacity` holes that end after `from`, in address order; return how many. Continue
 * with `from` at the end of the last one. */
SW_API size_t sw_range_holes(sw_range *range, uint64_t from, sw_range_hole *out, size_t capacity);

typedef struct sw_range_stats {
    uint64_t size;       /* of the range */
    uint64_t free_size;  /* sum of the holes */
    uint64_t holes;      /* number of holes; buddy: 0, not counted */
    uint64_t allocs;     /* successful allocations */
    uint64_t frees;      /* successful frees */
    uint64_t refused;    /* failed allocations */
    uint64_t waste;      /* internal fragmentation: a buddy's rounding */
    uint64_t tail;       /* buddy: size % unit */
    uint64_t held_bytes; /* metadata */
} sw_range_stats;

/* Read the statistics. Errors: SW_OWNER. */
SW_API sw_status sw_range_get_stats(sw_range *range, sw_range_stats *out);

/* Make the calling thread the owner, after the last call of the previous owner. No effect on a
 * locked range. */
SW_API sw_status sw_range_adopt(sw_range *range);

/* Check the invariants: order and distance of the holes, their sum, the shape of trees. O(holes)
 * (buddy: O(units)). SW_FORMAT: an invariant is broken; the last error names it. */
SW_API sw_status sw_range_verify(sw_range *range);

/* Return the name of a back end ("btree", "treap", "two-treaps", "buddy"), or NULL. */
SW_API const char *sw_range_backend_name(sw_range_backend backend);

/* --- inline ----------------------------------------------------------------------------------- */

/* The beginning of a sw_range, read by inline code; part of the binary interface. */
typedef struct sw_range_front {
    uint64_t mark;
    uint64_t owner; /* sw_range_this_thread of the owner; 0: any thread may call, under the lock */
    sw_range_hole only; /* the only hole; size 0: there are several, or none */
} sw_range_front;

/* The library with this layout defines this symbol; code compiled for another layout fails to link
 * or load. */
SW_API extern const uint32_t sw_range_abi_1;
__attribute__((used)) static const uint32_t *const sw_range_abi_needed = &sw_range_abi_1;

/* As sw_range_this_thread, for platforms on which inline code cannot read the thread pointer. */
SW_API uint64_t sw_range_find_thread(void);

/* Identify the calling thread among the live ones by its thread pointer. A thread that starts after
 * another has ended may get the same one. */
static inline __attribute__((always_inline)) uint64_t sw_range_this_thread(void) {
#if defined __linux__ && defined __x86_64__ && defined __LP64__
    uint64_t pointer;
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
    return pointer;
#elif defined __linux__ && defined __aarch64__
    uint64_t pointer;
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
    return pointer;
#else
    return sw_range_find_thread();
#endif
}

/* As sw_range_find, for a valid range; inline for the owner of a range with one hole. */
static inline __attribute__((always_inline)) uint64_t sw_range_fast_find(sw_range *range,
                                                                         uint64_t size) {
    const sw_range_front *front = (const sw_range_front *)(const void *)range;
    if (__builtin_expect(size - 1 >= front->only.size || front->owner != sw_range_this_thread(), 0))
        return sw_range_find(range, size);
    return front->only.start;
}

/* --- scopes: allocate at the declaration, free at the end of the block --------------------------
 *
 *   SW_RANGE_SCOPE(scratch, range, 4096);
 *   if (scratch.offset == SW_RANGE_NONE) return;      nothing is freed then
 */
typedef struct sw_range_scope {
    sw_range *range;
    uint64_t offset; /* SW_RANGE_NONE: nothing fitted */
    uint64_t size;
} sw_range_scope;

static inline sw_range_scope sw_range_scope_begin(sw_range *range, uint64_t size) {
    sw_range_scope scope = {range, sw_range_alloc(range, size), size};
    return scope;
}
/* Free the part. A second call does nothing. Errors: those of sw_range_free. */
static inline sw_status sw_range_scope_end(sw_range_scope *scope) {
    uint64_t offset = scope->offset;
    scope->offset = SW_RANGE_NONE;
    return offset == SW_RANGE_NONE ? SW_OK : sw_range_free(scope->range, offset, scope->size);
}
static inline void sw_range_scope_leave(sw_range_scope *scope) { (void)sw_range_scope_end(scope); }

#define SW_RANGE_SCOPE(name, range, size)                                                          \
    __attribute__((cleanup(sw_range_scope_leave))) sw_range_scope name =                           \
        sw_range_scope_begin(range, size)

#ifdef __cplusplus
}
#endif
#endif
