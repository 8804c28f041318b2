/* SPDX-License-Identifier: Apache-2.0 */
/* Tiered slabs (spanwise/slab.h, slabs.h). */
#include "pool/slabs.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "ds/handle.h"
#include "heap/target.h"

#define MARK offsetof(sw_slabs, mark)

/* --- life ------------------------------------------------------------------------------------- */

void sw_slabs_options_init(sw_slabs_options *options) {
    if (options == NULL) return;
    *options = (sw_slabs_options){.struct_bytes = sizeof *options,
                                  .tier_count = 3,
                                  .slot_bytes = {256, 1024, 4096},
                                  .capacity = 1 << 20};
}

static sw_status check_tier(const sw_slabs_options *options, uint32_t tier) {
    uint64_t bytes = options->slot_bytes[tier];
    unsigned long long shown = bytes;
    if (bytes < SW_SLABS_SLOT_MIN || bytes > SW_SLABS_SLOT_MAX || bytes % SW_SLABS_SLOT_MIN != 0)
        return sw_fail(SW_INVALID, "slabs_create",
                       "slots of %llu bytes: use a multiple of 16 up to 2^20", shown);
    if (tier > 0 && bytes <= options->slot_bytes[tier - 1])
        return sw_fail(SW_INVALID, "slabs_create",
                       "slots of %llu bytes after slots of %llu: give ascending sizes", shown,
                       (unsigned long long)options->slot_bytes[tier - 1]);
    return SW_OK;
}

static sw_status check_options(const sw_slabs_options *options) {
    if (options->struct_bytes != sizeof *options)
        return sw_fail(SW_INVALID, "slabs_create",
                       "options of %u bytes: fill them with sw_slabs_options_init first",
                       options->struct_bytes);
    if (options->tier_count == 0 || options->tier_count > SW_SLABS_TIERS_MAX)
        return sw_fail(SW_INVALID, "slabs_create", "%u tiers: use 1 to 8", options->tier_count);
    if (options->capacity == 0 || options->capacity > SW_SLABS_CAPACITY_MAX)
        return sw_fail(SW_INVALID, "slabs_create", "a capacity of %llu slots: use 1 to 2^32",
                       (unsigned long long)options->capacity);
    sw_status status = SW_OK;
    for (uint32_t i = 0; i < options->tier_count && status == SW_OK; i++)
        status = check_tier(options, i);
    return status;
}

/* Releases the tiers that have begun, and the set. */
static void release(sw_slabs *slabs) {
    for (uint32_t i = 0; i < slabs->tier_count; i++) sw_slab_tier_end(&slabs->tiers[i]);
    sw_address_set_end(&slabs->own);
}

sw_status sw_slabs_create(const sw_slabs_options *options, sw_slabs **out) {
    if (out == NULL) return sw_fail_null("slabs_create", "out");
    sw_slabs_options usual;
    sw_slabs_options_init(&usual);
    if (options == NULL) options = &usual;
    sw_status status = check_options(options);
    if (status != SW_OK) return status;
    sw_slabs *slabs = sw_os_map(sizeof *slabs);
    bool has_tiers = slabs != NULL;
    for (uint32_t i = 0; has_tiers && i < options->tier_count; i++) {
        slabs->tier_count = i + 1;
        has_tiers = sw_slab_tier_begin(&slabs->tiers[i], options->slot_bytes[i], options->capacity);
    }
    if (!has_tiers) {
        if (slabs != NULL) release(slabs);
        if (slabs != NULL) (void)sw_os_release(slabs, sizeof *slabs);
        return sw_fail(SW_NOMEM, "slabs_create", "no memory for %u tiers", options->tier_count);
    }
    sw_slab_tier_init_last(&slabs->tiers[slabs->tier_count]);
    slabs->heap = options->heap;
    slabs->locked = options->locked != 0;
    slabs->is_watched = sw_os_is_watched();
    slabs->is_guarded = slabs->locked | slabs->is_watched;
    if (slabs->locked != 0) sw_fork_lock_add(&slabs->fork, &slabs->lock, SW_FORK_SLABS);
    sw_handle_begin(&slabs->mark, SW_HANDLE_SLABS);
    *out = slabs;
    return SW_OK;
}

