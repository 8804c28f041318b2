/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of misuse for several paths. */
#include "heap/misuse.h"

#include <errno.h>

#include "base/fail.h"

void sw_report_double_free(const sw_heap *heap, uintptr_t p) {
    sw_misuse_report(&(sw_fault){.code = SW_MISUSE_DOUBLE_FREE,
                                 .op = "free",
                                 .ptr = (const void *)p,
                                 .heap_id = heap->id,
                                 .thread = sw_os_thread_id()});
}

void *sw_report_ended_cache(const sw_cache *cache) {
    (void)sw_cache_check(cache, "alloc");
    errno = EINVAL;
    return NULL;
}
