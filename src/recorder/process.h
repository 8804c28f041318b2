/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the recorder in a process: start at the first call, and forks. */
#ifndef SW_RECORDER_PROCESS_H
#define SW_RECORDER_PROCESS_H

/* Runs once; nested and concurrent callers see it happen only once. */
void record_start(void);
void record_in_fork_child(void);
/* In a recorded fork child, at its first event: creates its file. */
void record_open_child(void);

#endif
