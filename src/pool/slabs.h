/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of tiered slabs: tiers (slab_tier.h), and heap objects in place of slots.
 *
 * Used by slabs.c alone. Design: docs/design/pool.md, "Tiered slabs".
 */
#ifndef SW_POOL_SLABS_H
#define SW_POOL_SLABS_H

#include "ds/fork_locks.h"
#include "os/os.h"
#include "pool/address_set.h"
#include "pool/slab_tier.h"
#include "spanwise/slab.h"

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
