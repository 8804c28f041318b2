/* SPDX-License-Identifier: Apache-2.0 */
/* Tiered slabs: slots of a few fixed sizes, by default 256 B, 1 KiB and 4 KiB, for objects that
 * live as long as a connection, such as its state and buffers.
 *
 *   sw_slabs *slabs;
 *   sw_slabs_create(NULL, &slabs);
 *   char *buffer = sw_slabs_alloc(slabs, 900, 0);     a slot of 1 KiB
 *   sw_slabs_free(slabs, buffer);
 *   sw_slabs_destroy(slabs);
 *
 * A request gets the lowest free slot of the smallest sufficient tier, so that slots in use stay
 * together and the memory after the last one can be returned (sw_slabs_trim). Free slots are in a
 * separate bitmap, not in a list as in Bonwick's "The Slab Allocator: An Object-Caching Kernel
 * Memory Allocator" (1994). Every free is therefore validated, and nothing is written into a free
 * slot.
 *
 * A request above the largest tier (*over-tier*), or whose tier is full, becomes an object of the
 * heap. Both are counted and may raise an alert.
 *
 * Misuse (status.h): an address inside a slot is INTERIOR, a free slot DOUBLE_FREE, any other
 * address FOREIGN.
 *
 * Thread rule: one thread at a time; with the option `locked` any thread may call. Structures:
 * docs/design/pool.md.
 */
#ifndef SPANWISE_SLAB_H
#define SPANWISE_SLAB_H

#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_slabs sw_slabs;

enum {
    SW_SLABS_TIERS_MAX = 8,
    SW_SLABS_SLOT_MIN = 16,      /* bytes; slot sizes are multiples of it */
    SW_SLABS_SLOT_MAX = 1 << 20, /* bytes */
};

/* Maximum slots of a tier. */
#define SW_SLABS_CAPACITY_MAX (UINT64_C(1) << 32)

typedef struct sw_slabs_options {
    uint32_t struct_bytes; /* sizeof(sw_slabs_options), for later versions */
    uint32_t tier_count;   /* 1 .. SW_SLABS_TIERS_MAX */
    /* Per tier, ascending; multiples of SW_SLABS_SLOT_MIN. */
    uint64_t slot_bytes[SW_SLABS_TIERS_MAX];
    /* Maximum slots of each tier, 1 .. SW_SLABS_CAPACITY_MAX. Addresses are reserved for them, or
     * for fewer if the system refuses; see sw_slab_tier_stats.capacity. */
    uint64_t capacity;
    sw_heap *heap;   /* for requests without a slot; NULL: the default heap */
    uint32_t locked; /* 1: any thread may call, under a lock */
    uint32_t pad;
} sw_slabs_options;

/* Set the defaults: tiers of 256, 1024 and 4096 bytes, 2^20 slots each, default heap, not
 * locked. */
SW_API void sw_slabs_options_init(sw_slabs_options *options);

/* Create slabs. options: NULL for the defaults. Errors: SW_INVALID: options out of range;
 * SW_NOMEM. */
SW_API sw_status sw_slabs_create(const sw_slabs_options *options, sw_slabs **out);
/* Free the slabs and all their allocations, including objects of the heap. NULL is ignored. */
SW_API void sw_slabs_destroy(sw_slabs *slabs);

/* Allocate `size` bytes, aligned to 16; size 0: a slot of the smallest tier. flags: SW_ZERO:
 * zeroed. NULL: no slot, and the heap has no memory (errno ENOMEM); or misuse of the handle
 * (EINVAL). */
SW_API void *sw_slabs_alloc(sw_slabs *slabs, size_t size, unsigned flags);
/* Free an allocation of sw_slabs_alloc. NULL is ignored. Errors: SW_INVALID after misuse. */
SW_API sw_status sw_slabs_free(sw_slabs *slabs, void *ptr);
/* Return the bytes of the allocation's slot; 0 for NULL, and after misuse. */
SW_API size_t sw_slabs_usable_size(sw_slabs *slabs, const void *ptr);
/* Return the memory after each tier's last used slot to the system; return the bytes. */
SW_API size_t sw_slabs_trim(sw_slabs *slabs);

/* --- fallbacks -------------------------------------------------------------------------------- */

/* Why a request got no slot. */
typedef enum sw_slabs_reason {
    SW_SLABS_OVER_TIER = 1, /* larger than the slots of the largest tier */
    /* All slots of its tier are in use, or the system refuses memory for more. */
    SW_SLABS_FULL = 2,
} sw_slabs_reason;

typedef struct sw_slabs_alert {
    uint32_t reason; /* sw_slabs_reason */
    uint32_t tier;   /* index of the full tier; number of tiers if over-tier */
    uint64_t size;   /* bytes of the request */
    uint64_t count;  /* requests without a slot so far, including this one */
} sw_slabs_alert;

typedef void sw_slabs_alert_fn(const sw_slabs_alert *alert, void *context);
/* Call alert(.., context) for the first request without a slot, and for every `every`-th one after
 * that, in the thread of the request and without a lock; it may call the slabs. alert NULL, the
 * default: none. Call before other threads use the slabs. Errors: SW_INVALID: every is 0. */
SW_API sw_status sw_slabs_set_alert(sw_slabs *slabs, sw_slabs_alert_fn *alert, void *context,
                                    uint64_t every);

/* --- figures ---------------------------------------------------------------------------------- */

typedef struct sw_slabs_stats {
    uint64_t tiers;       /* number of tiers */
    uint64_t used_slots;  /* of all tiers */
    uint64_t used_bytes;  /* bytes of these slots */
    uint64_t held_bytes;  /* memory of the tiers */
    uint64_t over_tier;   /* requests larger than any slot; total */
    uint64_t full;        /* requests whose tier was full; total */
    uint64_t own_objects; /* live objects of the heap because of either */
} sw_slabs_stats;

SW_API sw_status sw_slabs_get_stats(sw_slabs *slabs, sw_slabs_stats *out);

/* Statistics of one tier. */
typedef struct sw_slab_tier_stats {
    uint64_t slot_bytes;
    uint64_t capacity; /* slots with reserved addresses */
    uint64_t used_slots;
    uint64_t peak_used_slots; /* maximum so far */
    uint64_t allocs;          /* requests served by a slot; total */
    /* Sum of their sizes; allocs * slot_bytes minus it is internal fragmentation. */
    uint64_t requested_bytes;
    uint64_t held_bytes; /* memory of the tier */
} sw_slab_tier_stats;

/* Read the statistics of a tier, counted from 0. Errors: SW_INVALID: no such tier. */
SW_API sw_status sw_slabs_get_tier(sw_slabs *slabs, uint32_t tier, sw_slab_tier_stats *out);

#ifdef __cplusplus
}
#endif
#endif
