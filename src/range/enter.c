/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of threads, and the refusal of threads that do not own a range (enter.h). */
#include "range/enter.h"

#include "base/fail.h"

sw_tls_fast uint64_t sw_range_thread;

uint64_t sw_range_number_thread(void) {
    static uint64_t numbers;
    if (sw_range_thread == 0) sw_range_thread = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
    return sw_range_thread;
}

sw_status sw_range_refuse_thread(const sw_range *range, const char *op) {
    if (range->front.owner == 0) return SW_OK;
    return sw_fail(SW_OWNER, op,
                   "the range %p belongs to another thread: call it there, hand it over with "
                   "sw_range_adopt, or make it with the option locked",
                   (const void *)range);
}
