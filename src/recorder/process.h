/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the recorder in a process: start at the first call, and forks. */
#ifndef SW_RECORDER_PROCESS_H
#define SW_RECORDER_PROCESS_H

/* Starts the recorder, once. A concurrent caller waits until it has started. */
void record_start(void);
/* Makes a fork child, which has the recorder's memory of its parent, start from nothing. */
void record_in_fork_child(void);
/* Creates the file of a recorded fork child, at its first event. */
void record_open_child(void);

#endif