static sw_heap *heap_of(const sw_slabs *slabs) {
    return slabs->heap != NULL ? slabs->heap : sw_heap_default();
}

void sw_slabs_destroy(sw_slabs *slabs) {
    if (slabs == NULL || !sw_handle_check(slabs, MARK, SW_HANDLE_SLABS, "slabs_destroy")) return;
    if (!sw_handle_try_end(&slabs->mark, SW_HANDLE_SLABS)) return;
    sw_fork_lock_remove(&slabs->fork);
    for (uint64_t i = 0; slabs->own.slots != NULL && i <= slabs->own.mask; i++)
        if (slabs->own.slots[i] != NULL)
            sw_heap_free(heap_of(slabs), (void *)(uintptr_t)slabs->own.slots[i]);
    release(slabs);
    sw_handle_retire(slabs, sizeof *slabs, sizeof slabs->mark, SW_HANDLE_SLABS);
}

sw_status sw_slabs_set_alert(sw_slabs *slabs, sw_slabs_alert_fn *alert, void *context,
                             uint64_t every) {
    sw_status status = sw_handle_status(slabs, MARK, SW_HANDLE_SLABS, "slabs_set_alert");
    if (status != SW_OK) return status;
    if (every == 0) return sw_fail(SW_INVALID, "slabs_set_alert", "every is 0: use 1 or more");
    slabs->alert = alert;
    slabs->context = context;
    slabs->every = every;
    return SW_OK;
}

/* --- the lock --------------------------------------------------------------------------------- */

static sw_always_inline void enter(sw_slabs *slabs) {
    if (sw_unlikely(slabs->locked != 0)) sw_os_lock_enter(&slabs->lock);
}
static sw_always_inline void leave(sw_slabs *slabs) {
    if (sw_unlikely(slabs->locked != 0)) sw_os_lock_leave(&slabs->lock);
}

/* --- objects of the heap ---------------------------------------------------------------------- */

/* Records a new object. False: no memory for the record. */
static bool add_own(sw_slabs *slabs, const void *object) {
    enter(slabs);
    sw_check2(sw_slabs_record_check(slabs));
    bool is_noted = sw_address_set_reserve(&slabs->own, slabs->own.count + 1) &&
                    sw_address_set_insert(&slabs->own, object);
    leave(slabs);
    return is_noted;
}

/* Allocates an object of the heap for a request without a slot, which is counted already. No lock
 * is held. */
static void *alloc_own(sw_slabs *slabs, const sw_slabs_alert *alert, unsigned flags) {
    sw_heap *heap = heap_of(slabs);
    void *object = heap == NULL ? NULL : sw_heap_alloc(heap, alert->size, flags & SW_ZERO);
    if (object != NULL && !add_own(slabs, object)) {
        sw_heap_free(heap, object);
        object = NULL;
    }
    if (slabs->alert != NULL && (alert->count - 1) % slabs->every == 0)
        slabs->alert(alert, slabs->context);
    if (object == NULL) errno = ENOMEM;
    return object;
}

/* --- requests --------------------------------------------------------------------------------- */

/* Returns the smallest sufficient tier, or the sentinel after the last one. */
static sw_always_inline sw_slab_tier *tier_for(sw_slabs *slabs, size_t size) {
    sw_slab_tier *tier = slabs->tiers;
    while (tier->slot_bytes < size) tier++;
    return tier;
}

/* sw_slabs_alloc with the lock, a memory checker, and the fallback to the heap. */
static sw_noinline void *alloc_slow(sw_slabs *slabs, size_t size, unsigned flags) {
    sw_slabs_alert alert = {.reason = SW_SLABS_FULL, .size = size};
    enter(slabs);
    sw_slab_tier *tier = tier_for(slabs, size);
    void *slot = sw_slab_tier_take(tier, size);
    if (slot == NULL) {
        alert.tier = (uint32_t)(tier - slabs->tiers);
        if (alert.tier == slabs->tier_count) alert.reason = SW_SLABS_OVER_TIER;
        ++*(alert.reason == SW_SLABS_FULL ? &slabs->full : &slabs->over_tier);
        alert.count = slabs->over_tier + slabs->full;
    } else if (slabs->is_watched != 0) {
        sw_os_watch_allow(slot, tier->slot_bytes);
    }
    leave(slabs);
    if (slot == NULL) return alloc_own(slabs, &alert, flags);
    return (flags & SW_ZERO) != 0 ? memset(slot, 0, size) : slot;
}

