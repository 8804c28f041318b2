/* SPDX-License-Identifier: Apache-2.0 */
/* The records of base/thread_state.h on Linux. Caller: threads.c. */
#ifndef SW_OS_LINUX_THREAD_STATE_H
#define SW_OS_LINUX_THREAD_STATE_H

/* From now on each thread has its own record. */
void sw_os_thread_state_start(void);

#endif
