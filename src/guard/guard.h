/* SPDX-License-Identifier: Apache-2.0 */
/* Protections of a heap against misuse that a validated free does not detect: overflows, writes
 * after a free, accesses to freed objects. They cost time and memory, so each is a switch
 * (docs/design/guard.md). A guarded heap is tracked: its slack arrays have the requested sizes, out
 * of reach of the program.
 *
 *   sampling.c  sampled objects of a heap without other protections
 *   fast.c    allocate, free, resize           guard.c   what that does not decide; held objects
 *   sample.c  objects on pages of their own, objects of size 0, accesses that fault
 *   report.c  reports with call stacks; what the heap knows of a pointer
 *   heaps.c   heaps with sw_heap_options.protect; their check by sw_heap_verify
 *   state.h   what every call reads; objects, canaries, memory that must stay clear
 *
 * For the object of n requested bytes at p, in a slot of b bytes:
 *   the heap was asked for n + 1, so n < b and the heap's requested size is n + 1;
 *   bytes from p + n on, at most 16, are the canary, which also names the allocating function;
 *   a held object has the requested size 0;
 *   with ZERO, every byte of a free slot and of a held object is 0.
 */
#ifndef SW_GUARD_GUARD_H
#define SW_GUARD_GUARD_H

#include "heap/cache.h"

enum {
    SW_GUARD_CANARY = 1,  /* bytes after each object, checked when it is freed or resized */
    SW_GUARD_ZERO = 2,    /* objects are cleared when freed, and checked before reuse */
    SW_GUARD_HOLD = 4,    /* a freed object is reused after about SW_GUARD_HELD others */
    SW_GUARD_EMPTY = 8,   /* objects of size 0 have no accessible byte */
    SW_GUARD_MATCH = 16,  /* free, delete and delete[] only take what belongs to them */
    SW_GUARD_SAMPLE = 32, /* one of SW_GUARD_INTERVAL objects is on pages of its own */
    SW_GUARD_RANDOM = 64, /* new objects take random slots of their word */
    SW_GUARD_PAGES = 128, /* every object up to a page is on pages of its own */
    SW_GUARD_HARDENED = SW_GUARD_RANDOM - 1,
    SW_GUARD_PARANOID = 2 * SW_GUARD_PAGES - 1,
};

enum { SW_GUARD_HELD = 1024, SW_GUARD_INTERVAL = 8192 };

/* The functions that allocated an object. Each has functions that free it. */
typedef enum sw_guard_kind { SW_GUARD_MALLOC, SW_GUARD_NEW, SW_GUARD_NEW_ARRAY } sw_guard_kind;

/* Reads the text of sw_heap_options.protect: SW_GUARD_ bits. False: it has an unknown name. */
bool sw_guard_parse(const char *text, unsigned *on);

/* Guards the preloaded malloc's heap. Nothing was allocated from it. on: SW_GUARD_ bits; it is
 * tracked if there are others than SW_GUARD_SAMPLE. Other heaps are guarded from their creation
 * (heaps.c). */
void sw_guard_start(sw_heap *heap, unsigned on);

/* Whether sampling is the only protection of an untracked heap. Then threads keep the inline paths:
 * sampling.c decides when one leaves them. */
extern bool sw_guard_sampling;
/* The addresses of its sampled objects; bytes 0: that is not so. */
extern struct sw_sampled {
    uintptr_t from;
    size_t bytes;
} sw_sampled;
static sw_always_inline bool sw_sampling_owns(const void *p) {
    return sw_unlikely((uintptr_t)p - sw_sampled.from < sw_sampled.bytes);
}

/* What a thread has for guarded calls (state.h). A thread that is ending has none. */
typedef struct sw_guard_thread sw_guard_thread;
/* Makes the calling thread's record; NULL: there is no memory, or the thread is ending. At its end
 * the heap gets the objects that it held. */
sw_guard_thread *sw_guard_thread_make(sw_cache *cache);

/* As sw_cache_alloc, for a thread with a record. */
void *sw_guard_alloc(sw_guard_thread *own, size_t size, unsigned flags, sw_guard_kind kind);
/* stated: the object's size as the caller says; SIZE_MAX: unknown. `op` is the function in a report
 * of misuse. */
void sw_guard_free(sw_guard_thread *own, void *ptr, size_t stated, sw_guard_kind kind,
                   const char *op);

/* The same with the cache of the caller, whose record may be NULL. align 0: that of malloc. */
void *sw_guard_alloc_any(sw_cache *cache, sw_guard_thread *own, size_t size, size_t align,
                         unsigned flags, sw_guard_kind kind);
void *sw_guard_realloc(sw_cache *cache, sw_guard_thread *own, void *ptr, size_t size);
void sw_guard_free_any(sw_cache *cache, sw_guard_thread *own, void *ptr, size_t stated,
                       sw_guard_kind kind, const char *op);
/* The requested size of a live object. False: misuse, which was reported. */
bool sw_guard_size(sw_heap *heap, const void *ptr, const char *op, size_t *size);
/* The same for malloc_usable_size: programs must not write to the slack. */
size_t sw_guard_usable(sw_heap *heap, const void *ptr);

/* --- sampling without another protection (sampling.c) ------------------------------------------- */

/* As sw_refill_quick, and counts the slots that the refill gives to the inline path. */
void *sw_sampling_refill(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class);
/* An allocation outside the inline path, by a thread that has a cache. NULL: it is not sampled. */
void *sw_sampling_alloc(size_t size, unsigned flags, sw_guard_kind kind);
/* The cache of a thread that has left the inline paths for some allocations; NULL: it has not. */
sw_cache *sw_sampling_cache(void);
/* Frees a sampled object. False: it is another pointer. */
bool sw_sampling_free(void *ptr, size_t stated, sw_guard_kind kind, const char *op);
/* Moves a sampled object to the heap, with sw_cache_alloc. False: it is another pointer. */
bool sw_sampling_realloc(sw_cache *cache, void *ptr, size_t size, void **moved);
/* Reads the size of a sampled object; 0: misuse. False: it is another pointer. */
bool sw_sampling_usable(const void *ptr, size_t *size);

/* For forks of a process with the preloaded malloc (sw_os_at_fork). */
void sw_guard_fork_prepare(void);
void sw_guard_fork_parent(void);
void sw_guard_fork_child(void);

#endif
