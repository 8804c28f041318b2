/* SPDX-License-Identifier: Apache-2.0 */
/* Faults and stacks of os.h in plain C11, which has neither. */
#include "os/os.h"

bool sw_os_at_fault(sw_os_fault_fn *fn) {
    (void)fn;
    return false;
}

size_t sw_os_call_stack(uint64_t *addresses, size_t max) {
    (void)addresses;
    (void)max;
    return 0;
}
