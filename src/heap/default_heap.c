/* SPDX-License-Identifier: Apache-2.0 */
/* The default heap is created on first use. */
#include "heap/default_heap.h"

#include "base/fail.h"
#include "heap/heap.h"
#include "heap/options.h"
#include "heap/registry.h"

static sw_heap *default_heap; /* atomic */
static sw_os_lock default_lock;

/* Refuses options that a default heap can not have, because fast.h and the functions without a heap
 * argument rely on that. */
static sw_status check_default(const sw_heap_options *options, const char *op) {
    if (options->table != sw_table_default())
        return sw_fail(SW_INVALID, op, "table %s: the default heap has %s compiled in",
                       sw_table_name(options->table), sw_table_name(sw_table_default()));
    if (options->dry || options->tiny || options->manual_clock)
        return sw_fail(SW_INVALID, op,
                       "a default heap cannot be dry, pack tiny objects or have a manual clock");
    return SW_OK;
}

/* Under default_lock, while there is no default heap. */
static sw_status make_default(const sw_heap_options *options) {
    sw_heap *heap;
    sw_status status = sw_heap_create(options, &heap);
    if (status != SW_OK) return status;
    heap->id = SW_DEFAULT_HEAP_ID;
    __atomic_store_n(&default_heap, heap, __ATOMIC_RELEASE);
    return SW_OK;
}

sw_heap *sw_heap_default(void) {
    sw_heap *heap = __atomic_load_n(&default_heap, __ATOMIC_ACQUIRE);
    if (sw_likely(heap != NULL)) return heap;
    sw_os_lock_acquire(&default_lock);
    if (default_heap == NULL) (void)make_default(NULL);
    heap = default_heap;
    sw_os_lock_release(&default_lock);
    return heap;
}

sw_status sw_heap_default_init(const sw_heap_options *options) {
    const char *op = "heap_default_init";
    sw_heap_options read;
    sw_status status = sw_options_read(options, op, &read);
    if (status == SW_OK) status = check_default(&read, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&default_lock);
    status = default_heap == NULL ? make_default(&read)
                                  : sw_fail(SW_STATE, op, "the default heap is in use already");
    sw_os_lock_release(&default_lock);
    return status;
}

void sw_default_heap_lock(void) { sw_os_lock_acquire(&default_lock); }
void sw_default_heap_unlock(void) { sw_os_lock_release(&default_lock); }
void sw_default_heap_reset_lock(void) { sw_os_lock_reset(&default_lock); }
