/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of tiered slabs: tiers, and heap objects in place of slots.
 *
 * Used by slabs.c alone. Design: docs/design/pool.md, "Tiered slabs".
 */
#ifndef SW_POOL_SLABS_H
#define SW_POOL_SLABS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "ds/handle.h"
#include "ds/summary.h"
#include "os/os.h"
#include "pool/address_set.h"
#include "spanwise/fast_abi.h"
#include "spanwise/slab.h"

/* --- tiers ------------------------------------------------------------------------------------ */

/* One tier of slabs: slots of one size at consecutive, reserved addresses.
 *
 *   | slot 0 | slot 1 | ... | slot frontier - 1 | never used  | no memory yet ...  |
 *   base                                        frontier      held_bytes           reserved_bytes
 *
 * A slot below the frontier is in use, or its bit in `freed` is set. A bit of `groups` is set if
 * its word of `freed` is not 0, so a word of `groups` covers a *group* of 4096 slots. No slot
 * before the group `first` is free, so one word of `groups` and one of `freed` lead to the lowest
 * free slot without a data-dependent branch. The set `others` has the later groups with a free
 * slot. Memory is committed in slabs of SW_SLAB_BYTES, and purged from the end. */

enum {
    SW_SLAB_BYTES = 64 * 1024,
    SW_SLAB_UNIT = 8, /* bytes; offsets and slots are counted in it to divide them */
};

/* Maximum bytes of addresses of a tier, so that the division by multiplication is exact. */
#define SW_SLAB_RESERVED_MAX (UINT64_C(1) << 49)

/* Used by one thread, or under the lock of the slabs.
 *   frontier <= capacity;  frontier * slot_bytes <= held_bytes <= reserved_bytes
 *   capacity == 0 or reserved_bytes <= SW_SLAB_RESERVED_MAX
 *   capacity * slot_bytes <= reserved_bytes
 *   allocs - frees slots are in use, and the others below the frontier are free
 *   frontier <= peak_slots <= allocs + 1, as the newest slot is free before it is used
 *   bit i % 64 of groups[i / 64] is set iff freed[i] != 0
 *   groups[i] == 0 for i < first;  for i > first it is not 0 iff i is a member of others
 */
typedef struct sw_slab_tier {
    uintptr_t base;
    uint64_t reserved_bytes;
    uint64_t slot_bytes;
    uint64_t magic; /* 2^64 / (slot_bytes / SW_SLAB_UNIT), rounded up */
    uint64_t *freed, *groups;
    uint64_t first; /* index in `groups` of the first group */
    uint64_t frontier;
    uint64_t allocs, requested_bytes; /* requests that got a slot */
    uint64_t frees;
    uint64_t held_bytes;
    uint64_t peak_slots; /* maximum number in use: the highest frontier */
    uint64_t capacity;
    sw_summary others; /* indices in `groups` */
    bool is_placed;    /* base is that of a place (os/os.h) and not of a reservation */
} sw_slab_tier;

/* The state of an address in a tier. */
typedef enum sw_slab_state {
    SW_SLAB_USED,     /* the beginning of a slot in use */
    SW_SLAB_INTERIOR, /* inside a slot */
    SW_SLAB_FREE,     /* a slot that was freed */
    SW_SLAB_UNGIVEN,  /* at or after the frontier */
} sw_slab_state;

/* Reserves addresses for `capacity` slots, or for fewer if the system refuses. False: no memory. */
bool sw_slab_tier_begin(sw_slab_tier *tier, uint64_t slot_bytes, uint64_t capacity);
/* Makes the sentinel after the last tier. It has no slot, but every size is at most its slot_bytes,
 * and every address but NULL is in its range. It needs no end. */
void sw_slab_tier_init_last(sw_slab_tier *tier);
/* Releases addresses and memory. Does nothing if the tier never began. */
void sw_slab_tier_end(sw_slab_tier *tier);
/* Makes the next group with a free slot the first one; if there is none, moves the frontier by a
 * slot. False: all slots are in use, or there is no memory for another. */
bool sw_slab_tier_refill(sw_slab_tier *tier);
/* Called when a full group gets a free slot: it becomes the first group, or a member of others. */
void sw_slab_tier_note(sw_slab_tier *tier, uint64_t group);
/* Purges the memory after the last slot in use; returns the bytes. */
uint64_t sw_slab_tier_trim(sw_slab_tier *tier);

const char *sw_slab_tier_check(const sw_slab_tier *tier);

static inline uint64_t sw_slab_tier_used(const sw_slab_tier *tier) {
    return tier->allocs - tier->frees;
}

static inline bool sw_slab_tier_has_free(const sw_slab_tier *tier, uint64_t index) {
    return (tier->freed[index / 64] >> index % 64 & 1) != 0;
}

