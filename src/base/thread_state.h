/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread keeps for slow paths. It is no thread-local variable: the static TLS of a library
 * that is loaded by dlopen comes out of a reserve of some 1.6 KiB, which all such libraries share.
 * Callers: fail, and the os layer, which has the records. */
#ifndef SW_BASE_THREAD_STATE_H
#define SW_BASE_THREAD_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "spanwise/status.h"

enum { SW_MESSAGE_BYTES = 240 };

typedef struct sw_thread_state {
    sw_error error; /* the last one */
    char message[SW_MESSAGE_BYTES];
    const void *report_at; /* the innermost report of misuse whose handler may still run */
    uint64_t report_stamp;
    uint64_t stamps;
    uint64_t id;          /* of the operating system; 0: not known yet */
    uintptr_t stack_high; /* the end of its stack; 0: not known yet */
} sw_thread_state;

/* Returns the calling thread's record, all zero at first. `makes`: makes one if there is none.
 * NULL: there is none, and no memory for one. Set by the os layer before main; until then every
 * caller has the same record. */
extern sw_thread_state *(*sw_thread_state_find)(bool makes);

#endif
