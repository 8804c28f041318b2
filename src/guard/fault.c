/* SPDX-License-Identifier: Apache-2.0 */
/* Accesses that fault: to guard pages, and to objects of size 0. */
#include "guard/empty.h"
#include "guard/report.h"
#include "guard/sample.h"
#include "os/os.h"

static sw_heap *watched;

static bool on_fault(void *address, bool is_write) {
    const char *op = is_write ? "write" : "read";
    if (sw_empty_owns(address))
        sw_guard_report(watched, SW_MISUSE_OUT_OF_BOUNDS, op, address, 0);
    else if (sw_sample_owns(address))
        sw_sample_report_fault(watched, address, op);
    return false;
}

void sw_guard_watch_faults(sw_heap *heap) {
    watched = heap;
    (void)sw_os_at_fault(on_fault);
}
