/* SPDX-License-Identifier: Apache-2.0 */
/* Returns memory of a whole heap: at ticks, before metadata is refused, and in the limit hook. */
#include "heap/reclaim.h"

#include "heap/central.h"
#include "heap/shelf.h"
#include "heap/verify_point.h"

void sw_reclaim_decay(sw_heap *heap) {
    if (heap->options.decay_ns == SW_DECAY_NEVER) return;
    uint64_t now_ns = heap->options.manual_clock ? heap->now_ns : sw_os_coarse_now_ns();
    if (sw_likely(!sw_heap_decay_due(heap, now_ns))) return;
    sw_shelf_clear_all(heap); /* what lay there becomes free pages, which this tick marks as idle */
    heap->kept_credit = SW_KEPT_CREDIT;
    sw_pages_decay(&heap->pages, now_ns);
    sw_verify_note(heap, SW_VERIFY_TICK);
}

/* Returns the runs that were taken out to the system, without the lock, in as many rounds as
 * needed. */
void sw_reclaim_give_back(sw_heap *heap) {
    while (sw_pages_has_taken_out(&heap->pages)) {
        uint64_t number = sw_pages_purge_begin(&heap->pages);
        sw_os_lock_release(&heap->lock);
        sw_pages_purge_run(&heap->pages);
        sw_os_lock_acquire(&heap->lock);
        sw_pages_purge_end(&heap->pages, number);
    }
}

bool sw_reclaim_for_metadata(sw_heap *heap) {
    sw_shelf_clear_all(heap);
    return sw_pages_uncommit_ends(&heap->pages) != 0;
}

bool sw_reclaim_ask_limit(sw_heap *heap, uint64_t bytes, uint32_t *asked) {
    if ((*asked)++ == SW_LIMIT_ASKS_MAX) return false;
    sw_os_lock_acquire(&heap->lock);
    sw_limit_fn *hook = heap->limit_hook;
    void *arg = heap->limit_hook_arg;
    sw_os_lock_release(&heap->lock);
    return hook != NULL && hook(heap, bytes, arg) != 0;
}
