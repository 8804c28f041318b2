/* SPDX-License-Identifier: Apache-2.0 */
/* Read-only views of a heap: the ledger of its bytes, per class and per span, and verify.
 *
 * The identity, exact to the byte (docs/design/inspect.md):
 *   held = requested + roundup + tail + free_slot + cached + metadata + large_rounding
 *        + arena_slack + quarantine + free_page
 * Walks take the heap's lock. They are exact when no other thread is inside a call on the heap;
 * otherwise each span is read at a slightly different moment.
 */
#ifndef SPANWISE_STATS_H
#define SPANWISE_STATS_H

#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Later versions add fields at the end. */
typedef struct sw_ledger {
    /* Bytes that are filled in, this field included; see sw_heap_ledger_read. */
    uint64_t struct_bytes;
    uint64_t requested_bytes; /* asked for by live objects (slot bytes if not tracked) */
    uint64_t roundup_bytes;   /* slot - requested, live small objects (0 if not tracked) */
    uint64_t tail_bytes;      /* end of a span too short for a slot */
    uint64_t free_slot_bytes; /* free slots, except those of the current spans of caches */
    /* Free slots of current spans; free spans and large objects that caches keep. */
    uint64_t cached_bytes;
    uint64_t metadata_bytes;       /* descriptors, bits, page map, caches, tables of the heap */
    uint64_t large_rounding_bytes; /* whole pages - requested, live large objects */
    uint64_t arena_slack_bytes;    /* held by arenas, not handed out */
    uint64_t quarantine_bytes;     /* freed, but not to be used again yet */
    uint64_t free_page_bytes;      /* free pages not given back to the OS */
    uint64_t held_bytes;           /* the sum of all of the above */
    uint64_t live_objects;
    uint64_t large_objects;      /* live large objects, part of live_objects */
    uint64_t spans;              /* spans of slots */
    uint64_t large_bytes;        /* pages under live large objects */
    uint64_t largest_hole_bytes; /* longest run of free held pages */
    uint64_t free_runs;          /* number of runs of free held pages */
    uint64_t returned_bytes;     /* over the heap's life, given back to the OS */
    uint64_t retry_bytes;        /* the OS refused to take back; still held */
    uint32_t caches;
    uint8_t tracked;           /* 1: requested and roundup are known apart */
    uint64_t instrument_bytes; /* requested sizes of a tracked heap; outside of held_bytes */
    /* Of requested_bytes, what the sweep of the cycle under way will free; 0 in heaps without a
     * collector: */
    uint64_t pending_bytes; /* objects that the program has freed since the cycle began */
    uint64_t unswept_bytes; /* other objects that no root reached; 0 until marking has ended */
} sw_ledger;

/* What a heap has done since it was created, beside its ledger: counts that only grow. */
typedef struct sw_heap_stats {
    uint64_t struct_bytes;      /* as in sw_ledger; the caller sets it to sizeof(sw_heap_stats) */
    uint64_t lock_acquisitions; /* turns of the heap's lock */
    uint64_t lock_waits;        /* of these, the ones that found it held by another thread */
    uint64_t purge_calls;       /* calls by which the system was asked to take pages back */
    uint64_t commit_calls; /* calls by which it was asked to make more of a window accessible */
} sw_heap_stats;

/* Fills in the fields that lie within out->struct_bytes and that this version knows, and sets
 * struct_bytes to the bytes that it has filled in. Takes no lock and may be called from any thread.
 * Errors: SW_INVALID when struct_bytes is not a multiple of 8 from 16 to 4096. */
SW_API sw_status sw_heap_stats_read(const sw_heap *heap, sw_heap_stats *out);

enum { SW_OCCUPANCY_BINS = 11 };

/* One row a class; the columns sum to the ledger's. */
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

/* Before the call out->struct_bytes is the size of the caller's struct: 16 to 4096, a multiple of
 * 8. The fields are filled in that lie within it and that this version knows, and struct_bytes
 * becomes the bytes that they take. rows: NULL, or sw_table_class_count() + 1 entries, indexed by
 * class. Row 0 is the large objects; its spans in bin 0 were freed and lie on a shelf of a cache.
 * Errors: SW_INVALID for another struct_bytes or too few rows; *out is untouched then. */
SW_API sw_status sw_heap_ledger_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                                     size_t capacity);
/* As sw_heap_ledger_read, with the size that the struct has in this header. */
static inline sw_status sw_heap_ledger(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                                       size_t capacity) {
    out->struct_bytes = sizeof *out;
    return sw_heap_ledger_read(heap, out, rows, capacity);
}
/* As sw_heap_ledger_read, but of each term only the bytes in pages of the system that were written
 * to: held_bytes is then what is resident of the heap. A dry heap knows it from runs, and only with
 * the option touch_map; a real one asks the system. All metadata counts, except pages of its pool
 * from which nothing was cut. largest_hole_bytes, free_runs, returned_bytes, retry_bytes,
 * instrument_bytes, pending_bytes, unswept_bytes and occupancy are 0. Errors besides: SW_STATE (a
 * dry heap without touch_map), SW_NOMEM, SW_UNSUPPORTED (the system does not tell). */
