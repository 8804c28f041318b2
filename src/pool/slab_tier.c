/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers of slabs (slabs.h). */
#include "pool/slabs.h"

#include "base/base.h"

/* --- life ------------------------------------------------------------------------------------- */

/* Returns the words of `freed` and of `groups`; those of the summary follow. */
static uint64_t freed_words(uint64_t capacity) { return sw_div_up(capacity, 64); }
static uint64_t groups_words(uint64_t capacity) { return sw_div_up(freed_words(capacity), 64); }

static uint64_t words_bytes(uint64_t capacity) {
    uint64_t groups = groups_words(capacity);
    return (freed_words(capacity) + groups + sw_summary_words(groups)) * sizeof(uint64_t);
}

/* Reserves addresses for all slots of the tier: a place, whose first slab is mapped, or for a
 * longer tier a reservation. */
static void reserve(sw_slab_tier *tier) {
    if (tier->reserved_bytes <= UINT64_C(1) << SW_OS_PLACE_LOG2) {
        tier->base = (uintptr_t)sw_os_place(tier->reserved_bytes, SW_SLAB_BYTES);
        tier->is_placed = tier->base != 0;
    } else {
        tier->base = (uintptr_t)sw_os_reserve(tier->reserved_bytes, sw_os_page_bytes());
    }
}

/* Commits memory of the tier. The first slab of a place is committed already. */
static bool commit(const sw_slab_tier *tier, uint64_t from, uint64_t bytes) {
    uint64_t ready = tier->is_placed && from == 0 ? SW_SLAB_BYTES : 0;
    void *p = (void *)(tier->base + from + ready);
    if (bytes <= ready) return true;
    return tier->is_placed ? sw_os_map_at(p, bytes - ready) == SW_OS_MAPPED
                           : sw_os_commit(p, bytes);
}

static bool begin_with(sw_slab_tier *tier, uint64_t slot_bytes, uint64_t capacity) {
    uint64_t bytes = sw_align_up(capacity * slot_bytes, SW_SLAB_BYTES);
    if (bytes > SW_SLAB_RESERVED_MAX) return false;
    *tier = (sw_slab_tier){.reserved_bytes = bytes, .slot_bytes = slot_bytes, .capacity = capacity};
    tier->magic = UINT64_MAX / (slot_bytes / SW_SLAB_UNIT) + 1;
    tier->freed = sw_os_map(words_bytes(capacity));
    reserve(tier);
    if (tier->freed != NULL && tier->base != 0) {
        uint64_t groups = groups_words(capacity);
        tier->groups = tier->freed + freed_words(capacity);
        sw_summary_init(&tier->others, tier->groups + groups, groups);
        return true;
    }
    sw_slab_tier_end(tier);
    return false;
}

bool sw_slab_tier_begin(sw_slab_tier *tier, uint64_t slot_bytes, uint64_t capacity) {
    for (; capacity > 0; capacity /= 2)
        if (begin_with(tier, slot_bytes, capacity)) return true;
    return false;
}

void sw_slab_tier_init_last(sw_slab_tier *tier) {
    static uint64_t no_slot; /* never written */
    *tier = (sw_slab_tier){.base = 1, .reserved_bytes = UINT64_MAX, .slot_bytes = UINT64_MAX};
    tier->freed = tier->groups = &no_slot;
    sw_summary_init(&tier->others, &no_slot, 1);
}

void sw_slab_tier_end(sw_slab_tier *tier) {
    if (tier->base != 0) {
        sw_os_watch_allow((const void *)tier->base, tier->held_bytes);
        uint64_t mapped = sw_max_u64(tier->held_bytes, SW_SLAB_BYTES);
        (void)sw_os_release((void *)tier->base, tier->is_placed ? mapped : tier->reserved_bytes);
    }
    if (tier->freed != NULL) (void)sw_os_release(tier->freed, words_bytes(tier->capacity));
    *tier = (sw_slab_tier){0};
}

/* --- slots ------------------------------------------------------------------------------------ */

/* Commits memory for one more slot if needed. False: the system refuses. */
static bool grow(sw_slab_tier *tier) {
    uint64_t end = (tier->frontier + 1) * tier->slot_bytes;
    if (end <= tier->held_bytes) return true;
    uint64_t bytes = sw_align_up(end, SW_SLAB_BYTES) - tier->held_bytes;
    void *slab = (void *)(tier->base + tier->held_bytes);
    if (!commit(tier, tier->held_bytes, bytes)) return false;
    sw_os_watch_forbid(slab, bytes);
    tier->held_bytes += bytes;
    return true;
}

