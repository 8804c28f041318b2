/* SPDX-License-Identifier: Apache-2.0 */
/* Slow paths of malloc.c: the first call of the process, of a fork child and of a thread, calls of
 * a thread after its exit, and events that do not fit into the block. */
#include <errno.h>

#include "recorder/process.h"
#include "recorder/recorder.h"

sw_cold record_thread *record_enter_slow(void) {
    if (record_thread_is_inside()) return NULL;
    record_start();
    return record_off ? NULL : record_thread_get();
}

sw_cold void record_slow_put(record_thread *thread, const record_event *event) {
    int saved = errno;
    if (record_is_stray_copy()) record_in_fork_child();
    if ((record_gate & RECORD_UNOPENED) != 0) record_open_child();
    record_thread_put(thread, event);
    errno = saved;
}
