/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the recorder at the first call, and resets it after a fork. */
#ifndef SW_RECORDER_PROCESS_H
#define SW_RECORDER_PROCESS_H

/* Starts the recorder once. A second thread that calls it waits until the recorder has started. */
void record_start(void);
/* In a fork child, which has a copy of its parent's memory: resets the whole recorder. */
void record_in_fork_child(void);
void record_open_child(void);

#endif
