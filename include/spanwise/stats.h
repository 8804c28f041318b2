/* SPDX-License-Identifier: Apache-2.0 */
/* Read-only views of a heap: the ledger, which accounts for its bytes, by class and by span; the
 * heap map; and verify.
 *
 * The identity, exact to the byte (docs/design/inspect.md):
 *   held = requested + roundup + tail + free_slot + cached + metadata + large_rounding
 *        + free_page
 * Walks take the heap's lock. They are exact if no other thread is inside a call on the heap;
 * otherwise each span is read at a slightly different time.
 */
#ifndef SPANWISE_STATS_H
#define SPANWISE_STATS_H

#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ledger. Later versions append fields. */
typedef struct sw_ledger {
    /* Number of bytes that are filled in, including this field; see sw_heap_ledger_read. */
    uint64_t struct_bytes;
    uint64_t requested_bytes; /* requested by live objects (slot bytes if not tracked) */
    uint64_t roundup_bytes;   /* slot - requested, live small objects (0 if not tracked) */
    uint64_t tail_bytes;      /* ends of spans, too short for a slot */
    uint64_t free_slot_bytes; /* free slots, except those of the current spans of caches */
    /* Free slots of current spans; empty spans and freed large objects kept by caches. */
    uint64_t cached_bytes;
    uint64_t metadata_bytes;       /* descriptors, bits, page map, caches, tables of the heap */
    uint64_t large_rounding_bytes; /* whole pages - requested, live large objects */
    uint64_t free_page_bytes;      /* free pages not returned to the OS */
    uint64_t held_bytes;           /* the sum of all of the above */
    uint64_t live_objects;
    uint64_t large_objects;      /* live large objects, part of live_objects */
    uint64_t spans;              /* spans of slots */
    uint64_t large_bytes;        /* pages under live large objects */
    uint64_t largest_hole_bytes; /* longest run of free held pages */
    uint64_t free_runs;          /* number of runs of free held pages */
    uint64_t returned_bytes;     /* total returned to the OS */
    uint64_t retry_bytes;        /* pages that the OS refused to take back; still held */
    uint32_t caches;
    uint8_t tracked;           /* 1: requested and roundup are separate */
    uint64_t instrument_bytes; /* requested sizes of a tracked heap; not in held_bytes */
    /* Parts of requested_bytes that the sweep of the running cycle will free; 0 without a
     * collector. */
    uint64_t pending_bytes; /* objects that the program freed during the cycle */
    uint64_t unswept_bytes; /* unreachable objects; 0 until marking has ended */
} sw_ledger;

/* Monotonic counters of a heap. */
typedef struct sw_heap_stats {
    uint64_t struct_bytes;      /* as in sw_ledger; the caller sets it to sizeof(sw_heap_stats) */
    uint64_t lock_acquisitions; /* acquisitions of the heap's lock */
    uint64_t lock_waits;        /* of these, contended */
    uint64_t purge_calls;       /* system calls that purge pages */
    uint64_t commit_calls;      /* system calls that commit pages */
} sw_heap_stats;

/* Fill in the fields within out->struct_bytes that this version knows, and set struct_bytes to the
 * filled size. Lock-free; any thread may call. Errors: SW_INVALID: struct_bytes is not a multiple
 * of 8 from 16 to 4096. */
SW_API sw_status sw_heap_stats_read(const sw_heap *heap, sw_heap_stats *out);

enum { SW_OCCUPANCY_BINS = 11 };

/* One row per class; the columns sum to the ledger's. */
typedef struct sw_ledger_class {
    uint32_t cls;
    uint32_t size_bytes;
    uint64_t spans;
    uint64_t span_bytes;
    uint64_t slots;
    uint64_t live_objects;
    uint64_t requested_bytes, roundup_bytes, tail_bytes, free_slot_bytes, cached_bytes;
    /* spans by occupancy: bin k holds spans with live/slots in [k/10, (k+1)/10); bin 10 full */
    uint64_t occupancy[SW_OCCUPANCY_BINS];
} sw_ledger_class;

/* Set out->struct_bytes to the size of the caller's struct before the call, 16 to 4096 and a
 * multiple of 8. Fills in the fields within it that this version knows, and sets struct_bytes to
 * the filled size. rows: NULL, or sw_table_class_count() + 1 entries, indexed by class. Row 0 is
 * for large objects; those in occupancy bin 0 were freed and are kept by a cache. Errors:
 * SW_INVALID: another struct_bytes or too few rows; *out is unchanged then. */
SW_API sw_status sw_heap_ledger_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                                     size_t capacity);
/* As sw_heap_ledger_read, with the size of this header. */
static inline sw_status sw_heap_ledger(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                                       size_t capacity) {
    out->struct_bytes = sizeof *out;
    return sw_heap_ledger_read(heap, out, rows, capacity);
}
/* As sw_heap_ledger_read, but each term counts only bytes in pages of the system that were written
 * to, so that held_bytes is the resident size of the heap. A dry heap with the option touch_map
 * records these pages during runs; a real heap asks the system. All metadata counts, except pages
 * of its pool from which nothing was allocated. largest_hole_bytes, free_runs, returned_bytes,
 * retry_bytes, instrument_bytes, pending_bytes, unswept_bytes and occupancy are 0. Errors: also
 * SW_STATE (a dry heap without touch_map), SW_NOMEM, SW_UNSUPPORTED (the system does not report
 * it). */
