/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses threads that do not own a range (enter.h). */
#include "range/enter.h"

#include "base/fail.h"
#include "os/os.h"

uint64_t sw_range_find_thread(void) { return (uint64_t)(uintptr_t)sw_os_here(); }

sw_status sw_range_refuse_thread(const sw_range *range, const char *op) {
    if (range->front.owner == 0) return SW_OK;
    return sw_fail(SW_OWNER, op,
                   "the range %p belongs to another thread: call it there, hand it over with "
                   "sw_range_adopt, or make it with the option locked",
                   (const void *)range);
}
