/* SPDX-License-Identifier: Apache-2.0 */
/* The records that inline code reads, part of the binary interface. fast.h refers to a symbol named
 * after the table, so that code compiled for another table fails to link. Programs must not use
 * these records: they may change in any minor version.
 */
#ifndef SPANWISE_FAST_ABI_H
#define SPANWISE_FAST_ABI_H

#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bitmaps of 64 slots of a span. A slot is free when its bit is set in one of the first three.
 *   free:   slots that the next allocations take
 *   local:  slots that the owner has freed since; moved to `free` when that is empty, so that a
 *           free and the next allocation do not wait for each other's store
 *   remote: slots that other threads freed and the owner has not drained yet; atomic
 * Only the span's owner writes free and local; if there is none, the heap's lock protects them.
 * Bits past the span's last slot are always 0 in `free` and `remote` and 1 in `local`. So freeing
 * such a slot is detected as a double free, a word is wholly free if (free | local) is all ones,
 * and an allocation never takes such a slot. A span with a multiple of 64 slots and a tail has one
 * more word, for padding. A word never straddles cache lines, so that a free by any thread touches
 * one line. */
typedef struct sw_word {
    uint64_t free;
    uint64_t remote;
    uint64_t local;  /* written by frees, congruent to 0 mod 16: see sw_cache */
    uint64_t unused; /* padding to two words per line; in a span's own word, fields of its record */
} sw_word;

/* A span: a run of pages cut into slots, or one large object. The record is one cache line of 64
 * bytes in a dense array of its space; the page map holds indices into that array. If one word
 * covers all slots, it is part of the record, and a free touches two cache lines of metadata: page
 * map and record.
 *   slot i is at base + i * size, 0 <= i < slots
 *   magic = ceil(2^64 / size): the high word of the 128-bit product (p - base) * magic is i, and
 *   its low word is below magic iff p is the start of a slot (Lemire, Kaser, Kurz 2019)
 * Large objects and the two sentinels have magic 0: no address is the start of a slot, so every
 * fast path falls back to a slow one. */
typedef struct sw_span {
    uintptr_t base;
    uint64_t magic; /* 0 for large objects */
    /* Atomic. NULL: the span is central, and its bits are protected by the heap's lock. Bit 0 or 1
     * set: a free takes the slow path (the span is full or fresh). A live large object: its
     * address. */
    struct sw_cache *owner;
    sw_word *words; /* &own if one word is enough */
    __extension__ union {
        sw_word own; /* its last eight bytes hold the fields after `bits` */
        __extension__ struct {
            uint64_t bits[3];
            uint16_t span_class; /* class * 2 + noscan; 0 or 1: large object */
            uint16_t slots;
            uint8_t cursor;   /* the word that the owner searches next */
            uint8_t state;    /* sw_span_state */
            uint8_t needzero; /* 1: slots may hold old bytes */
            uint8_t idle;     /* 1: no slot in use; in its cache's partial list and counted there */
        };
    };
} sw_span;

/* sw_span.state of a span in its cache's partial list. Only for such a span does a free check
 * whether its word has become wholly free. */
enum { SW_FAST_PARTIAL = 2 };

/* A recently freed slot, which the next allocation of the class takes without a search; the span
 * stays in its list. A hint may be stale; the bit in `local` is authoritative. Every slot in
 * `local` of a full span has a hint. */
typedef struct sw_hint {
    uintptr_t at;
    sw_word *word; /* of a span of this cache */
    uint64_t slot; /* index in the span; modulo 64: its bit of the word */
} sw_hint;

/* The allocation point of a cache for one span class. It points to the word of the current span and
 * never copies it, so that remote frees, walks and verify see the same bits. A bin is a cache line;
 * its fields are placed as described at sw_cache.
 *
 * Collected heaps: gc_type is the type of all objects of the span, or SW_GC_UNTYPED if they differ
 * or have no pointers; only the cache's thread writes it. gc_next_bit is the bit of the slot after
 * the last one taken (0: end of the word), and gc_next_at that slot's byte offset from base:
 * gc_next_at == bytes * (index of gc_next_bit). */