SW_API sw_status sw_heap_touched_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                                      size_t capacity);
/* Bytes held now. It takes constant time and no lock, and may be called from any thread; while
 * others change the heap, the result may be off by what they are changing. */
SW_API uint64_t sw_heap_held_bytes(const sw_heap *heap);

/* One row a span (slots or large object), in heap order: what a heap map draws. */
typedef struct sw_span_info {
    uint64_t address;
    uint64_t bytes;
    uint32_t cls; /* 0: large object */
    uint32_t slots;
    uint32_t live;  /* 0 in a large object: it was freed and a cache keeps it */
    uint32_t cache; /* owner's number, 0: central */
    uint8_t scan;
    uint8_t current; /* 1: its cache allocates from it now */
    uint8_t needzero;
    uint8_t pad[5];
} sw_span_info;

/* Fills at most `capacity` rows, returns how many spans there are. */
SW_API size_t sw_heap_spans(sw_heap *heap, sw_span_info *rows, size_t capacity);

/* --- heap map --------------------------------------------------------------------------------- */

typedef enum sw_tile_kind {
    SW_TILE_SLOTS, /* a span of slots */
    SW_TILE_LARGE, /* a large object, or one that was freed and that a cache keeps */
    SW_TILE_FREE,  /* free pages in a row that are held */
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
/* In a collected heap, of slots that count as live: the program has freed them, or no root has
 * reached them, and the sweep of the cycle under way will free them (sw_ledger.pending_bytes,
 * unswept_bytes). */
#define SW_SLOT_PENDING (UINT32_MAX - 1)
#define SW_SLOT_UNSWEPT (UINT32_MAX - 2)

/* A piece of a heap map: pages in a row of one use. The pieces of a map and the ledger's
 * metadata_bytes add up to held_bytes; what a field says of all tiles adds up to the ledger's term.
 *   bytes = requested + roundup + tail + free;  live <= slots
 * In a large object roundup is its rounding to whole pages. */
typedef struct sw_tile {
    uint64_t address;
    uint64_t offset; /* from the start of the heap, which counts its pages from 0 */
    uint64_t bytes;
    uint64_t requested_bytes, roundup_bytes, tail_bytes;
    uint64_t free_bytes;    /* free slots, a freed large object, free pages */
    uint64_t touched_bytes; /* in pages of the system that were written to, or SW_TOUCHED_UNKNOWN */
    uint64_t first_slot; /* its slots follow from here in sw_heap_map.requested; KIND SLOTS only */
    uint32_t cls;        /* 0: no class */
    uint32_t slots;      /* 1 in a large object, 0 in free pages */
    uint32_t live;       /* of the slots */
    uint32_t cache;      /* owner's number, 0: none */
    uint32_t kind;       /* sw_tile_kind */
    /* CACHED: its free bytes are cached_bytes of the ledger; CURRENT: its cache allocates from it
     * now; SCAN: its objects may hold pointers; PENDING, UNSWEPT: a large object that waits for the
     * sweep, as SW_SLOT_PENDING and SW_SLOT_UNSWEPT. */
    uint32_t flags;
} sw_tile;

/* The caller sets the first four, and the call the last two: how many there are, which may be more
 * than there was room for; then as many as fit are filled in. */
typedef struct sw_heap_map {
    sw_tile *tiles; /* NULL where tile_capacity is 0 */
    size_t tile_capacity;
    /* One entry for each slot: bytes asked for, or SW_SLOT_FREE, _PENDING, _UNSWEPT. NULL where
     * slot_capacity is 0. */
    uint32_t *requested;
    size_t slot_capacity;
    size_t tile_count;
    size_t slot_count; /* slots of spans of slots */
} sw_heap_map;

/* A snapshot of the whole heap as a map, by rising offset. touched: not 0 fills in touched_bytes,
 * as sw_heap_touched_read counts them. A map of untracked heaps has the slots' bytes as requested
 * ones.
 * Errors: those of sw_heap_touched_read where `touched` asks for it; SW_INVALID for a NULL array
 * with a capacity. After an error *map is as it was. */
SW_API sw_status sw_heap_map_read(sw_heap *heap, int touched, sw_heap_map *map);

/* Calls fn for each live object (address, requested bytes or slot bytes). Stops when fn returns
 * nonzero and returns that value. The heap is locked meanwhile: fn must not call into this heap,
 * nor fork (a fork waits for every heap's lock), nor wait for a thread that may do either. */
typedef int sw_object_fn(void *ptr, size_t bytes, uint32_t cls, void *arg);
SW_API int sw_heap_each_object(sw_heap *heap, sw_object_fn *fn, void *arg);

/* Checks every invariant of the whole heap (pages, page map, spans, bits, lists, caches, totals).
 * Returns SW_OK or SW_STATE; the text of the first broken one is in sw_last_error()->message.
 * No other thread may be inside a call on the heap. */
SW_API sw_status sw_heap_verify(sw_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
