/* SPDX-License-Identifier: Apache-2.0 */
/* How layers report failure: sw_fail for expected failures (sets the thread's last error and
 * returns the status), sw_misuse_report for misuse (handler, or print and abort). No allocation.
 * Callers: every layer. Design: docs/design/errors.md.
 */
#ifndef SW_BASE_FAIL_H
#define SW_BASE_FAIL_H

#include <stdarg.h>

#include "base/attributes.h"
#include "spanwise/status.h"

/* Records (op, status, formatted message) as the thread's last error; returns status. */
sw_status sw_fail(sw_status status, const char *op, const char *format, ...) sw_printf_like(3, 4);

/* Calls the handler, else prints "spanwise: fatal: <CODE> op=.. ptr=.. size=.. heap=.. thread=.."
 * and aborts. Returns only if the handler chose to leak and continue. Hold no lock. */
sw_cold void sw_misuse_report(const sw_fault *fault);

/* The same; what tell(arg) prints follows the text if the process aborts. */
sw_cold void sw_misuse_report_told(const sw_fault *fault, void (*tell)(const void *arg),
                                   const void *arg);

/* Async-signal-safe line to fd 2: printf subset %s %u (uint64) %x (uint64) %p. */
void sw_emergency_print(const char *format, ...);

#endif
