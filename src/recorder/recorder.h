/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: libspanwise-record.so, preloaded into a program, writes its allocation calls to a
 * raw `.swt` file. Design and guarantees: docs/design/recorder.md.
 *
 * The files; each calls only those below it:
 *
 *   attach.c  for a recorder that is loaded into a running program: its thread, which begins and
 *             ends the recording
 *   entries.c redirects the calls of such a program to the hooks and back
 *   hooks.c   exec, _exit, abort, dlopen, dlclose; the start and the end of this library; the
 *             aligned operator new, whose size is stored before a C++ library rounds it up
 *   malloc.c  the malloc family: real call, then one event
 *   process.c start, fork, the last blocks before exit and exec, slow paths of malloc.c
 *   sample.c  sampled recording: which objects are recorded
 *   thread.c  a thread's open block: start, exit, full blocks, late and dropped events
 *   site.c    return-address chains -> site ids
 *   python.c  frames of CPython -> lines of Python
 *   meta.c    META and MODULES blocks; child files, and the list of children
 *   area.c    memory of open blocks, which the process that started the program can read
 *   file.c    the file: blocks, clocks, the END block; a descriptor that survives close
 *   memory.c  resident memory, and how much of it came through malloc
 *   real.c    the real functions, and the scratch memory for our own calls
 *   state.c   the environment, and the state that all of these share
 *
 * Path of an allocation: malloc calls the real malloc, then appends one event of 32 bytes (call
 * site, ticks, stamp) to the thread's open block. If the block is full, record_slow_put writes it
 * (record_thread_flush: encode, one pwrite) and puts the event into the empty block.
 *
 * Lock order: finish, sites, encoder[i], file; chunk and areas are taken alone. No lock is held
 * while the program's or the loader's code runs.
 */
#ifndef SW_RECORDER_RECORDER_H
#define SW_RECORDER_RECORDER_H

#include "recorder/real.h"
#include "recorder/sample.h"
#include "recorder/site.h"
#include "recorder/state.h"
#include "recorder/thread.h"

#define RECORD_EXPORT __attribute__((visibility("default")))

/* Returns the record of the calling thread, created at its first call. Starts the recorder if
 * necessary. NULL: the call is not to be recorded (it is nested, recording is off, or there is no
 * memory). */
record_thread *record_enter_slow(void);
/* Appends an event that did not fit into the open block, or that the gate stopped. */
void record_slow_put(record_thread *thread, const record_event *event);

/* --- start and fork --------------------------------------------------------------------------- */

/* Starts the recorder once. A second thread that calls it waits until the recorder has started. */
void record_start(void);
/* In a fork child, which has a copy of its parent's memory: resets the whole recorder. */
void record_in_fork_child(void);

/* --- windows ---------------------------------------------------------------------------------- */

/* A recorder that is attached to a running program records for a while (attach.c), perhaps again
 * later. record_window_open prepares the recording; `find` returns the program's functions, and
 * `leave` is called in fork children, which are not recorded. False: errno says why not. After
 * record_window_arm the calls are recorded, until record_window_close. */
bool record_window_open(void *(*find)(const char *name), void (*leave)(void));
void record_window_arm(void);
void record_window_close(void);

/* --- the end ---------------------------------------------------------------------------------- */

/* Reads the resident memory before exit functions free what the program held. */
void record_before_exit_functions(void);
/* Writes all open blocks, and END. Nothing is recorded after it. */
void record_before_exit(void);
/* As record_before_exit, before an exec: the other threads wait until its outcome is known. If exec
 * fails, record_exec_failed continues the recording. */
void record_before_exec(void);
void record_exec_failed(void);

#endif