/* Adds a free slot at the frontier. All others are in use. */
static bool move_frontier(sw_slab_tier *tier) {
    uint64_t index = tier->frontier, word = index / 64;
    if (index == tier->capacity || !grow(tier)) return false;
    tier->freed[word] = UINT64_C(1) << index % 64;
    tier->groups[word / 64] = UINT64_C(1) << word % 64;
    tier->first = word / 64;
    tier->frontier++;
    if (tier->frontier > tier->peak_slots) tier->peak_slots = tier->frontier;
    return true;
}

bool sw_slab_tier_refill(sw_slab_tier *tier) {
    sw_check2(sw_slab_tier_check(tier));
    if (sw_summary_is_empty(&tier->others)) return move_frontier(tier);
    tier->first = sw_summary_first(&tier->others);
    sw_summary_remove(&tier->others, tier->first);
    return true;
}

void sw_slab_tier_note(sw_slab_tier *tier, uint64_t group) {
    if (group > tier->first) {
        sw_summary_add(&tier->others, group);
        return;
    }
    if (sw_slab_tier_is_open(tier)) sw_summary_add(&tier->others, tier->first);
    tier->first = group;
}

/* --- memory that goes back -------------------------------------------------------------------- */

/* Makes a free slot one that was never used. */
static void forget(sw_slab_tier *tier, uint64_t index) {
    uint64_t word = index / 64, group = word / 64;
    tier->freed[word] &= ~(UINT64_C(1) << index % 64);
    if (tier->freed[word] != 0) return;
    tier->groups[group] &= ~(UINT64_C(1) << word % 64);
    if (tier->groups[group] == 0 && group != tier->first) sw_summary_remove(&tier->others, group);
}

/* Lowers the frontier to the end of the last slot in use. */
static void lower_frontier(sw_slab_tier *tier) {
    while (tier->frontier > 0 && sw_slab_tier_has_free(tier, tier->frontier - 1))
        forget(tier, --tier->frontier);
}

/* Uncommits purged memory, except the first slab of a place. */
static bool uncommit(const sw_slab_tier *tier, uint64_t from, uint64_t bytes) {
    uint64_t stays = tier->is_placed && from == 0 ? SW_SLAB_BYTES : 0;
    void *p = (void *)(tier->base + from + stays);
    if (bytes <= stays) return true;
    return tier->is_placed ? sw_os_unmap_at(p, bytes - stays) : sw_os_uncommit(p, bytes);
}

uint64_t sw_slab_tier_trim(sw_slab_tier *tier) {
    lower_frontier(tier);
    uint64_t kept = sw_align_up(tier->frontier * tier->slot_bytes, SW_SLAB_BYTES);
    uint64_t bytes = tier->held_bytes - kept;
    void *end = (void *)(tier->base + kept);
    if (bytes == 0) return 0;
    sw_os_watch_allow(end, bytes);
    bool is_gone = sw_os_purge(end, bytes) && uncommit(tier, kept, bytes);
    if (is_gone)
        tier->held_bytes = kept;
    else
        sw_os_watch_forbid(end, bytes);
    sw_check2(sw_slab_tier_check(tier));
    return is_gone ? bytes : 0;
}

/* --- rules ------------------------------------------------------------------------------------ */

static bool is_full(const sw_slab_tier *tier) {
    return !sw_slab_tier_is_open(tier) && sw_summary_is_empty(&tier->others);
}

/* Checks the rules of groups that are cheap to check. */
static const char *check_groups(const sw_slab_tier *tier) {
    uint64_t first = tier->first, group = tier->groups[first];
    const char *broken = SW_RULE(first == 0 || tier->groups[first - 1] == 0);
    if (broken == NULL && group != 0)
        broken = SW_RULE(tier->freed[first * 64 + sw_ctz(group)] != 0);
    return broken ?: sw_summary_check(&tier->others);
}

const char *sw_slab_tier_check(const sw_slab_tier *tier) {
    return SW_RULE(tier->frontier <= tier->capacity)
               ?: SW_RULE(tier->frontier * tier->slot_bytes <= tier->held_bytes)
               ?: SW_RULE(tier->held_bytes <= tier->reserved_bytes)
               ?: SW_RULE(tier->capacity == 0 || tier->reserved_bytes <= SW_SLAB_RESERVED_MAX)
               ?: SW_RULE(tier->frees <= tier->allocs)
               ?: SW_RULE(sw_slab_tier_used(tier) <= tier->frontier)
               ?: SW_RULE((sw_slab_tier_used(tier) == tier->frontier) == is_full(tier))
               ?: SW_RULE(tier->frontier <= tier->peak_slots)
               ?: SW_RULE(tier->peak_slots <= tier->allocs + 1)
               ?: check_groups(tier);
}
