/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a recording: at the exit of the process, and before exec. */
#ifndef SW_RECORDER_END_H
#define SW_RECORDER_END_H

/* Writes all open blocks, and END. Nothing is recorded after it. */
void record_before_exit(void);
/* As record_before_exit, before an exec: the other threads wait until its outcome is known. If exec
 * fails, record_exec_failed continues the recording. */
void record_before_exec(void);
void record_exec_failed(void);
/* In a fork child, whose only thread is not in exec: resets the finish lock. */
void record_end_after_fork(void);

#endif
