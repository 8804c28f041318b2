/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's data for slow paths. It is not a thread-local variable, because libraries loaded by
 * dlopen share a reserve of about 1.6 KiB of static TLS. Callers: fail, and the os layer, which has
 * the records. */
#ifndef SW_BASE_THREAD_STATE_H
#define SW_BASE_THREAD_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "spanwise/status.h"

enum { SW_MESSAGE_BYTES = 240 };

typedef struct sw_thread_state {
    sw_error error; /* the last error */
    char message[SW_MESSAGE_BYTES];
    const void *report_at; /* the innermost report of misuse whose handler may still run */
    uint64_t report_stamp;
    uint64_t stamps;
    uint64_t id;          /* of the operating system; 0: unknown yet */
    uintptr_t stack_high; /* end of its stack; 0: unknown yet */
    bool guarding;        /* it notes a call stack for the guard */
} sw_thread_state;

/* Returns the calling thread's record, initially all zero. `makes`: creates it if there is none.
 * NULL: there is none, or no memory. Set by the os layer before main; until then all callers share
 * one record. */
extern sw_thread_state *(*sw_thread_state_find)(bool makes);

#endif
