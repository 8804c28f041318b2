/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: libspanwise-record.so, preloaded into a program, writes its allocation calls to a
 * raw `.swt` file. Design and guarantees: docs/design/recorder.md.
 *
 * The files; each calls only those below it:
 *
 *   malloc.c      the malloc family: real call, then one event
 *   cxx.c         the aligned operator new: stores the size before a C++ library rounds it up
 *   hooks.c       exec, _exit, abort, dlopen, dlclose; the start and the end of this library
 *   slow.c        calls that the inline paths do not serve
 *   process.c     start, fork, children
 *   end.c         the last blocks, before exit and exec
 *   thread.c      a thread's open block: start, exit, full blocks, late and dropped events
 *   sample.c      sampled recording: which objects are recorded
 *   site.c        return-address chains -> site ids
 *   python.c      frames of CPython -> lines of Python
 *   meta.c        META and MODULES blocks
 *   memory.c      resident memory, and how much of it came through malloc
 *   area.c        memory of open blocks, which the process that started the program can read
 *   file.c        the file: blocks, clocks, the END block
 *   descriptor.c  a descriptor in a program that closes and reuses them
 *   children.c    names of child files, and the list of children
 *   real.c        the real functions, and the scratch memory for our own calls
 *   options.c     the environment
 *   state.c       the state that all of these share
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

#endif