typedef struct sw_cache_bin {
    sw_span *span;  /* NULL when there is none */
    sw_word *word;  /* never NULL; an always-empty word when there is no span */
    sw_hint *hints; /* oldest first */
    uintptr_t base; /* address of that word's slot 0; far from any object when there is no span */
    uint64_t gc_next_bit; /* of collected heaps; 0 elsewhere */
    uint32_t hinted;      /* bytes of all hints: the offset past the newest one */
    uint32_t hinted_max;  /* maximum bytes of hints */
    uint64_t gc_next_at;  /* of collected heaps */
    uint32_t bytes;       /* of a slot of the class */
    uint32_t gc_type;     /* of collected heaps */
} sw_cache_bin;

#define SW_NO_BASE (UINTPTR_MAX / 2 + 1)

enum { SW_HINTS_LOG2 = 5, SW_HINTS_MAX = 1 << SW_HINTS_LOG2 };

/* What a free needs to find a span. It does not change after the space is created, except that
 * `frames` grows. */
typedef struct sw_space_view {
    uintptr_t base;           /* address of frame 0 */
    uint64_t frames;          /* frames that page_map covers */
    const uint32_t *page_map; /* maps a frame to an index into spans */
    sw_span *spans;
} sw_space_view;

/* clang++ warns about the flexible array member in spite of __extension__. */
#if defined(__clang__) && defined(__cplusplus)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc99-extensions"
#endif

/* A thread cache. Every call reads the first cache line; the generic and slow paths also read the
 * second. The bins follow, indexed by class * 2 + noscan. Threads without a cache of the default
 * heap share an empty cache without a heap, so that all their calls take a slow path.
 *
 * Fields read by fast paths are at addresses congruent to 8 mod 16, to avoid false store-to-load
 * dependencies (4K aliasing). A processor speculates that a load does not depend on earlier stores
 * with unknown addresses, but compares mainly page offsets, so a store to another page can alias.
 * Then the load waits for all earlier stores, and a malloc/free pair takes twice as long. Objects
 * begin at multiples of 16, and programs write their first words, so no field read here has such an
 * offset (docs/design/heap.md). */
struct sw_cache {
    sw_heap *heap;  /* NULL: the shared empty cache */
    uintptr_t base; /* base, frames, page_map, spans: the view of its space */
    const sw_table *table;
    uint64_t frames;
    sw_hint *hints; /* noscan class i: hints[i << SW_HINTS_LOG2 ...], newest last */
    const uint32_t *page_map;
    struct sw_cache_cold *cold; /* fields that only slow paths read */
    sw_span *spans;
    uint64_t mode;            /* the heap's */
    sw_span *hazard;          /* the other cache's span that this one last freed into; NULL: none */
    uint64_t unused;          /* aligns the bins to a cache line */
    const uint8_t *small_map; /* the table's */
    uint64_t mark;            /* atomic: whether it is open */
    size_t plain_end;         /* smaller sizes are served by class alone */
    struct sw_thread *thread; /* the library's record of the cache's thread; NULL: none */
    /* The sw_span.owner for which a free takes the fast path and leaves no hint: the cache itself
     * (the owner of full spans has an extra bit set), or SW_NO_CACHE while every free leaves a
     * hint. Written by the cache's thread. */
    struct sw_cache *unhinted_owner;
    __extension__ sw_cache_bin bins[];
};

#if defined(__clang__) && defined(__cplusplus)
#pragma clang diagnostic pop
#endif

#define SW_NO_CACHE ((struct sw_cache *)1) /* no span has this owner */

enum { SW_FRAME_SHIFT = 12 }; /* a frame of the page map is 4 KiB */

__extension__ typedef unsigned __int128 sw_product; /* of a 64-bit multiplication */

#ifdef __cplusplus
}
#endif
#endif
