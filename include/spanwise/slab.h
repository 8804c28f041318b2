/* SPDX-License-Identifier: Apache-2.0 */
/* Tiered slabs: slots of a few fixed sizes, 256 B, 1 KiB and 4 KiB unless the user says otherwise,
 * for objects that live as long as a connection: its state and its buffers.
 *
 *   sw_slabs *slabs;
 *   sw_slabs_create(NULL, &slabs);
 *   char *buffer = sw_slabs_alloc(slabs, 900, 0);     a slot of 1 KiB
 *   sw_slabs_free(slabs, buffer);
 *   sw_slabs_destroy(slabs);
 *
 * A request gets a slot of the smallest tier that holds it, the lowest free one of that tier: so
 * slots in use stay together, and what is behind the last of them can be given back
 * (sw_slabs_trim). A bitmap outside of the slots says which of them are free, where the slab
 * allocator of Bonwick ("The Slab Allocator: An Object-Caching Kernel Memory Allocator", 1994) has
 * a list. So every free is validated, and nothing is written into a free slot.
 *
 * A request above the largest tier is *over-tier*: it becomes an object of the heap. So does one
 * whose tier is full. Both are counted, and an alert may tell of them.
 *
 * Misuse (status.h): an address inside a slot is INTERIOR, a slot that is free already DOUBLE_FREE,
 * anything else that these slabs did not give FOREIGN.
 *
 * Thread rule: one thread at a time; with the option `locked` every thread may call. Structures:
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
    SW_SLABS_SLOT_MIN = 16,      /* bytes; and each slot size is a multiple of it */
    SW_SLABS_SLOT_MAX = 1 << 20, /* bytes */
};

/* The most slots of a tier. */
#define SW_SLABS_CAPACITY_MAX (UINT64_C(1) << 32)

typedef struct sw_slabs_options {
    uint32_t struct_bytes; /* sizeof(sw_slabs_options), for later versions */
    uint32_t tier_count;   /* 1 .. SW_SLABS_TIERS_MAX */
    /* Of each tier, ascending; multiples of SW_SLABS_SLOT_MIN. */
    uint64_t slot_bytes[SW_SLABS_TIERS_MAX];
    /* The most slots of each tier, 1 .. SW_SLABS_CAPACITY_MAX. Addresses for them are reserved, or
     * for fewer slots if the system refuses so many: the tier's figures tell how many. */
    uint64_t capacity;
    sw_heap *heap;   /* of what gets no slot; NULL: the default heap */
    uint32_t locked; /* 1: every thread may call, under a lock */
    uint32_t pad;
} sw_slabs_options;

/* Tiers of 256, 1024 and 4096 bytes, at most 2^20 slots each, default heap, not locked. */
SW_API void sw_slabs_options_init(sw_slabs_options *options);

/* Slabs without a slot in use. options: NULL for those of sw_slabs_options_init. Errors: SW_INVALID
 * for options outside their limits, SW_NOMEM. */
SW_API sw_status sw_slabs_create(const sw_slabs_options *options, sw_slabs **out);
/* Ends the slabs, and frees everything that they gave, also objects of the heap. NULL is
 * ignored. */
SW_API void sw_slabs_destroy(sw_slabs *slabs);

/* size bytes, aligned to 16; size 0 gives a slot of the smallest tier. flags: SW_ZERO, they are
 * zeroed. NULL: the heap that should serve an over-tier request, or one of a full tier, has no
 * memory (errno ENOMEM); or misuse of the handle (EINVAL). */
SW_API void *sw_slabs_alloc(sw_slabs *slabs, size_t size, unsigned flags);
/* Takes back what sw_slabs_alloc gave. NULL is ignored. SW_INVALID after misuse. */
SW_API sw_status sw_slabs_free(sw_slabs *slabs, void *ptr);
/* Bytes that may be used at ptr: those of its slot. 0 for NULL, and after misuse. */
SW_API size_t sw_slabs_usable_size(sw_slabs *slabs, const void *ptr);
/* Gives the memory behind the last slot in use of each tier back to the system; returns the
 * bytes. */
SW_API size_t sw_slabs_trim(sw_slabs *slabs);

/* --- fall-backs ------------------------------------------------------------------------------- */

/* Why a request got no slot. */
typedef enum sw_slabs_reason {
    SW_SLABS_OVER_TIER = 1, /* it is larger than the slots of the largest tier */
    /* All slots of its tier are in use, or the system refuses memory for another. */
    SW_SLABS_FULL = 2,
} sw_slabs_reason;

/* What an alert tells. */
typedef struct sw_slabs_alert {
    uint32_t reason; /* sw_slabs_reason */
    uint32_t tier;   /* index of the full tier; over-tier: how many tiers there are */
    uint64_t size;   /* bytes of the request */
    uint64_t count;  /* requests that have got no slot so far, this one included */
} sw_slabs_alert;

typedef void sw_slabs_alert_fn(const sw_slabs_alert *alert, void *context);
/* Calls alert(.., context) at the first request that gets no slot and at every `every`-th one after
 * that, in the thread of the request, with no lock held; it may call the slabs. alert NULL: nothing
 * is called, as at first. Call it before another thread knows the slabs. Errors: SW_INVALID, every
 * is 0. */
SW_API sw_status sw_slabs_set_alert(sw_slabs *slabs, sw_slabs_alert_fn *alert, void *context,
                                    uint64_t every);

/* --- figures ---------------------------------------------------------------------------------- */

typedef struct sw_slabs_stats {
    uint64_t tiers;       /* how many there are */
    uint64_t used_slots;  /* of all tiers */
    uint64_t used_bytes;  /* these slots */
    uint64_t held_bytes;  /* memory of the tiers */
    uint64_t over_tier;   /* requests that were larger than any slot; since the creation */
    uint64_t full;        /* requests whose tier was full; since the creation */
    uint64_t own_objects; /* of the heap, that are in use because of either */
} sw_slabs_stats;

SW_API sw_status sw_slabs_get_stats(sw_slabs *slabs, sw_slabs_stats *out);

/* Figures of one tier. */
typedef struct sw_slab_tier_stats {
    uint64_t slot_bytes;
    uint64_t capacity; /* slots that there are addresses for */
    uint64_t used_slots;
    uint64_t peak_used_slots; /* the most so far */
    uint64_t allocs;          /* requests that got a slot; since the creation */
    /* The sum of their sizes; what allocs * slot_bytes exceeds it by is internal waste. */
    uint64_t requested_bytes;
    uint64_t held_bytes; /* memory of the tier */
} sw_slab_tier_stats;

/* Figures of tier 0, 1, ... Errors: SW_INVALID, there is no such tier. */
SW_API sw_status sw_slabs_get_tier(sw_slabs *slabs, uint32_t tier, sw_slab_tier_stats *out);

#ifdef __cplusplus
}
#endif
#endif
