/* SPDX-License-Identifier: Apache-2.0 */
/* How layers report failure. sw_fail is for expected failures: it sets the thread's last error and
 * returns the status. sw_misuse_report is for misuse: it calls the handler, or prints and aborts.
 * Nothing here allocates. Callers: every layer. Design: docs/design/errors.md.
 */
#ifndef SW_BASE_FAIL_H
#define SW_BASE_FAIL_H

#include <stdarg.h>

#include "base/attributes.h"
#include "spanwise/status.h"

/* Stores op, status and the formatted message as the thread's last error. Returns status. */
sw_status sw_fail(sw_status status, const char *op, const char *format, ...) sw_printf_like(3, 4);

/* Fails with SW_INVALID: the named argument is NULL. */
sw_cold sw_status sw_fail_null(const char *op, const char *argument);

/* Calls the fault handler. If there is none, or it does not return LEAK_AND_CONTINUE, prints
 * "spanwise: fatal: <CODE> op=.. ptr=.. size=.. heap=.. thread=.." and aborts. The caller must hold
 * no lock. */
sw_cold void sw_misuse_report(const sw_fault *fault);

/* As sw_misuse_report; before an abort, calls print(arg) to print details. */
sw_cold void sw_misuse_report_with(const sw_fault *fault, void (*print)(const void *arg),
                                   const void *arg);

/* Prints a line to fd 2; safe in signal handlers. Conversions: %s, %u (uint64), %x (uint64), %p. */
void sw_emergency_print(const char *format, ...);

#endif