void *sw_slabs_alloc(sw_slabs *slabs, size_t size, unsigned flags) {
    if (sw_unlikely(!sw_handle_check(slabs, MARK, SW_HANDLE_SLABS, "slabs_alloc"))) {
        errno = EINVAL;
        return NULL;
    }
    if (sw_unlikely(slabs->is_guarded != 0)) return alloc_slow(slabs, size, flags);
    sw_slab_tier *tier = tier_for(slabs, size);
    if (sw_unlikely(!sw_slab_tier_is_open(tier)) && !sw_slab_tier_refill(tier))
        return alloc_slow(slabs, size, flags);
    void *slot = sw_slab_tier_take_lowest(tier, size);
    return (flags & SW_ZERO) != 0 ? memset(slot, 0, size) : slot;
}

/* Finds the tier whose range contains ptr, or the sentinel after the last one, the state of ptr
 * there, and the index of its slot. */
static sw_always_inline sw_slab_tier *find_tier(sw_slabs *slabs, const void *ptr,
                                                sw_slab_state *state, uint64_t *index) {
    sw_slab_tier *tier = slabs->tiers;
    while (!sw_slab_tier_has(tier, ptr)) tier++;
    *state = sw_slab_tier_locate(tier, ptr, index);
    return tier;
}

/* Returns whether this is the sentinel, which has every address outside the tiers. */
static bool is_last(const sw_slabs *slabs, const sw_slab_tier *tier) {
    return tier == &slabs->tiers[slabs->tier_count];
}

/* Reports an address that is neither a slot in use nor a heap object used as one. The heap itself
 * has reported misuse of its own objects, such as a double free. No lock is held. */
static sw_cold void report(const sw_slabs *slabs, const char *op, const void *ptr,
                           const sw_slab_tier *tier, sw_slab_state state) {
    sw_heap *heap = heap_of(slabs);
    if (is_last(slabs, tier) && heap != NULL && !sw_target_check(heap, ptr, op)) return;
    sw_fault fault = {.code = SW_MISUSE_FOREIGN, .op = op, .ptr = ptr, .thread = sw_os_thread_id()};
    if (state == SW_SLAB_INTERIOR) fault.code = SW_MISUSE_INTERIOR;
    if (state == SW_SLAB_FREE) fault.code = SW_MISUSE_DOUBLE_FREE;
    if (fault.code != SW_MISUSE_FOREIGN) fault.size = tier->slot_bytes;
    sw_misuse_report(&fault);
}

/* sw_slabs_free with the lock, a memory checker, objects of the heap, and misuse. */
static sw_noinline sw_status free_slow(sw_slabs *slabs, void *ptr) {
    sw_slab_state state;
    uint64_t index;
    enter(slabs);
    sw_slab_tier *tier = find_tier(slabs, ptr, &state, &index);
    bool is_own = is_last(slabs, tier) && sw_address_set_has(&slabs->own, ptr);
    if (state == SW_SLAB_USED) {
        sw_slab_tier_give(tier, index);
        if (slabs->is_watched != 0) sw_os_watch_forbid(ptr, tier->slot_bytes);
    } else if (is_own) {
        sw_address_set_remove(&slabs->own, ptr);
    }
    leave(slabs);
    if (is_own) sw_heap_free(heap_of(slabs), ptr);
    if (is_own || state == SW_SLAB_USED) return SW_OK;
    report(slabs, "slabs_free", ptr, tier, state);
    return SW_INVALID;
}

sw_status sw_slabs_free(sw_slabs *slabs, void *ptr) {
    sw_status status = sw_handle_status(slabs, MARK, SW_HANDLE_SLABS, "slabs_free");
    if (sw_unlikely(status != SW_OK) || ptr == NULL) return status;
    if (sw_unlikely(slabs->is_guarded != 0)) return free_slow(slabs, ptr);
    sw_slab_state state;
    uint64_t index;
    sw_slab_tier *tier = find_tier(slabs, ptr, &state, &index);
    if (sw_unlikely(state != SW_SLAB_USED)) return free_slow(slabs, ptr);
    sw_slab_tier_give(tier, index);
    return SW_OK;
}