SW_API sw_status sw_heap_touched_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                                      size_t capacity);
/* Return the bytes held now, in constant time and without a lock. Any thread may call; during
 * concurrent changes of the heap, the result may be off by these changes. */
SW_API uint64_t sw_heap_held_bytes(const sw_heap *heap);

/* One row per span (slots or large object), in heap order. */
typedef struct sw_span_info {
    uint64_t address;
    uint64_t bytes;
    uint32_t cls; /* 0: large object */
    uint32_t slots;
    uint32_t live;  /* 0 for a large object: freed, kept by a cache */
    uint32_t cache; /* owner's number, 0: central */
    uint8_t scan;
    uint8_t current; /* 1: its cache allocates from it now */
    uint8_t needzero;
    uint8_t pad[5];
} sw_span_info;

/* Fill at most `capacity` rows; return the number of spans. */
SW_API size_t sw_heap_spans(sw_heap *heap, sw_span_info *rows, size_t capacity);

/* --- heap map --------------------------------------------------------------------------------- */

typedef enum sw_tile_kind {
    SW_TILE_SLOTS, /* a span of slots */
    SW_TILE_LARGE, /* a large object, live or kept by a cache */
    SW_TILE_FREE,  /* a run of free held pages */
} sw_tile_kind;

enum {
    SW_TILE_FLAG_CACHED = 1,
    SW_TILE_FLAG_CURRENT = 2,
    SW_TILE_FLAG_SCAN = 4,
    SW_TILE_FLAG_PENDING = 8,
    SW_TILE_FLAG_UNSWEPT = 16,
};
#define SW_TOUCHED_UNKNOWN UINT64_MAX
#define SW_SLOT_FREE UINT32_MAX
/* Slots of a collected heap that still count as live: freed by the program, or unreachable; the
 * sweep of the running cycle will free them (sw_ledger.pending_bytes, unswept_bytes). */
#define SW_SLOT_PENDING (UINT32_MAX - 1)
#define SW_SLOT_UNSWEPT (UINT32_MAX - 2)

/* A tile of a heap map: a run of pages with one use. All tiles and the ledger's metadata_bytes add
 * up to held_bytes; each field summed over all tiles is the ledger's term.
 *   bytes = requested + roundup + tail + free;  live <= slots
 * For a large object, roundup is the rounding to whole pages. */
typedef struct sw_tile {
    uint64_t address;
    uint64_t offset; /* from the start of the heap's pages */
    uint64_t bytes;
    uint64_t requested_bytes, roundup_bytes, tail_bytes;
    uint64_t free_bytes;    /* free slots, a freed large object, free pages */
    uint64_t touched_bytes; /* in pages that were written to, or SW_TOUCHED_UNKNOWN */
    uint64_t first_slot;    /* its first index in sw_heap_map.requested; SLOTS only */
    uint32_t cls;           /* 0: no class */
    uint32_t slots;         /* 1 for a large object, 0 for free pages */
    uint32_t live;          /* of the slots */
    uint32_t cache;         /* owner's number, 0: none */
    uint32_t kind;          /* sw_tile_kind */
    /* CACHED: its free bytes count as cached_bytes; CURRENT: its cache allocates from it now; SCAN:
     * its objects may hold pointers; PENDING, UNSWEPT: a large object, as SW_SLOT_PENDING and
     * SW_SLOT_UNSWEPT. */
    uint32_t flags;
} sw_tile;

/* The caller sets the first four fields; the call sets the last two to the full counts, even if
 * they exceed the capacities, and fills in as many entries as fit. */
typedef struct sw_heap_map {
    sw_tile *tiles; /* NULL if tile_capacity is 0 */
    size_t tile_capacity;
    /* One entry per slot: requested bytes, or SW_SLOT_FREE, _PENDING, _UNSWEPT. NULL if
     * slot_capacity is 0. */
    uint32_t *requested;
    size_t slot_capacity;
    size_t tile_count;
    size_t slot_count; /* number of slots in all spans of slots */
} sw_heap_map;

/* Read a snapshot of the heap as a map, ordered by offset. touched: nonzero fills in touched_bytes,
 * as in sw_heap_touched_read. In untracked heaps requested bytes are slot bytes. Errors: those of
 * sw_heap_touched_read if `touched`; SW_INVALID: a NULL array with a capacity. After an error *map
 * is unchanged. */
SW_API sw_status sw_heap_map_read(sw_heap *heap, int touched, sw_heap_map *map);

/* Call fn for each live object (address, requested bytes or slot bytes) until it returns nonzero;
 * return that value. The heap is locked: fn must not call into this heap, fork (which takes every
 * heap's lock), or wait for a thread that may do either. */
typedef int sw_object_fn(void *ptr, size_t bytes, uint32_t cls, void *arg);
SW_API int sw_heap_each_object(sw_heap *heap, sw_object_fn *fn, void *arg);

/* Check every invariant of the heap (pages, page map, spans, bits, lists, caches, totals): SW_OK,
 * or SW_STATE with the first broken one in sw_last_error()->message. No other thread may be inside
 * a call on the heap. */
SW_API sw_status sw_heap_verify(sw_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