/* Returns whether the first group has a free slot. */
static sw_always_inline bool sw_slab_tier_is_open(const sw_slab_tier *tier) {
    return tier->groups[tier->first] != 0;
}

/* Takes the lowest free slot, for a request of size bytes. The first group has one
 * (sw_slab_tier_is_open). */
static sw_always_inline void *sw_slab_tier_take_lowest(sw_slab_tier *tier, size_t size) {
    sw_check2(sw_slab_tier_check(tier));
    uint64_t group = tier->groups[tier->first], in_group = sw_ctz(group);
    uint64_t word = tier->first * 64 + in_group, bits = tier->freed[word];
    uint64_t left = bits & (bits - 1);
    tier->freed[word] = left;
    tier->groups[tier->first] = group & ~((uint64_t)(left == 0) << in_group);
    tier->allocs++;
    tier->requested_bytes += size;
    return (void *)(tier->base + (word * 64 + sw_ctz(bits)) * tier->slot_bytes);
}

/* As sw_slab_tier_take_lowest, for any tier. NULL: all slots are in use, or there is no memory for
 * another. */
static inline void *sw_slab_tier_take(sw_slab_tier *tier, size_t size) {
    if (!sw_slab_tier_is_open(tier) && !sw_slab_tier_refill(tier)) return NULL;
    return sw_slab_tier_take_lowest(tier, size);
}

static sw_always_inline bool sw_slab_tier_has(const sw_slab_tier *tier, const void *ptr) {
    return (uintptr_t)ptr - tier->base < tier->reserved_bytes;
}

/* Returns whether an offset below SW_SLAB_RESERVED_MAX is the start of a slot; *index is the slot
 * that contains it.
 *
 * The division is a multiplication: n * magic = n / d * 2^64 + n * e / d, e < d, for n units and
 * slots of d units. The upper half is the quotient while n * e < 2^64, and the lower half is below
 * magic iff d divides n (Lemire, Kaser, Kurz: "Faster remainder by direct computation", 2019). Here
 * n < 2^46 and d <= 2^17. */
static sw_always_inline bool sw_slab_tier_index(const sw_slab_tier *tier, uint64_t offset,
                                                uint64_t *index) {
    sw_product product = (sw_product)(offset / SW_SLAB_UNIT) * tier->magic;
    *index = (uint64_t)(product >> 64);
    return (uint64_t)product < tier->magic && offset % SW_SLAB_UNIT == 0;
}

/* Classifies an address of the tier; *index is the slot that contains it. */
static sw_always_inline sw_slab_state sw_slab_tier_locate(const sw_slab_tier *tier, const void *ptr,
                                                          uint64_t *index) {
    bool is_slot = sw_slab_tier_index(tier, (uintptr_t)ptr - tier->base, index);
    if (sw_unlikely(*index >= tier->frontier)) return SW_SLAB_UNGIVEN;
    if (sw_unlikely(!is_slot)) return SW_SLAB_INTERIOR;
    return sw_unlikely(sw_slab_tier_has_free(tier, *index)) ? SW_SLAB_FREE : SW_SLAB_USED;
}

/* Frees a slot in use, by its index. */
static sw_always_inline void sw_slab_tier_give(sw_slab_tier *tier, uint64_t index) {
    uint64_t word = index / 64, group = word / 64, before = tier->groups[group];
    tier->freed[word] |= UINT64_C(1) << index % 64;
    tier->groups[group] = before | UINT64_C(1) << word % 64;
    tier->frees++;
    if (sw_unlikely(before == 0) && group != tier->first) sw_slab_tier_note(tier, group);
    sw_check2(sw_slab_tier_check(tier));
}

/* --- slabs ------------------------------------------------------------------------------------ */

/* All fields belong to the thread that may call the slabs or, if they are locked, to the holder of
 * the lock.
 *   1 <= tier_count <= SW_SLABS_TIERS_MAX;  the tiers' slot_bytes ascend
 *   tiers[tier_count] is the sentinel: each size is at most its slot_bytes, and each address is in
 *     its
 *     range, so that both searches end without checking tier_count
 *   is_guarded == (locked != 0 || a memory checker is active)
 *   own.count <= over_tier + full;  every >= 1 or alert == NULL */
struct sw_slabs {
    uint64_t mark; /* ds/handle.h */
    uint32_t tier_count;
    uint32_t is_guarded;
    sw_slab_tier tiers[SW_SLABS_TIERS_MAX + 1];
    uint32_t locked;
    uint32_t is_watched;
    sw_heap *heap;      /* NULL: the default one */
    sw_address_set own; /* heap objects in place of slots */
    uint64_t over_tier, full;
    sw_slabs_alert_fn *alert; /* NULL: none; then its argument, and its period */
    void *context;
    uint64_t every;
    sw_os_lock lock;
    sw_fork_lock fork;
};

const char *sw_slabs_record_check(const struct sw_slabs *slabs);

#endif