size_t sw_slabs_usable_size(sw_slabs *slabs, const void *ptr) {
    if (!sw_handle_check(slabs, MARK, SW_HANDLE_SLABS, "slabs_usable_size") || ptr == NULL)
        return 0;
    sw_slab_state state;
    uint64_t index;
    enter(slabs);
    const sw_slab_tier *tier = find_tier(slabs, ptr, &state, &index);
    bool is_own = is_last(slabs, tier) && sw_address_set_has(&slabs->own, ptr);
    leave(slabs);
    if (state == SW_SLAB_USED) return tier->slot_bytes;
    if (is_own) return sw_target_usable(heap_of(slabs), ptr, "slabs_usable_size");
    report(slabs, "slabs_usable_size", ptr, tier, state);
    return 0;
}

size_t sw_slabs_trim(sw_slabs *slabs) {
    if (!sw_handle_check(slabs, MARK, SW_HANDLE_SLABS, "slabs_trim")) return 0;
    uint64_t bytes = 0;
    enter(slabs);
    for (uint32_t i = 0; i < slabs->tier_count; i++) bytes += sw_slab_tier_trim(&slabs->tiers[i]);
    leave(slabs);
    return bytes;
}

/* --- figures ---------------------------------------------------------------------------------- */

sw_status sw_slabs_get_stats(sw_slabs *slabs, sw_slabs_stats *out) {
    sw_status status = sw_handle_status(slabs, MARK, SW_HANDLE_SLABS, "slabs_stats");
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null("slabs_stats", "out");
    enter(slabs);
    *out = (sw_slabs_stats){.tiers = slabs->tier_count,
                            .over_tier = slabs->over_tier,
                            .full = slabs->full,
                            .own_objects = slabs->own.count};
    for (uint32_t i = 0; i < slabs->tier_count; i++) {
        const sw_slab_tier *tier = &slabs->tiers[i];
        out->used_slots += sw_slab_tier_used(tier);
        out->used_bytes += sw_slab_tier_used(tier) * tier->slot_bytes;
        out->held_bytes += tier->held_bytes;
    }
    leave(slabs);
    return SW_OK;
}

sw_status sw_slabs_get_tier(sw_slabs *slabs, uint32_t tier, sw_slab_tier_stats *out) {
    sw_status status = sw_handle_status(slabs, MARK, SW_HANDLE_SLABS, "slabs_get_tier");
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null("slabs_get_tier", "out");
    if (tier >= slabs->tier_count)
        return sw_fail(SW_INVALID, "slabs_get_tier", "tier %u: there are %u", tier,
                       slabs->tier_count);
    enter(slabs);
    const sw_slab_tier *one = &slabs->tiers[tier];
    *out = (sw_slab_tier_stats){.slot_bytes = one->slot_bytes,
                                .capacity = one->capacity,
                                .used_slots = sw_slab_tier_used(one),
                                .peak_used_slots = one->peak_slots,
                                .allocs = one->allocs,
                                .requested_bytes = one->requested_bytes,
                                .held_bytes = one->held_bytes};
    leave(slabs);
    return SW_OK;
}

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_slabs_record_check(const sw_slabs *slabs) {
    const char *broken = SW_RULE(slabs->tier_count >= 1)
               ?: SW_RULE(slabs->tier_count <= SW_SLABS_TIERS_MAX)
               ?: SW_RULE(slabs->tiers[slabs->tier_count].capacity == 0)
               ?: SW_RULE(slabs->is_guarded == (slabs->locked | slabs->is_watched))
               ?: SW_RULE(slabs->own.count <= slabs->over_tier + slabs->full)
               ?: SW_RULE(slabs->alert == NULL || slabs->every >= 1);
    for (uint32_t i = 1; broken == NULL && i < slabs->tier_count; i++)
        broken = SW_RULE(slabs->tiers[i - 1].slot_bytes < slabs->tiers[i].slot_bytes);
    return broken ?: sw_address_set_check(&slabs->own);
}
