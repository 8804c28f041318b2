/* SPDX-License-Identifier: Apache-2.0 */
/* The records that inline code reads. They are ABI: the library's own sources include this header,
 * and fast.h binds to a symbol named after the table, so that code compiled for another table fails
 * to link. Not for direct use: everything here may change with the minor version.
 */
#ifndef SPANWISE_FAST_ABI_H
#define SPANWISE_FAST_ABI_H

#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 64 slots of a span. A slot is free when its bit is set in one of the first three.
 *   free:   the slots that allocation takes from
 *   local:  the slots that the owner freed since; moved into `free` when that has run empty. So a free
 *           and the allocation after it do not wait for each other's store
 *   remote: the slots that other threads freed and the owner has not drained yet; atomic
 * free and local are written by the span's owner only (under the heap's lock when it has none).
 * Bits past the span's last slot are 0 in `free` and `remote` and 1 in `local` for ever. So a free
 * of such a slot meets a set bit, a word is wholly free when (free | local) is all ones, and an
 * allocation never sees them. A span whose slots end on a word and leave a tail has one word more.
 * A word never straddles cache lines: whoever frees touches one line, whichever thread it is. */
typedef struct sw_word {
    uint64_t free;
    uint64_t remote;
    uint64_t local;  /* like an object, not where frees read the cache: see sw_cache */
    uint64_t unused; /* keeps two words a line; in a span's own word, fields of its record */
} sw_word;

/* One span: a run of pages cut into slots, or one large object. 64 bytes, a cache line, in a dense
 * array of its space; the page map holds indices into that array. Where one word serves all slots
 * it lies in the record itself: a free then touches two lines of metadata, the page map's and this.
 *   slot i is at base + i * size, 0 <= i < slots
 *   magic = ceil(2^64 / size): of the 128-bit product (p - base) * magic the high word is i, and the
 *   low word is below magic exactly when p is the start of a slot (Lemire, Kaser, Kurz 2019)
 * Large objects and the two sentinels have magic 0 and no bit to give or take: every fast path ends
 * in the slow one. */
typedef struct sw_span {
    uintptr_t base;
    uint64_t magic; /* 0 for large objects */
    /* Atomic; NULL: central, its bits change under the heap's lock. Bit 0 or 1 set: a free takes the
     * slow path (the span is full or fresh). While a large object lives: its address. */
    struct sw_cache *owner;
    sw_word *words; /* &own where one is enough */
    __extension__ union {
        sw_word own; /* all but its last eight bytes, which are: */
        __extension__ struct {
            uint64_t bits[3];
            uint16_t span_class; /* class * 2 + noscan; 0 or 1: large object */
            uint16_t slots;
            uint8_t cursor;   /* the word that the owner looks at next when it searches */
            uint8_t state;    /* sw_span_state */
            uint8_t needzero; /* 1: slots may hold old bytes */
            uint8_t kept;     /* 1: wholly free, in its cache's partial list, counted there */
        };
    };
} sw_span;

/* The state of a span that waits in its cache's partial list: only there a free looks whether a
 * word has become wholly free. */
enum { SW_FAST_PARTIAL = 2 };

/* A slot of a full span that was freed lately: the next allocation of its class takes it before
 * anything is searched, and the span stays where it is. A hint only, which may be out of date: the
 * truth is the slot's bit in `local`. Every slot in `local` of a full span has a hint. */
typedef struct sw_hint {
    uintptr_t at;
    sw_word *word; /* of a span of this cache */
    uint64_t slot; /* of the span; modulo 64: its bit of the word */
} sw_hint;

/* Where a cache allocates next for one span class: a pointer to the live word of the span, never a
 * copy, so that remote frees, walks and verify see one truth. A line of its own, in the order of
 * sw_cache. */
typedef struct sw_cache_bin {
    sw_span *span;  /* NULL when there is none */
    sw_word *word;  /* never NULL; an always-empty word when there is no span */
    sw_hint *hints; /* the oldest first */
    uintptr_t base; /* address of that word's slot 0; far from any object when there is no span */
    uint64_t unused;
    uint32_t hinted;     /* bytes of hints, not their number: an offset; 0: there is none */
    uint32_t hinted_max; /* the same of the most that are kept */
    uint64_t unused_too;
    uint32_t bytes; /* of a slot of the class */
    uint32_t unused_end;
} sw_cache_bin;

#define SW_NO_BASE (UINTPTR_MAX / 2 + 1)

enum { SW_HINTS_LOG2 = 5, SW_HINTS_MAX = 1 << SW_HINTS_LOG2 };

/* What a free needs to find a span. Constant once its space is made. */
typedef struct sw_space_view {
    uintptr_t base;           /* address of frame 0 */
    uint64_t frames;          /* frames that page_map covers */
    const uint32_t *page_map; /* frame -> index into spans */
    sw_span *spans;
} sw_space_view;

/* The last member of sw_cache is a C99 array, which clang++ tells of in spite of __extension__. */
#if defined(__clang__) && defined(__cplusplus)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc99-extensions"
#endif

/* A cache: one line that every call reads, one of the generic and the slow paths, then the bins,
 * indexed by class * 2 + noscan. A thread without a cache of the default heap has one with no heap
 * whose every path ends in the slow one.
 *
 * What fast paths read lies 8 bytes behind a multiple of 16, because objects begin at such multiples
 * and programs write their first words. A processor lets these reads overtake a store whose address
 * it does not know yet. When that turns out to lie at the same place of another page, some compare
 * so little of the two pages that they take it for the same one now and then; from there on the read
 * waits for every store before it, and a pair takes twice as long (docs/design/heap.md). */
struct sw_cache {
    sw_heap *heap;  /* NULL: the cache of threads that have none */
    uintptr_t base; /* base, frames, page_map, spans: its space's view */
    const sw_table *table;
    uint64_t frames;
    sw_hint *hints; /* of noscan class i: hints[i << SW_HINTS_LOG2 ...], newest last */
    const uint32_t *page_map;
    struct sw_cache_cold *cold; /* what only slow paths read */
    sw_span *spans;
    uint64_t mode;                /* the heap's */
    const struct sw_paths *paths; /* specialised paths of the table; NULL: generic path only */
    sw_span *hazard;              /* another cache's span that this one frees into; NULL: none */
    const uint8_t *small_map;     /* the table's */
    uint64_t mark;                /* atomic: whether it is open */
    size_t plain_end;             /* smaller sizes need no more than their class */
    uint64_t unused_too[2];
    __extension__ sw_cache_bin bins[];
};

#if defined(__clang__) && defined(__cplusplus)
#pragma clang diagnostic pop
#endif

enum { SW_FRAME_SHIFT = 12 }; /* a frame of the page map is 4 KiB */

__extension__ typedef unsigned __int128 sw_product; /* of a 64-bit multiplication */

#ifdef __cplusplus
}
#endif
#endif
