/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a recording: at the exit of the process, and before exec. */
#ifndef SW_RECORDER_END_H
#define SW_RECORDER_END_H

/* Writes all blocks, the END block too; nothing is recorded after it. */
void record_before_exit(void);
/* As before_exit, but the threads wait for exec's outcome; if it fails recording goes on. */
void record_before_exec(void);
void record_exec_failed(void);
/* In a fork child: no exec is under way here. */
void record_end_after_fork(void);

#endif
